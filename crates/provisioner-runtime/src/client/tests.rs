//! Connections to servers that respond in various ways, and the messages that users see.

use std::io::Write as _;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tempfile::{NamedTempFile, TempDir};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::testing::{client, object, refusal};
use crate::{CallError, call};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const DENIED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized";
const TOKEN: &str = "a-secret-token";

#[tokio::test]
async fn connects_to_a_server_that_responds() {
    let file = kubeconfig(&format!("server: {}", serve(OK).await));
    let connection = connect(Some(file.path())).await.unwrap();
    assert_eq!(connection.namespace, "here");
    assert_eq!(connection.source, format!("the kubeconfig {}", file.path().display()));
}

#[test]
fn kubectl_in_a_pod_prefers_the_kubeconfig_in_the_home_directory() {
    let home = TempDir::new().unwrap();
    let sources = || ConfigSources { kubeconfig: None, in_pod: true, home: Some(home.path().to_owned()) };
    let context = KubeConfigOptions { context: Some("prod".to_owned()), ..KubeConfigOptions::default() };
    assert!(sources().for_kubectl(&KubeConfigOptions::default()).in_pod);
    assert!(!sources().for_kubectl(&context).in_pod);
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::write(home.path().join(".kube/config"), "").unwrap();
    assert!(!sources().for_kubectl(&KubeConfigOptions::default()).in_pod);
}

#[tokio::test]
async fn connects_to_an_address_that_overrides_the_kubeconfig() {
    let file = kubeconfig("server: http://127.0.0.1:1");
    for (kubeconfig, namespace) in [(Some(file.path()), "here"), (None, "default")] {
        let server: Uri = serve(OK).await.parse().unwrap();
        assert_eq!(connect_to(&server, kubeconfig).await.unwrap().namespace, namespace);
    }
    let error = connect_to(&Uri::from_static("http://127.0.0.1:1"), None).await.err().unwrap().to_string();
    assert!(error.starts_with("The API server http://127.0.0.1:1/ of the command line cannot be reached: "), "{error}");
}

#[tokio::test]
async fn rejected_credentials_are_reported_in_one_line() {
    let server = serve(DENIED).await;
    let file = kubeconfig(&format!("server: {server}"));
    let text = refused(file.path()).await;
    let expected = format!(
        "The API server {server}/ does not accept the credentials of the kubeconfig {}: \
         Unauthorized. Renew them.",
        file.path().display()
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn unreachable_server_is_reported_in_one_line() {
    let file = kubeconfig("server: http://127.0.0.1:1");
    let text = refused(file.path()).await;
    assert!(text.starts_with("The API server http://127.0.0.1:1/ of the kubeconfig /"), "{text}");
    assert!(text.contains("cannot be reached: "), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn untrusted_certificate_is_reported_in_one_line() {
    let (server, authority) = serve_tls("localhost").await;
    let (_, other) = serve_tls("localhost").await;
    let file = kubeconfig(&with_authority(&server, &authority));
    connect(Some(file.path())).await.unwrap();

    let file = kubeconfig(&with_authority(&server, &other));
    let text = refused(file.path()).await;
    assert!(text.starts_with(&format!("The API server {server}/ of the kubeconfig /")), "{text}");
    assert!(text.contains("is not trusted: "), "{text}");

    let (server, authority) = serve_tls("elsewhere").await;
    let file = kubeconfig(&with_authority(&server, &authority));
    let text = refused(file.path()).await;
    assert!(text.contains("is not trusted: "), "{text}");
}

#[tokio::test]
async fn invalid_kubeconfig_is_reported_without_its_token() {
    let missing = Path::new("/does/not/exist");
    let text = refused(missing).await;
    assert!(text.starts_with("The kubeconfig /does/not/exist cannot be used: "), "{text}");
    assert!(text.ends_with(" Correct it, or name another."), "{text}");

    for content in ["users:\n- name: me\n  user:\n    token: [a-secret-token]\n", "a-secret-token: ["] {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let text = refused(file.path()).await;
        assert!(text.contains(" cannot be used: it is not valid"), "{text}");
    }
}

#[tokio::test]
async fn keeps_retry_after_of_a_busy_server() {
    const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\n\
        retry-after: 7\r\ncontent-length: 26\r\n\r\nToo many requests, for now";
    let file = kubeconfig(&format!("server: {}", serve_each(vec![OK, BUSY]).await));
    let client = connect(Some(file.path())).await.unwrap().client;
    let request = || Request::get("/api").body(Vec::new()).unwrap();
    let error = call(FIRST_ANSWER, client.request_text(request())).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(error.to_string(), "The API server is busy: Too many requests, for now");
    // The client has not retried: the second response was still available.
    assert!(matches!(error, CallError::TooManyRequests { .. }));
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_reported_in_one_line() {
    let silent = client(|_| std::future::pending());
    let text = check(&silent, origin()).await.unwrap_err().to_string();
    let expected = "The API server https://server/ of the pod's service account cannot be reached: \
                    no answer within 10s. Check the address, and that the network lets the \
                    connection through.";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn accepts_an_account_without_discovery_permission() {
    let message = "forbidden: User \"system:serviceaccount:n:a\" cannot get path \"/api\"";
    let server = client(move |_| async move { refusal(403, "Forbidden", message) });
    check(&server, origin()).await.unwrap();
}

#[tokio::test]
async fn rejects_an_anonymous_account() {
    let message = "forbidden: User \"system:anonymous\" cannot get path \"/api\"";
    let server = client(move |_| async move { refusal(403, "Forbidden", message) });
    let error = check(&server, origin()).await.unwrap_err();
    assert!(error.to_string().contains("does not accept the credentials"), "{error}");
}

#[tokio::test]
async fn failing_server_is_reported_in_one_line() {
    let server = client(|_| async { refusal(500, "InternalError", "no\nleader") });
    let text = check(&server, origin()).await.unwrap_err().to_string();
    assert!(text.contains("does not work: no leader. Check the server."), "{text}");
    let server = client(|_| async { object(&serde_json::json!({})) });
    check(&server, origin()).await.unwrap();
}

#[tokio::test]
async fn searches_connection_data_in_the_documented_order() {
    let home = TempDir::new().unwrap();
    let sources =
        |kubeconfig: Option<OsString>, in_pod| ConfigSources { kubeconfig, in_pod, home: Some(home.path().to_owned()) };
    let explicit = kubeconfig("server: http://explicit");
    let named = kubeconfig("server: http://named");
    let named = |pod| sources(Some(named.path().as_os_str().to_owned()), pod);
    assert_eq!(server(&named(true), Some(explicit.path())).await.unwrap(), "http://explicit/");
    assert_eq!(server(&named(true), None).await.unwrap(), "http://named/");

    // This process is not in a pod, so the error shows that the service account was tried.
    let text = server(&sources(None, true), None).await.unwrap_err();
    assert!(text.starts_with("The pod's service account cannot be used: "), "{text}");

    let text = server(&sources(None, false), None).await.unwrap_err();
    assert!(text.starts_with("There is no cluster to connect to: "), "{text}");
    assert!(text.contains(".kube/config does not exist"), "{text}");

    std::fs::create_dir(home.path().join(".kube")).unwrap();
    let file = kubeconfig("server: http://home");
    std::fs::copy(file.path(), home.path().join(".kube/config")).unwrap();
    assert_eq!(server(&sources(None, false), None).await.unwrap(), "http://home/");
}

#[tokio::test]
async fn merges_several_kubeconfigs() {
    let (first, second) = (kubeconfig("server: http://first"), kubeconfig("server: http://second"));
    let paths = [first.path().to_owned(), second.path().to_owned()];
    let (config, source) = from_files(&paths, &KubeConfigOptions::default()).await.unwrap();
    assert_eq!(config.cluster_url, "http://first/");
    let names = paths.map(|path| path.display().to_string());
    assert_eq!(source, format!("the kubeconfig {}", names.join(":")));
}

async fn server(sources: &ConfigSources, explicit: Option<&Path>) -> Result<String, String> {
    match sources.config(explicit, &KubeConfigOptions::default()).await {
        Ok((config, _)) => Ok(config.cluster_url.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Connects, which must fail; returns the message, which must fit one line and contain no token.
async fn refused(kubeconfig: &Path) -> String {
    let Err(error) = connect(Some(kubeconfig)).await else { panic!("connected") };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    assert!(!format!("{error:?} {text}").contains(TOKEN), "{text}");
    text
}

fn origin() -> error::Origin {
    error::Origin { server: "https://server/".to_owned(), source: "the pod's service account".to_owned() }
}

fn kubeconfig(cluster: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    write!(
        file,
        "apiVersion: v1\n\
         kind: Config\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u, namespace: here}}}}]\n\
         users: [{{name: u, user: {{token: {TOKEN}}}}}]\n\
         current-context: x\n"
    )
    .unwrap();
    file
}

fn with_authority(server: &str, authority: &NamedTempFile) -> String {
    format!("server: {server}, certificate-authority: {}", authority.path().display())
}

/// Starts a server that gives this response to each request.
async fn serve(answer: &'static str) -> String {
    serve_each(vec![answer]).await
}

/// Starts a server that gives these responses in turn, and repeats the last one.
async fn serve_each(answers: Vec<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut answers = answers.into_iter().peekable();
        while let Ok((mut stream, _)) = listener.accept().await {
            while read_request(&mut stream).await {
                let Some(answer) = answers.next() else { return };
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    format!("http://{address}")
}

/// Starts a server with a certificate for `name`; returns the authority to trust for it.
async fn serve_tls(name: &str) -> (String, NamedTempFile) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let mut authority = NamedTempFile::new().unwrap();
    authority.write_all(cert.pem().as_bytes()).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                while read_request(&mut stream).await {
                    stream.write_all(OK.as_bytes()).await.unwrap();
                }
            }
        }
    });
    (format!("https://localhost:{port}"), authority)
}

/// Reads until the blank line; returns false if the client has disconnected.
async fn read_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> bool {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return false,
        }
    }
    true
}
