//! A server with faults in front of moto: every so-manieth request goes wrong, and never two in a row.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Server;

/// What goes wrong, each at every so-manieth request; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// 503, as a service that is overloaded.
    pub unavailable: u64,
    /// 429.
    pub too_many: u64,
    /// The connection breaks before anything is done.
    pub cut_before: u64,
    /// The connection breaks after all is done.
    pub cut_after: u64,
    /// Of every answer.
    pub latency: Duration,
}

/// Starts it; returns its address. It ends with its runtime.
pub async fn start(server: &Server, faults: Faults) -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let moto = server.endpoint.trim_start_matches("http://").to_owned();
    let requests = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, moto.clone(), requests.clone(), faults));
        }
    });
    Ok(endpoint)
}

/// One request to a connection: it is closed after the answer.
async fn answer(mut stream: TcpStream, moto: String, requests: Arc<AtomicU64>, faults: Faults) -> anyhow::Result<()> {
    let (head, body) = request(&mut stream).await?;
    let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
    let every = [faults.unavailable, faults.too_many, faults.cut_before, faults.cut_after];
    let fails = |number: u64| every.iter().any(|every| *every > 0 && number.is_multiple_of(*every));
    let at = |every: u64| every > 0 && number.is_multiple_of(every) && !fails(number - 1);
    tokio::time::sleep(faults.latency).await;
    if at(faults.cut_before) {
        return Ok(());
    }
    // IAM says it in other words than S3.
    let is_iam = head.starts_with("POST / ");
    let answer = match () {
        () if at(faults.unavailable) && is_iam => refusal(503, "ServiceUnavailable"),
        () if at(faults.unavailable) => refusal(503, "SlowDown"),
        () if at(faults.too_many) && is_iam => refusal(429, "Throttling"),
        () if at(faults.too_many) => refusal(429, "TooManyRequests"),
        () => {
            let mut moto = TcpStream::connect(moto).await?;
            moto.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
            moto.write_all(&body).await?;
            let mut answer = Vec::new();
            moto.read_to_end(&mut answer).await?;
            answer
        }
    };
    if !at(faults.cut_after) {
        stream.write_all(&answer).await?;
    }
    Ok(())
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

fn refusal(status: u16, code: &str) -> Vec<u8> {
    let error = format!("<Code>{code}</Code><Message>Reduce your request rate.</Message>");
    let body = match code {
        "ServiceUnavailable" | "Throttling" => format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>"),
        _ => format!("<Error>{error}</Error>"),
    };
    response(status, &body).into_bytes()
}

pub(super) fn response(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} -\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
