//! The trace of a cluster: its requests with their results, recorded as they happen and rendered on demand.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use crate::request::{Content, Request, Subresource, Verb};
use crate::resource::Resource;
use crate::status::Status;
use crate::verbs::Answer;

/// The trace of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<Vec<TraceEntry>>);

#[derive(Debug)]
struct TraceEntry {
    /// Time since the cluster was built.
    at: Duration,
    content: TraceContent,
}

#[derive(Debug)]
enum TraceContent {
    Request(RequestInfo, Outcome),
    Note(String),
}

/// The part of a request that the trace shows.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    user: Arc<str>,
    verb: Verb,
    resource: Arc<Resource>,
    subresource: Option<Subresource>,
    namespace: String,
    name: String,
    /// The body of a create, if only the body contains the name.
    body: Bytes,
}

#[derive(Debug)]
enum Outcome {
    /// The request succeeded. The version is the resourceVersion of the answer, empty if there is none.
    Done {
        code: u16,
        version: String,
    },
    Refused {
        code: u16,
        reason: &'static str,
        message: String,
    },
    /// A fault hit the request.
    Fault(String),
}

impl Trace {
    /// Records an answer.
    pub(crate) fn answered(&self, at: Duration, mut request: RequestInfo, answer: &Result<Answer, Status>) {
        let outcome = match answer {
            Ok(Answer::Watch(_)) => Outcome::Done { code: 200, version: String::new() },
            Ok(Answer::Object { code, object, .. }) => {
                if request.verb == Verb::Create {
                    object.name().clone_into(&mut request.name);
                    request.body.clear();
                }
                Outcome::Done { code: *code, version: object.resource_version().to_string() }
            }
            Ok(Answer::Document { code, json }) => {
                let head = Metadata::of(json);
                if request.verb == Verb::Create {
                    request.name = head.name;
                    request.body.clear();
                }
                Outcome::Done { code: *code, version: head.resource_version }
            }
            Err(refused) => {
                Outcome::Refused { code: refused.code, reason: refused.reason, message: refused.message.clone() }
            }
        };
        self.push(at, TraceContent::Request(request.named(), outcome));
    }

    /// Records a fault.
    pub(crate) fn fault(&self, at: Duration, request: RequestInfo, fault: impl fmt::Display) {
        self.push(at, TraceContent::Request(request.named(), Outcome::Fault(fault.to_string())));
    }

    /// Records a note.
    pub(crate) fn note(&self, at: Duration, text: String) {
        self.push(at, TraceContent::Note(text));
    }

    /// Returns the trace as text, a line for each entry.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for TraceEntry { at, content } in self.lock().iter() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:>12.6} {content}", at.as_secs_f64());
        }
        text
    }

    fn push(&self, at: Duration, content: TraceContent) {
        self.lock().push(TraceEntry { at, content });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TraceEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestInfo {
    /// Fills in the name from the body of a create.
    fn named(mut self) -> Self {
        if !self.body.is_empty() {
            self.name = Metadata::of(&std::mem::take(&mut self.body)).name;
        }
        self
    }
}

impl From<&Request> for RequestInfo {
    fn from(request: &Request) -> Self {
        let (mut name, mut body) = (request.name.clone(), Bytes::new());
        if request.verb == Verb::Create {
            match &request.content {
                Content::Json(json) => body = json.clone(),
                Content::Value(object) => crate::object::name(object).clone_into(&mut name),
                _ => {}
            }
        }
        Self {
            user: Arc::clone(&request.user),
            verb: request.verb,
            resource: Arc::clone(&request.resource),
            subresource: request.subresource,
            namespace: request.namespace.clone(),
            name,
            body,
        }
    }
}

/// The fields of an object or a list that the trace shows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

impl Metadata {
    fn of(json: &[u8]) -> Self {
        serde_json::from_slice::<Head>(json).unwrap_or_default().metadata
    }
}

impl fmt::Display for TraceContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(request, outcome) => write!(f, "{request}: {outcome}"),
            Self::Note(text) => write!(f, "-- {text}"),
        }
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.user, self.verb.as_str(), self.resource.group_resource())?;
        if let Some(part) = self.subresource {
            write!(f, "/{}", part.as_str())?;
        }
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { code, version } if version.is_empty() => write!(f, "{code}"),
            Self::Done { code, version } => write!(f, "{code} rv {version}"),
            Self::Refused { code, reason, message } => write!(f, "{code} {reason}: {}", first_line(message)),
            Self::Fault(fault) => write!(f, "! {fault}"),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
