//! Objects written to etcd: creating hundreds of thousands with requests to the API server would take longer than
//! measuring them.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::control_plane::State;

pub(crate) struct Etcd(pub(crate) Client);

impl Etcd {
    pub(crate) fn of(state: &State) -> anyhow::Result<Self> {
        let health = state
            .component("etcd")
            .and_then(|etcd| etcd.health.as_ref())
            .context("the control plane does not run etcd")?;
        Ok(Self(Client::try_from(Config::new(health.url.trim_end_matches("/health").parse()?))?))
    }

    pub(crate) async fn read(&self, key: &str) -> anyhow::Result<Vec<u8>> {
        let answer = self.call("range", json!({"key": STANDARD.encode(key)})).await?;
        let value = answer["kvs"][0]["value"].as_str().with_context(|| format!("etcd has no {key}"))?;
        Ok(STANDARD.decode(value)?)
    }

    pub(crate) async fn write(&self, key: &str, object: &[u8]) -> anyhow::Result<()> {
        self.call("put", json!({"key": STANDARD.encode(key), "value": STANDARD.encode(object)})).await.map(drop)
    }

    async fn call(&self, method: &str, body: Value) -> anyhow::Result<Value> {
        let request = Request::post(format!("/v3/kv/{method}")).body(serde_json::to_vec(&body)?)?;
        Ok(self.0.request(request).await?)
    }
}

/// Replaces texts in a stored object with texts of the same length, because Protobuf stores each text's length.
pub(crate) fn replace(object: &mut [u8], texts: &[(&str, &str)]) {
    for (text, replacement) in texts {
        assert_eq!(text.len(), replacement.len(), "{text} and {replacement}");
        for at in 0..=object.len().saturating_sub(text.len()) {
            if object[at..].starts_with(text.as_bytes()) {
                object[at..at + text.len()].copy_from_slice(replacement.as_bytes());
            }
        }
    }
}
