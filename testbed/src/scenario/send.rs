//! Requests with full control over HTTP, and watches that return events as they arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::timeout;

/// The limit for a response, far longer than any takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Vec<u8>>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The body, as a string if it is not JSON.
    pub(super) body: Value,
}

/// An open watch, as a stream of lines.
pub(super) struct Watch {
    lines: futures::stream::BoxStream<'static, std::io::Result<String>>,
}

/// Sends a request and waits for the complete response.
pub(super) async fn send(client: &Client, request: &Request) -> anyhow::Result<Answer> {
    let (status, body) = start(client, request).await?;
    let bytes = timeout(LIMIT, body.collect()).await.context("an answer does not end")??.to_bytes();
    Ok(Answer { status, body: parse(&bytes) })
}

/// Opens a watch; a response that is not a watch is returned as such.
pub(super) async fn watch(client: &Client, request: &Request) -> anyhow::Result<Result<Watch, Answer>> {
    let (status, body) = start(client, request).await?;
    if status != 200 {
        let bytes = timeout(LIMIT, body.collect()).await.context("an answer does not end")??.to_bytes();
        return Ok(Err(Answer { status, body: parse(&bytes) }));
    }
    let lines = body.into_data_stream().map_err(std::io::Error::other).into_async_read().lines();
    Ok(Ok(Watch { lines: lines.boxed() }))
}

impl Watch {
    /// The next event; `None` when the server ended the watch.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        let line = timeout(LIMIT, self.lines.next()).await.context("no further event")?;
        let Some(line) = line else { return Ok(None) };
        Ok(Some(parse(line?.as_bytes())))
    }
}

async fn start(client: &Client, request: &Request) -> anyhow::Result<(u16, Body)> {
    let mut built = http::Request::builder().method(&request.method).uri(uri(request));
    for (name, value) in &request.headers {
        built = built.header(name, value);
    }
    let built = built.body(request.body.clone().map_or_else(Body::empty, Body::from))?;
    let answer = timeout(LIMIT, client.send(built)).await.context("no answer")??;
    let (head, body) = answer.into_parts();
    Ok((head.status.as_u16(), body))
}

fn uri(request: &Request) -> String {
    let pairs = request.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    match pairs.collect::<Vec<_>>().join("&") {
        query if query.is_empty() => request.path.clone(),
        query => format!("{}?{query}", request.path),
    }
}

fn encode(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}
