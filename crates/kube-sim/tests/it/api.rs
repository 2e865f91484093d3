//! Tests of the API through a `kube::Client`, apart from the behaviour that `testbed/scenarios` records.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use kube_runtime::watcher;
use kube_sim::{ChangeKind, Cluster};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::refusal;

mod custom;
mod deletion;
mod disturbed;
mod lists;
mod watches;
mod writes;

/// Reads a typed object from JSON.
fn from<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the test's own object")
}

fn volume(name: &str) -> PersistentVolume {
    from(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "s", "path": "/p"},
        },
    }))
}

fn settings(name: &str) -> ConfigMap {
    from(json!({"metadata": {"name": name}, "data": {"a": "1"}}))
}

/// Returns the next item of a stream, which must be available without delay.
async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    let next = tokio::time::timeout(Duration::from_secs(5), stream.next()).await;
    next.expect("the stream yielded nothing").expect("the stream ended")
}

/// Returns the raw answer to a request.
async fn raw(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).body(kube::client::Body::from(body)).unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
