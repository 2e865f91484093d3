//! Reads the lines of a watch.
//!
//! The client's own reader parses an object twice when its text is wanted, once to find its end, and copies the text
//! several times. Here the end is known: the server writes `{"type":"ADDED","object":{…}}`.

use std::error::Error;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::WatchEvent;
use kube::core::DynamicObject;
use kube::core::request::Error as BuildError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep, sleep};

use super::SILENCE;

/// An object that a watch delivers.
pub trait FromJson: DeserializeOwned {
    /// Reads the object.
    ///
    /// # Errors
    ///
    /// Fails if the JSON does not describe such an object.
    fn from_json(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }
}

impl FromJson for ConfigMap {}
impl FromJson for Secret {}

impl FromJson for DynamicObject {
    /// Leaves out `managedFields`: their many small parts fragment the heap, which then keeps megabytes after a list of
    /// thousands of nodes.
    fn from_json(json: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            metadata: Metadata<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            #[serde(borrow)]
            managed_fields: Option<&'a RawValue>,
        }
        match serde_json::from_str::<Object<'_>>(json)?.metadata.managed_fields {
            Some(fields) => serde_json::from_str(&json.replacen(fields.get(), "null", 1)),
            None => serde_json::from_str(json),
        }
    }
}

pub(crate) struct Reader<T> {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    /// The start of the next line, if waiting for the rest was cancelled.
    line: Vec<u8>,
    last_read: Instant,
    /// Reset when it elapses, not with each event.
    silence: Pin<Box<Sleep>>,
    objects: PhantomData<fn() -> T>,
}

impl<T: FromJson> Reader<T> {
    pub(crate) async fn open(client: &Client, request: Result<Request<Vec<u8>>, BuildError>) -> kube::Result<Self> {
        let body = Box::pin(client.request_stream(request.map_err(kube::Error::BuildRequest)?).await?);
        let (last_read, silence) = (Instant::now(), Box::pin(sleep(SILENCE)));
        Ok(Self { body, line: Vec::new(), last_read, silence, objects: PhantomData })
    }

    /// Returns the next event; `None` if the server has ended the watch, or was silent for [`SILENCE`].
    pub(crate) async fn next(&mut self) -> Option<kube::Result<WatchEvent<T>>> {
        let read_line = loop {
            tokio::select! {
                biased;
                read_line = self.body.read_until(b'\n', &mut self.line) => break read_line,
                () = self.silence.as_mut() => match self.last_read + SILENCE {
                    end if end <= Instant::now() => return None,
                    end => self.silence.as_mut().reset(end),
                }
            }
        };
        self.last_read = Instant::now();
        let event = match read_line {
            Ok(_) if self.line.ends_with(b"\n") => Some(read(&self.line).map_err(kube::Error::SerdeError)),
            // The connection ended, within a line or between two.
            Ok(_) => None,
            Err(error) if is_end(&error) => None,
            Err(error) => Some(Err(kube::Error::ReadEvents(error))),
        };
        self.line.clear();
        event
    }
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn read<T: FromJson>(line: &[u8]) -> serde_json::Result<WatchEvent<T>> {
    let line = str::from_utf8(line).map_err(serde::de::Error::custom)?;
    let (kind, object) = match split(line) {
        Some(parts) => parts,
        None => {
            let RawEvent { kind, object } = serde_json::from_str(line)?;
            (kind, object.get())
        }
    };
    Ok(match kind {
        "ADDED" => WatchEvent::Added(T::from_json(object)?),
        "MODIFIED" => WatchEvent::Modified(T::from_json(object)?),
        "DELETED" => WatchEvent::Deleted(T::from_json(object)?),
        "BOOKMARK" => WatchEvent::Bookmark(serde_json::from_str(object)?),
        "ERROR" => WatchEvent::Error(serde_json::from_str(object)?),
        other => return Err(serde::de::Error::custom(format_args!("unknown type of watch event {other:?}"))),
    })
}

/// Splits a line into type and object, as the server writes it.
fn split(line: &str) -> Option<(&str, &str)> {
    let parts = line.trim_end().strip_prefix(r#"{"type":""#)?.strip_suffix('}')?;
    parts.split_once(r#"","object":"#)
}

/// Returns true if a connection was closed rather than broken. The chunk decoder shows this only in its message.
fn is_end(error: &io::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        let is_cut = io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if is_cut || error.to_string().contains("unexpected EOF during chunk") {
            return true;
        }
        // Such an error does not return its inner error as its source.
        let inner = io.and_then(io::Error::get_ref).map(|inner| inner as _);
        next = inner.or_else(|| error.source());
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    impl FromJson for Value {}

    #[test]
    fn reads_lines_regardless_of_formatting() {
        let object = json!({"a": {"b": "}\",\"object\":"}});
        for line in [
            format!(r#"{{"type":"MODIFIED","object":{object}}}"#) + "\n",
            format!(r#" {{ "object" : {object} , "type" : "MODIFIED" }} "#),
        ] {
            let event = read::<Value>(line.as_bytes()).unwrap();
            assert!(matches!(&event, WatchEvent::Modified(read) if *read == object), "{line}");
        }
        let bookmark =
            br#"{"type":"BOOKMARK","object":{"kind":"A","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}"#;
        let event = read::<Value>(bookmark).unwrap();
        assert!(matches!(event, WatchEvent::Bookmark(bookmark) if bookmark.metadata.resource_version == "7"));
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(read::<Value>(gone).unwrap(), WatchEvent::Error(status) if status.code == 410));
        for line in [&b"{}"[..], b"", b"\xff", br#"{"type":"NEW","object":{}}"#, br#"{"type":"ADDED","object":{]}"#] {
            assert!(read::<Value>(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn objects_are_read_without_managed_fields() {
        let mut object = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}], "uid": "u"}, "spec": {"a": 1}});
        let read = DynamicObject::from_json(&object.to_string()).unwrap();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(serde_json::to_value(&read).unwrap(), object);
        assert_eq!(serde_json::to_value(DynamicObject::from_json(&object.to_string()).unwrap()).unwrap(), object);
    }

    #[test]
    fn closed_connection_is_not_a_failure() {
        let chunk = io::Error::other("error reading a body: unexpected EOF during chunk size line");
        let nested = io::Error::other(io::Error::from(io::ErrorKind::UnexpectedEof));
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!([chunk, nested, broken].map(|error| is_end(&error)), [true, true, false]);
    }
}
