//! What a process gets of objects that it cannot decode: a newer version of Kubernetes may write what an older program does
//! not know, and a custom resource may hold anything.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http_body::Frame;
use kube_sim::{ApiService, Body, object};
use serde_json::Value;

/// The annotation of the objects that cannot be decoded.
pub(crate) const GARBLED: &str = "example.com/garbled";

/// The API as a process sees it.
#[derive(Clone)]
pub(crate) struct Garbled(pub(crate) ApiService);

/// The body of an answer, a watch's too.
pub(crate) struct GarbledBody(Body);

impl<B> tower::Service<http::Request<B>> for Garbled
where
    ApiService: tower::Service<
            http::Request<B>,
            Response = http::Response<Body>,
            Error = io::Error,
            Future = BoxFuture<'static, io::Result<http::Response<Body>>>,
        >,
{
    type Response = http::Response<GarbledBody>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        self.0.call(request).map_ok(|answer| answer.map(GarbledBody)).boxed()
    }
}

impl http_body::Body for GarbledBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.0).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(garbled))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// Documents and events are whole lines.
fn garbled(bytes: Bytes) -> Bytes {
    if !bytes.windows(GARBLED.len()).any(|part| part == GARBLED.as_bytes()) {
        return bytes;
    }
    let mut text = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Ok(mut value) = serde_json::from_slice::<Value>(line) else {
            text.extend_from_slice(line);
            continue;
        };
        garble(&mut value);
        // What was read as JSON can be written as JSON.
        let _ = serde_json::to_writer(&mut text, &value);
        text.push(b'\n');
    }
    text.into()
}

fn garble(value: &mut Value) {
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        return items.iter_mut().for_each(garble);
    }
    if value.get("type").is_some()
        && let Some(object) = value.get_mut("object")
    {
        return garble(object);
    }
    if object::annotation(value, GARBLED).is_none() {
        return;
    }
    let spec = value.get_mut("spec").and_then(Value::as_object_mut);
    for (_, field) in
        spec.into_iter().flatten().filter(|(name, _)| ["accessModes", "capacity"].contains(&name.as_str()))
    {
        *field = Value::from(7);
    }
}
