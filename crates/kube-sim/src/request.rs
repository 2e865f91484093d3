//! A request, understood: who wants what of which object.

mod options;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use options::{DeleteOptions, Options, Preconditions};
pub(crate) use path::Path;

use crate::defaults;
use crate::patch::PatchKind;
use crate::resource::Resource;
use crate::status::Status;

/// A request, whether it came over HTTP or as a direct call.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asks.
    pub user: Arc<str>,
    /// The groups the user is in.
    pub groups: Arc<[String]>,
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
    /// What the answer warns of, gathered while the request is handled.
    pub(crate) warnings: Vec<String>,
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
            groups: Arc::default(),
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
            options: Options::default(),
            content: Content::None,
            metadata_only: false,
            warnings: Vec::new(),
        }
    }

    /// Takes the object out of the body, decoded as the resource's kind.
    pub(crate) fn take_object(&mut self) -> Result<Value, Status> {
        let kind = &self.resource.kind;
        let mut object = match std::mem::take(&mut self.content) {
            Content::Value(object) => object,
            Content::Json(json) => serde_json::from_slice(&json).map_err(|error| unreadable(kind, &error, &json))?,
            Content::None | Content::Patch(..) => return Err(unreadable(kind, &"unexpected end of JSON input", &[])),
        };
        let found = match &object {
            Value::Null | Value::Object(_) => "",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        };
        if !found.is_empty() {
            let why = format!("json: cannot unmarshal {found} into Go value of type struct");
            return Err(unreadable(kind, &why, object.to_string().as_bytes()));
        }
        self.decode(&mut object)?;
        Ok(object)
    }

    /// Brings an object into the form the resource's Go type would give it.
    pub(crate) fn decode(&mut self, object: &mut Value) -> Result<(), Status> {
        let warnings = defaults::decode(&self.resource, object, self.options.field_validation)?;
        self.warnings.extend(warnings);
        Ok(())
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

/// `transformDecodeError` of apiserver's `endpoints/handlers/rest.go`.
fn unreadable(kind: &str, why: &dyn std::fmt::Display, json: &[u8]) -> Status {
    const SHOWN: usize = 30;
    let shown = &json[..json.len().min(SHOWN)];
    let more = if json.len() > SHOWN { " ..." } else { "" };
    let summary = match json.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} \
         ({summary}{more})"
    ))
}
