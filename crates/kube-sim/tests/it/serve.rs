//! The simulated API on a port.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use kube::api::{DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Config};
use kube_sim::Cluster;
use kube_sim::serve::{Error, Server, Transport};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod answers;
mod callers;
mod discovery;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A running server.
struct Served {
    cluster: Cluster,
    url: String,
    admin_token: String,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    async fn new(cluster: Cluster) -> Self {
        let server = Server::bind(cluster.clone(), ANY_PORT, Transport::Http).await.unwrap();
        let (url, admin_token) = (server.url(), server.admin_token().to_owned());
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = ended.await;
        }));
        Self { cluster, url, admin_token, end, task }
    }

    /// Returns a client with or without a token.
    fn client(&self, token: Option<&str>) -> Client {
        let mut config = Config::new(self.url.parse().unwrap());
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Client::try_from(config).unwrap()
    }

    /// Returns the answer to a request: status, content type and text.
    async fn ask(&self, request: http::request::Builder, body: &str) -> (u16, String, String) {
        let request = request.body(kube::client::Body::from(body.as_bytes().to_vec())).unwrap();
        let response = self.client(None).send(request).await.unwrap();
        let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
        let code = response.status().as_u16();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (code, content_type.unwrap_or_default(), String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn get(&self, path: &str, accept: &str) -> (u16, Value) {
        let request = http::Request::get(path).header(ACCEPT, accept);
        let (code, _, text) = self.ask(request, "").await;
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

fn settings(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "1"}})
}

#[tokio::test]
async fn rejects_non_loopback_addresses() {
    let address: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let error = Server::bind(Cluster::new(), address, Transport::Http).await.unwrap_err();
    assert!(matches!(error, Error::NotLoopback(_)));
    let expected = "0.0.0.0:0 is not a loopback address: the simulated API must not be reachable from other machines";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn serves_objects_and_watches() {
    let served = Served::new(Cluster::new()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client(None));
    let mut changes = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    served.cluster.create(&settings("inside")).unwrap();
    let object = serde_json::from_value(settings("outside")).unwrap();
    maps.create(&PostParams::default(), &object).await.unwrap();
    for expected in ["inside", "outside"] {
        match changes.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => assert_eq!(map.metadata.name.as_deref(), Some(expected)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn shutdown_closes_watches_and_refuses_connections() {
    let served = Served::new(Cluster::new()).await;
    let client = served.client(None);
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut changes = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    served.end.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), served.task).await.expect("the server stops").unwrap();
    assert!(matches!(changes.next().await, None | Some(Err(_))));
    assert!(maps.list(&ListParams::default()).await.is_err());
}

#[tokio::test]
async fn kubeconfig_is_sufficient_for_a_client() {
    use std::os::unix::fs::PermissionsExt as _;

    for transport in [Transport::Http, Transport::Https] {
        let server = Server::bind(Cluster::builder().rbac().build(), ANY_PORT, transport).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        server.write_kubeconfig(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        tokio::spawn(server.run(std::future::pending()));
        let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        let volumes: Api<PersistentVolume> = Api::all(Client::try_from(config).unwrap());
        assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), 0);
    }
}
