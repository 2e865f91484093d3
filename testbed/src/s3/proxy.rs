//! A proxy for S3 and IAM that fails every Nth request, but never two in a row.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "s3")]
use super::Account;
use super::Server;

/// The host and port of S3 and IAM.
#[derive(Clone)]
pub struct Upstreams {
    s3: Arc<str>,
    iam: Arc<str>,
}

impl Upstreams {
    fn of(s3: &str, iam: &str) -> Self {
        let [s3, iam] = [s3, iam].map(|endpoint| endpoint.trim_start_matches("http://").into());
        Self { s3, iam }
    }
}

impl From<&str> for Upstreams {
    fn from(endpoint: &str) -> Self {
        Self::of(endpoint, endpoint)
    }
}

impl From<&Server> for Upstreams {
    fn from(moto: &Server) -> Self {
        Self::of(&moto.endpoint, &moto.endpoint)
    }
}

#[cfg(feature = "s3")]
impl From<&Account> for Upstreams {
    fn from(account: &Account) -> Self {
        Self::of(&account.endpoint, &account.iam_endpoint)
    }
}

/// The faults. Each affects every Nth request; 0 disables it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Respond with 503, like an overloaded service.
    pub unavailable: u64,
    /// Respond with 429.
    pub too_many: u64,
    /// Close the connection before the request is processed.
    pub cut_before: u64,
    /// Close the connection after the request is processed.
    pub cut_after: u64,
    /// The delay of every response.
    pub latency: Duration,
}

impl Faults {
    /// The faults for tests of the contract.
    pub const USUAL: Self =
        Self { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency: Duration::from_millis(5) };
}

/// Starts the proxy and returns its address. It ends with its runtime.
pub async fn start(server: impl Into<Upstreams>, faults: Faults) -> anyhow::Result<String> {
    let every = [faults.unavailable, faults.too_many, faults.cut_before, faults.cut_after];
    let fails = move |number: u64| every.iter().any(|every| *every > 0 && number.is_multiple_of(*every));
    start_with(server, faults.latency, move |asked| {
        let at = |every: u64| every > 0 && asked.number.is_multiple_of(every) && !fails(asked.number - 1);
        match () {
            () if at(faults.cut_before) => ProxyAction::Lost,
            // IAM and S3 use different error codes.
            () if at(faults.unavailable) && asked.is_iam() => ProxyAction::Refused(503, "ServiceUnavailable"),
            () if at(faults.unavailable) => ProxyAction::Refused(503, "SlowDown"),
            () if at(faults.too_many) && asked.is_iam() => ProxyAction::Refused(429, "Throttling"),
            () if at(faults.too_many) => ProxyAction::Refused(429, "TooManyRequests"),
            () if at(faults.cut_after) => ProxyAction::Unanswered,
            () => ProxyAction::Answered,
        }
    })
    .await
}

/// A request that passes the proxy.
#[derive(Debug)]
pub struct ProxiedRequest {
    /// The number of the request, from 1.
    pub number: u64,
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: String,
}

impl ProxiedRequest {
    /// True for a request to IAM.
    pub fn is_iam(&self) -> bool {
        self.head.starts_with("POST / ")
    }

    /// The action of an IAM request; empty for S3.
    pub fn action(&self) -> &str {
        self.parameter("Action")
    }

    /// A parameter of an IAM request, still encoded; empty if it does not exist.
    pub fn parameter(&self, name: &str) -> &str {
        let pairs = self.is_iam().then(|| self.body.split('&').filter_map(|pair| pair.split_once('=')));
        pairs.into_iter().flatten().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
    }

    /// True if the request creates this bucket.
    pub fn makes_bucket(&self, name: &str) -> bool {
        self.head.starts_with(&format!("PUT /{name}/ "))
    }
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug)]
pub enum ProxyAction {
    /// The service answers.
    Answered,
    /// The connection is closed before the request is processed.
    Lost,
    /// The connection is closed after the request is processed.
    Unanswered,
    /// The proxy refuses the request with this status and code.
    Refused(u16, &'static str),
}

/// Starts a proxy that calls `decide` for each request; returns its address. It ends with its runtime.
pub async fn start_with(
    server: impl Into<Upstreams>,
    latency: Duration,
    decide: impl Fn(&ProxiedRequest) -> ProxyAction + Send + Sync + 'static,
) -> anyhow::Result<String> {
    let (behind, requests, decide) = (server.into(), Arc::new(AtomicU64::new(0)), Arc::new(decide));
    listen(move |stream| {
        let (behind, requests, decide) = (behind.clone(), requests.clone(), decide.clone());
        async move { answer(stream, &behind, &requests, latency, &*decide).await }
    })
    .await
}

/// Listens on loopback, and calls `answer` for each connection; returns the address. It ends with its runtime.
pub(super) async fn listen<A: Future<Output = anyhow::Result<()>> + Send + 'static>(
    answer: impl Fn(TcpStream) -> A + Send + 'static,
) -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(endpoint)
}

/// Handles a connection with one request, which is closed after the response.
async fn answer(
    mut stream: TcpStream,
    behind: &Upstreams,
    requests: &AtomicU64,
    latency: Duration,
    decide: impl Fn(&ProxiedRequest) -> ProxyAction,
) -> anyhow::Result<()> {
    let (head, body) = request(&mut stream).await?;
    let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
    let asked = ProxiedRequest { number, head, body: String::from_utf8_lossy(&body).into_owned() };
    let fate = decide(&asked);
    tokio::time::sleep(latency).await;
    let answer = match fate {
        ProxyAction::Lost => return Ok(()),
        ProxyAction::Refused(status, code) => refusal(status, code, asked.is_iam()),
        ProxyAction::Answered | ProxyAction::Unanswered => {
            let service = if asked.is_iam() { &behind.iam } else { &behind.s3 };
            forward(service, &asked.head, &body).await?
        }
    };
    if !matches!(fate, ProxyAction::Unanswered) {
        stream.write_all(&answer).await?;
    }
    Ok(())
}

/// Forwards a request and returns the service's response.
pub(super) async fn forward(service: &str, head: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
    // Clients send an absolute URL to a proxy.
    let head = head.replacen(&format!(" http://{service}/"), " /", 1);
    let mut service = TcpStream::connect(service).await?;
    service.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    service.write_all(body).await?;
    let mut answer = Vec::new();
    service.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Reads a request: its head without the empty line, and its body.
pub(super) async fn request(stream: &mut TcpStream) -> anyhow::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        anyhow::ensure!(stream.read_buf(&mut bytes).await? > 0, "the request has no end");
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            return Ok((head, bytes.split_off(end + 4)));
        }
    }
}

pub(super) fn refusal(status: u16, code: &str, is_iam: bool) -> Vec<u8> {
    let error = format!("<Code>{code}</Code><Message>Refused by the test.</Message>");
    let body = if is_iam {
        format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>")
    } else {
        format!("<Error>{error}</Error>")
    };
    response(status, &body).into_bytes()
}

pub(super) fn response(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} -\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
