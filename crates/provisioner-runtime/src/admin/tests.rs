//! Tests of the server over real connections, with well-behaved and misbehaving clients.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn running_process_is_alive() {
    let server = Server::start(Checks::new()).await;
    assert_eq!(server.get("/livez").await, (200, "alive\n".to_owned()));
    assert_eq!(server.get("/healthz/leader-election").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn readyz_lists_each_check_with_its_problem() {
    let checks = Checks::new();
    let server = Server::start(checks.clone()).await;
    assert_eq!(server.get("/readyz").await, (200, "ready\n".to_owned()));

    checks.add("first watch", || Ok(String::new()));
    checks.add("leases", || Ok("waiting for another fleet".to_owned()));
    checks.add("second watch", || Err("not listed yet".to_owned()));
    checks.add("third watch", || panic!("a mistake"));
    let report = "[+] first watch: ok\n\
                  [+] leases: waiting for another fleet\n\
                  [-] second watch: not listed yet\n\
                  [-] third watch: the check itself failed\n\
                  not ready\n";
    assert_eq!(server.get("/readyz").await, (500, report.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn probe_results_are_cached_and_time_limited() {
    let asked = Arc::new(AtomicUsize::new(0));
    let checks = Checks::new();
    let count = asked.clone();
    checks.add_probe("backend", move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Err("no space".to_owned()),
                1 => std::future::pending().await,
                2 => panic!("a mistake"),
                3 => Ok(String::new()),
                _ => Ok("one of two answers".to_owned()),
            }
        }
        .boxed()
    });
    let (one, other) = tokio::join!(checks.report(), checks.report());
    assert_eq!((&one, &one.1[..]), (&other, "[-] backend: no space\nnot ready\n"));
    assert_eq!(checks.report().await, one);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let pause = Duration::from_secs(6);
    for text in [
        "[-] backend: no answer within 5 s\n",
        "[-] backend: its code crashed\n",
        "[+] backend: ok\n",
        "[+] backend: one of two answers\nready\n",
    ] {
        tokio::time::advance(pause).await;
        assert!(checks.report().await.1.starts_with(text), "{text}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let server = Server::start(Checks::new()).await;
    assert_eq!(server.get("/").await.0, 404);
    assert!(server.send("POST /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.starts_with("HTTP/1.1 405"));
    let head = server.send("HEAD /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn serves_metrics_in_the_requested_format() {
    let server = Server::start(Checks::new()).await;
    let plain = server.send("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{plain}");
    let (_, body) = plain.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, PROMETHEUS);

    let open = "GET /metrics HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n";
    let open = server.send(open).await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{open}");
    let (_, body) = open.split_once("\r\n\r\n").unwrap();
    let expected = PROMETHEUS
        .lines()
        .map(|line| if line.starts_with('#') { line.replace("_total ", " ") } else { line.to_owned() });
    assert_eq!(body, expected.chain(["# EOF".to_owned()]).map(|line| line + "\n").collect::<String>());
}

#[tokio::test]
async fn survives_malformed_requests() {
    let server = Server::start(Checks::new()).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1_000));
    for garbage in
        ["", "\r\n", "GET", "\0\u{1}\u{2}", "GET / HTTP/9\r\n\r\n", "GET http:// HTTP/1.1\r\n\r\n", &long, &many]
    {
        let answer = server.send(garbage).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(server.get("/livez").await.0, 200);
}

#[tokio::test]
async fn silent_clients_do_not_block_others_for_long() {
    let server = Server::start(Checks::new()).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let start = std::time::Instant::now();
    assert_eq!(server.get("/livez").await.0, 200);
    assert!(start.elapsed() < 2 * HEAD_TIMEOUT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn address_in_use_is_reported_in_one_line() {
    let server = Server::start(Checks::new()).await;
    let error = AdminServer::bind(server.address).await.unwrap_err().to_string();
    let start = format!("Cannot listen on {} for probes and metrics: Address already in use", server.address);
    assert!(
        error.starts_with(&start) && error.ends_with(". Choose another address, or stop the process that uses it."),
        "{error}"
    );
}

#[tokio::test]
async fn ipv6_reaches_a_server_on_all_addresses() {
    let server = AdminServer::bind(SocketAddr::from(([0, 0, 0, 0], 0))).await.unwrap();
    let port = server.address().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(TcpStream::connect(("::1", port)).await.is_ok(), has_ipv6);
}

#[tokio::test]
async fn server_ends_when_stopped() {
    let server = Server::start(Checks::new()).await;
    server.stop.cancel();
    timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

const PROMETHEUS: &str = r#"# HELP test_requests_total Requests.
# TYPE test_requests_total counter
test_requests_total 3
# HELP test_heat Heat.
# TYPE test_heat gauge
test_heat{place="here counter"} -1
"#;

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(checks: Checks) -> Self {
        let mut registry = Registry::with_prefix("test");
        let counter = Counter::<u64>::default();
        counter.inc_by(3);
        registry.register("requests", "Requests", counter);
        let heat = Family::<[(&str, &str); 1], Gauge>::default();
        heat.get_or_create(&[("place", "here counter")]).set(-1);
        registry.register("heat", "Heat", heat);
        let server = AdminServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let task = tokio::spawn(server.serve(checks, Arc::new(registry), stop.clone()));
        Self { address, stop, task }
    }

    /// Returns the status and the text.
    async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    /// Returns everything that is received, whatever happens to the connection.
    async fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}
