//! A request, understood: who wants what of which object.

mod options;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use options::{DeleteOptions, Options, Preconditions};
pub(crate) use path::Path;

use crate::patch::PatchKind;
use crate::resource::Resource;
use crate::status::Status;

/// A request, whether it came over HTTP or as a direct call.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asks.
    pub user: Arc<str>,
    /// What is asked.
    pub verb: Verb,
    /// Of which resource.
    pub resource: Arc<Resource>,
    /// In which namespace; empty for cluster-wide resources and for requests over all namespaces.
    pub namespace: String,
    /// Of which object; empty for collections.
    pub name: String,
    /// Which part of the object.
    pub subresource: Option<Subresource>,
    /// The query.
    pub options: Options,
    /// The body.
    pub content: Content,
    /// Whether answers hold `PartialObjectMetadata` instead of whole objects.
    pub metadata_only: bool,
}

/// What can be done with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change parts of one.
    Patch,
    /// Remove one.
    Delete,
    /// Remove many.
    DeleteCollection,
}

/// A part of an object with its own path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subresource {
    /// `/status`.
    Status,
    /// `/finalize` of namespaces.
    Finalize,
}

/// The body of a request.
#[derive(Clone, Debug, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    None,
    /// An object, not yet read.
    Json(Bytes),
    /// An object.
    Value(Value),
    /// A patch.
    Patch(PatchKind, Bytes),
}

impl Request {
    /// A request without options and body.
    pub fn new(user: Arc<str>, verb: Verb, resource: Arc<Resource>, namespace: &str, name: &str) -> Self {
        Self {
            user,
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
            options: Options::default(),
            content: Content::None,
            metadata_only: false,
        }
    }

    /// Takes the object out of the body; it must be of the resource's kind. Missing `kind` and `apiVersion` are taken for
    /// right, as the server does.
    pub(crate) fn take_object(&mut self) -> Result<Value, Status> {
        let kind = &self.resource.kind;
        let object = match std::mem::take(&mut self.content) {
            Content::Value(object) => object,
            Content::Json(json) => serde_json::from_slice(&json).map_err(|error| unreadable(kind, &error, &json))?,
            Content::None | Content::Patch(..) => Value::Null,
        };
        if !object.is_object() {
            let json = object.to_string();
            let found = match &object {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                Value::Null | Value::Object(_) => return Err(Status::bad_request("unexpected end of JSON input")),
            };
            let why = format!("json: cannot unmarshal {found} into Go value of type struct");
            return Err(unreadable(kind, &why, json.as_bytes()));
        }
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (found_kind, found_version) = (text("kind"), text("apiVersion"));
        let wanted_version = self.resource.api_version();
        if !found_version.is_empty() && found_version != wanted_version {
            return Err(Status::bad_request(format!(
                "the API version in the data ({found_version}) does not match the expected API version ({wanted_version})"
            )));
        }
        if !found_kind.is_empty() && found_kind != kind {
            let version = &self.resource.version;
            return Err(Status::bad_request(format!(
                "{found_kind} in version {version:?} cannot be handled as a {kind}: \
                 converting ({found_kind}) to ({kind}): unknown conversion"
            )));
        }
        Ok(object)
    }
}

impl Verb {
    /// The name RBAC has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl Subresource {
    /// Its name in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

fn unreadable(kind: &str, why: &dyn std::fmt::Display, json: &[u8]) -> Status {
    // As the server's `summarizeData` does.
    const SHOWN: usize = 30;
    let text = String::from_utf8_lossy(json);
    let summary = match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?} ...", &text[..end]),
        None => format!("{text:?}"),
    };
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
}
