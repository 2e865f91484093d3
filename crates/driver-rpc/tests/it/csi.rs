//! Tests of the client and the server over a real socket.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use driver_rpc::csi::*;
use driver_rpc::{Address, Client, Code, Error, Secrets, Server, Status};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const FULL: &str = "100% full: ü\n\"no\"";
/// Longer than hyper's default limit.
const LONG: usize = 100_000;

/// A driver whose behaviour depends on the requested volume's name.
#[derive(Clone, Default)]
struct Driver {
    asked: Arc<Mutex<Vec<String>>>,
    abandoned: Arc<Mutex<usize>>,
    probes: Arc<Mutex<usize>>,
}

impl Identity for Driver {
    async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        Ok(GetPluginInfoResponse { name: "example.com".into(), ..Default::default() })
    }

    async fn probe(&self, _: ProbeRequest) -> Result<ProbeResponse, Error> {
        let mut probes = self.probes.lock().unwrap();
        *probes += 1;
        Ok(ProbeResponse { ready: (*probes < 2).then_some(false) })
    }
}

impl Controller for Driver {
    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        self.asked.lock().unwrap().push(request.name.clone());
        let mut volume = Volume { volume_id: request.name.clone(), ..Default::default() };
        match request.name.as_str() {
            "full" => return Err(Status::new(Code::ResourceExhausted, FULL).into()),
            "small" => return Err(Status::out_of_range("at least 1 GiB").into()),
            "leaky" => return Err(Status::internal("mount -o password=hunter2: denied").into()),
            "wordy" => return Err(Status::aborted("x".repeat(LONG)).into()),
            "hang" => {
                let _guard = Abandoned(self.abandoned.clone());
                std::future::pending::<()>().await;
            }
            "large" => volume.volume_context.extend([("x".to_owned(), "x".repeat(5 << 20))]),
            "secret" => assert_eq!(request.secrets.get("password"), Some("hunter2")),
            _ => {}
        }
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }
}

impl Node for Driver {}

struct Abandoned(Arc<Mutex<usize>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

struct TestServer {
    folder: tempfile::TempDir,
    driver: Driver,
    served: Option<JoinHandle<()>>,
}

impl TestServer {
    fn new() -> Self {
        let mut server = Self { folder: tempfile::tempdir().unwrap(), driver: Driver::default(), served: None };
        server.start();
        server
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    fn start(&mut self) {
        let (server, driver) = (Server::bind(&self.path()).unwrap(), self.driver.clone());
        self.served = Some(tokio::spawn(async move {
            server.csi(driver).serve().await.unwrap();
        }));
    }

    async fn stop(&mut self) {
        let served = self.served.take().unwrap();
        served.abort();
        let _ = served.await;
    }

    fn client(&self) -> Client {
        Client::new(self.path().to_str().unwrap().parse().unwrap())
    }
}

fn volume(name: &str) -> CreateVolumeRequest {
    CreateVolumeRequest { name: name.into(), ..Default::default() }
}

#[tokio::test]
async fn responses_and_errors_arrive_intact() {
    let server = TestServer::new();
    let client = server.client();
    wait_until_ready(&client).await.unwrap();
    assert_eq!(*server.driver.probes.lock().unwrap(), 2);
    assert_eq!(client.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().name, "example.com");
    assert_eq!(client.create_volume(volume("one")).await.unwrap().volume.unwrap().volume_id, "one");
    let refused = async |name: &str| match client.create_volume(volume(name)).await.unwrap_err() {
        Error::Status(status) => (status.code(), status.message().to_owned()),
        other => panic!("{other}"),
    };
    assert_eq!(refused("full").await, (Code::ResourceExhausted, FULL.to_owned()));
    assert_eq!(refused("small").await, (Code::OutOfRange, "at least 1 GiB".to_owned()));
    assert_eq!(refused("wordy").await, (Code::Aborted, "x".repeat(LONG)));
}

#[tokio::test]
async fn missing_methods_return_unimplemented() {
    let server = TestServer::new();
    let client = server.client();
    macro_rules! unimplemented_calls {
        ($($method:ident)*) => {
            $(
                let error = client.$method(Default::default()).await.map(|_| ()).unwrap_err();
                assert!(matches!(&error, Error::Status(status) if status.code() == Code::Unimplemented), "{error}");
                let path = error.to_string().to_lowercase();
                assert!(path.ends_with(&format!("/{}", stringify!($method).replace('_', ""))), "{error}");
            )*
        };
    }
    unimplemented_calls! {
        get_plugin_capabilities delete_volume controller_publish_volume controller_unpublish_volume validate_volume_capabilities
        list_volumes get_capacity controller_get_capabilities create_snapshot delete_snapshot list_snapshots get_snapshot
        controller_expand_volume controller_get_volume controller_modify_volume node_stage_volume node_unstage_volume
        node_publish_volume node_unpublish_volume node_get_volume_stats node_expand_volume node_get_capabilities node_get_info
    }
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_on_both_sides() {
    let server = TestServer::new();
    let client = server.client().with_timeout(Duration::from_millis(200));
    let error = client.create_volume(volume("hang")).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    eventually(|| *server.driver.abandoned.lock().unwrap() == 1).await;
}

/// grpc-go behaves this way.
#[tokio::test]
async fn reset_at_the_deadline_counts_as_a_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let (_folder, address) = foreign(|| {
        std::thread::sleep(TIMEOUT);
        Err::<Response<Full<Bytes>>, _>("reset")
    });
    let client = Client::new(address).with_timeout(TIMEOUT);
    let call = tokio::spawn(async move { client.create_volume(volume("one")).await });
    // The request is sent, and when this thread continues, the reset has arrived before the timer has fired.
    tokio::time::sleep(TIMEOUT / 2).await;
    std::thread::sleep(TIMEOUT);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
    assert_eq!(error.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn status_in_trailers_is_used() {
    let (_folder, address) = foreign(|| {
        let trailers = [("grpc-status", "8"), ("grpc-message", "full%21")];
        let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let message = Full::new(Bytes::from_static(&[0; 5]));
        Ok(Response::new(message.with_trailers(std::future::ready(Some(Ok(trailers.into_iter().collect()))))))
    });
    let error = Client::new(address).create_volume(volume("one")).await.unwrap_err();
    assert!(matches!(&error, Error::Status(status) if status.message() == "full!"), "{error}");
    assert_eq!(error.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_client_survives_a_restart_of_the_driver() {
    let mut server = TestServer::new();
    let client = server.client();
    client.probe(ProbeRequest {}).await.unwrap();
    let reconnected = client.reconnected();
    let hanging = tokio::spawn({
        let client = client.clone();
        async move { client.create_volume(volume("hang")).await }
    });
    eventually(|| !server.driver.asked.lock().unwrap().is_empty()).await;
    server.stop().await;
    let error = hanging.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Interrupted(_)), "{error}");
    assert_eq!(error.code(), Code::Unavailable);

    let error = client.create_volume(volume("one")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");

    server.start();
    client.create_volume(volume("one")).await.unwrap();
    timeout(Duration::from_secs(5), reconnected).await.unwrap();
    timeout(Duration::from_millis(100), client.reconnected()).await.unwrap_err();
}

#[tokio::test]
async fn too_large_response_is_not_a_driver_status() {
    let server = TestServer::new();
    let error = server.client().create_volume(volume("large")).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 4194304 }), "{error}");
    assert_eq!(error.code(), Code::ResourceExhausted);
    server.client().with_receive_limit(6 << 20).create_volume(volume("large")).await.unwrap();
}

#[tokio::test]
async fn malformed_response_is_not_a_driver_status() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("csi.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.unwrap();
        }
    });
    let client = Client::new(path.to_str().unwrap().parse().unwrap()).with_timeout(Duration::from_secs(2));
    let error = client.create_volume(volume("one")).await.unwrap_err();
    assert!(!matches!(error, Error::Status(_)), "{error}");
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

#[tokio::test]
async fn log_contains_no_secrets() {
    let server = TestServer::new();
    // If another test reaches a log statement for the first time just as a subscriber is added, `tracing` disables it.
    server.client().create_volume(volume("first")).await.unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let secrets = Secrets::from_iter([("password", "hunter2")]);
    server.client().create_volume(CreateVolumeRequest { secrets, ..volume("secret") }).await.unwrap();

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("***stripped***"), "{log}");
    assert!(!log.contains("hunter2") && !log.contains("password"), "{log}");
}

#[tokio::test]
async fn request_secrets_are_removed_from_driver_messages() {
    let secrets = Secrets::from_iter([("password", "hunter2")]);
    let create = CreateVolumeRequest { secrets, ..volume("leaky") };
    let error = TestServer::new().client().create_volume(create).await.unwrap_err();
    assert_eq!(error.to_string(), "Internal: mount -o password=***stripped***: denied");
}

#[tokio::test]
async fn metrics_match_the_sidecars() {
    let server = TestServer::new();
    let mut registry = prometheus_client::registry::Registry::default();
    let operations = Operations::default();
    operations.register(&mut registry);
    let client = server.client().with_observer(operations.clone());
    client.get_plugin_info(GetPluginInfoRequest {}).await.unwrap();
    operations.set_driver_name("example.com");
    client.create_volume(volume("full")).await.unwrap_err();

    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
    for line in [
        r#"csi_sidecar_operations_seconds_count{driver_name="unknown-driver",method_name="/csi.v1.Identity/GetPluginInfo",grpc_status_code="OK"} 1"#,
        r#"csi_sidecar_operations_seconds_count{driver_name="example.com",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="ResourceExhausted"} 1"#,
    ] {
        assert!(page.contains(line), "{page}");
    }
}

/// Starts a foreign server on a separate thread.
fn foreign<B>(answer: fn() -> Result<Response<B>, &'static str>) -> (tempfile::TempDir, Address)
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("csi.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let (stream, _) = tokio::net::UnixListener::from_std(listener).unwrap().accept().await.unwrap();
            let service = service_fn(|_: Request<Incoming>| std::future::ready(answer()));
            let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    });
    let address = path.to_str().unwrap().parse().unwrap();
    (folder, address)
}

async fn eventually(mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("in time");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
