//! Tests of requests with and without a proxy, of certificates, and of limits for responses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gcs_sim::Server;
use http::Request;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::Fixture;
use crate::gcs::Gcs;
use crate::http::{Client, Clients, Error, Proxies};
use crate::store::Defaults;

/// A proxy that records the first request of each connection.
#[derive(Clone)]
struct CountingProxy {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl CountingProxy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxy = Self { address, heads: Arc::default() };
        let shared = proxy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(shared.clone().forward(stream));
            }
        });
        proxy
    }

    async fn forward(self, mut stream: TcpStream) {
        let head = head_of(&mut stream).await;
        self.heads.lock().unwrap().push(head.clone());
        let target = head.split(' ').nth(1).unwrap();
        let tunnel = head.starts_with("CONNECT ");
        let target = if tunnel { target } else { target.split('/').nth(2).unwrap() };
        let mut server = TcpStream::connect(target).await.unwrap();
        if tunnel {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        } else {
            server.write_all(head.as_bytes()).await.unwrap();
        }
        let _ = copy_bidirectional(&mut stream, &mut server).await;
    }

    /// Method and target of each connection's first request.
    fn first_lines(&self) -> Vec<String> {
        self.heads.lock().unwrap().iter().map(|head| head.split(" HTTP").next().unwrap().to_owned()).collect()
    }

    fn proxies(&self, variables: &[(&str, &str)]) -> Proxies {
        let address = format!("http://user:p%40ssword@{}", self.address);
        let of = |name: &str| match name {
            "NO_PROXY" => String::new(),
            _ => address.clone(),
        };
        let given = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Proxies::of(|name| given(name).map_or_else(|| of(name), |(_, value)| (*value).to_owned())).unwrap()
    }
}

/// Reads the head of a request, and the part of its body that arrived with it.
async fn head_of(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await.unwrap_or_default();
        if read == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    while !head_of(&mut stream).await.is_empty() {
        let _ = stream.write_all(answer).await;
    }
}

/// Starts a server that always sends this response, with TLS if there is an acceptor, and returns its `host:port`.
async fn server(text: String, tls: Option<TlsAcceptor>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (text, tls) = (text.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => answer(stream, text.as_bytes()).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, text.as_bytes()).await;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Returns a TLS acceptor for `127.0.0.1`, and the certificate that a client must trust.
fn tls() -> (TlsAcceptor, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), certificate)
}

fn client(url: &str, ca_bundle: Option<&str>, proxies: Proxies) -> Client {
    let clients = Clients::new(proxies, Duration::from_secs(5));
    clients.get(url, ca_bundle.map(|pem| pem.as_bytes().to_vec())).unwrap()
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

#[tokio::test]
async fn uses_a_proxy_except_for_the_metadata_server() {
    for (no_proxy, is_used) in [("", true), ("example.com", true), ("127.0.0.0/8", false), ("127.0.0.1", false)] {
        let (google, proxy) = (Server::start().await.unwrap(), CountingProxy::start().await);
        let defaults = Defaults { workload_identity: true, ..Defaults::of(&google) };
        let gcs = Gcs::new(defaults, proxy.proxies(&[("NO_PROXY", no_proxy)]));
        let mut request = Fixture::new().await.request("photos", &[]);
        request.secrets = Default::default();
        drop(request.provision(&gcs).await.unwrap());
        let lines = proxy.first_lines();
        assert_eq!(!lines.is_empty(), is_used, "{no_proxy}: {lines:?}");
        // Both APIs have one address here, so they share a client and its connection.
        assert!(lines.len() <= 1, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("/storage/v1/")), "{lines:?}");
        assert!(google.count("GET /computeMetadata/v1/") > 0);
    }
}

#[tokio::test]
async fn exchanges_keys_through_a_proxy() {
    let (fixture, proxy) = (Fixture::new().await, CountingProxy::start().await);
    let gcs = Gcs::new(Defaults::of(&fixture.google), proxy.proxies(&[]));
    drop(fixture.request("photos", &[]).provision(&gcs).await.unwrap());
    let first = proxy.first_lines().remove(0);
    assert_eq!(first, format!("POST {}/token", fixture.google.endpoint));
}

#[tokio::test]
async fn tunnels_tls_and_trusts_only_configured_certificates() {
    let (acceptor, certificate) = tls();
    let found = "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 5\r\n\r\nhello".to_owned();
    let address = server(found, Some(acceptor)).await;
    let (url, proxy) = (format!("https://{address}"), CountingProxy::start().await);
    let google = client(&url, Some(&certificate), proxy.proxies(&[]));
    for _ in 0..3 {
        let answer = google.send(get("/x?y=z")).await.unwrap();
        // The request is not sent anywhere else.
        assert_eq!((answer.status, &answer.body[..]), (302, &b"hello"[..]));
    }
    assert_eq!(proxy.first_lines(), [format!("CONNECT {address}")]);
    let head = proxy.heads.lock().unwrap()[0].to_lowercase();
    assert!(head.contains("proxy-authorization: basic dxnlcjpwqhnzd29yza=="), "{head}");

    let (_, other) = tls();
    for ca_bundle in [Some(other.as_str()), None] {
        let error = client(&url, ca_bundle, Proxies::default()).send(get("/")).await.unwrap_err();
        assert!(matches!(&error, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{error}");
    }
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let clients = Clients::new(Proxies::default(), Duration::from_secs(5));
        let error = clients.get(&url, Some(broken.into())).err().unwrap();
        assert!(error.starts_with("the CA bundle cannot be used: "), "{error}");
    }
}

#[tokio::test]
async fn proxy_errors_contain_no_passwords() {
    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n".to_owned();
    for address in [server(refusal, None).await, "127.0.0.1:1".to_owned()] {
        let proxy = CountingProxy { address, heads: Arc::default() };
        let google = client("https://storage.example.com", None, proxy.proxies(&[]));
        let text = google.send(get("/b/secret-name")).await.unwrap_err().to_string();
        assert!(text.starts_with("https://storage.example.com cannot be reached: "), "{text}");
        assert!(text.contains("HTTPS_PROXY") && !text.contains("ssword") && !text.contains("secret"), "{text}");
    }
    for (name, value) in [("HTTPS_PROXY", "socks5://user:p@proxy:1080"), ("HTTP_PROXY", "http://user:p@")] {
        let error = Proxies::of(|other| if other == name { value.to_owned() } else { String::new() }).err().unwrap();
        assert_eq!(error, format!("{name} is not a valid proxy URL: expected http://host:port"));
    }
    assert!(Proxies::of(|_| "proxy.example.com:3128".to_owned()).is_ok());
}

#[tokio::test]
async fn limits_length_and_time_of_responses() {
    let long = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length));
    for (length, fits) in [(8 << 20, true), ((8 << 20) + 1, false)] {
        let url = format!("http://{}", server(long(length), None).await);
        let answer = client(&url, None, Proxies::default()).send(get("/")).await;
        let too_long = format!("{url} answered with more than 8388608 bytes");
        let expected = if fits { Ok(length) } else { Err(too_long) };
        assert_eq!(answer.map(|answer| answer.body.len()).map_err(|error| error.to_string()), expected);
    }
    // The server announces more bytes than it sends.
    let url = format!("http://{}", server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_owned(), None).await);
    let silent = Clients::new(Proxies::default(), Duration::from_millis(200)).get(&url, None).unwrap();
    assert_eq!(silent.send(get("/")).await.unwrap_err().to_string(), format!("{url} did not answer within 200ms"));
}

#[tokio::test]
async fn does_not_take_a_404_of_a_proxy_for_a_missing_bucket() {
    let fixture = Fixture::new().await;
    let missing = server("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), None).await;
    let endpoint = format!("http://{missing}").parse().unwrap();
    let gcs = Gcs::new(Defaults { endpoint, ..Defaults::of(&fixture.google) }, Proxies::default());
    let request = fixture.request("photos", &[]);
    for failed in [request.delete(&gcs).await, request.revoke(&gcs).await] {
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("answered 404, which is not a response from Google"), "{text}");
    }
}

#[tokio::test]
async fn rejects_invalid_urls_and_paths() {
    let clients = Clients::new(Proxies::default(), Duration::from_secs(5));
    for url in ["", "storage", "ftp://host", "http://", "https://host?x=y", "https://user:secret@host"] {
        let error = clients.get(url, None).err().unwrap();
        assert!(error.contains("is not a valid endpoint URL") && !error.contains("secret"), "{error}");
    }
    let google = Server::start().await.unwrap();
    let client = clients.get(&google.endpoint, None).unwrap();
    for path in ["/storage/v1/b/photos/o/..", "/storage/v1/b/photos/o/%2E%2e?generation=1", "/storage/v1/b/./o"] {
        assert!(matches!(client.send(get(path)).await, Err(Error::Request(_))), "{path}");
    }
    client.send(get("/storage/v1/b/a%2F..%2Fb/o/%25..%2F")).await.unwrap();
    assert_eq!(google.model().log, ["GET /storage/v1/b/a%2F..%2Fb/o/%25..%2F"]);
}
