//! Parsed requests.

mod options;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use options::MAX_MANAGER;
pub use options::{DeleteOptions, Options, Preconditions};
pub(crate) use path::Path;

use crate::defaults::FieldValidation;
use crate::patch::PatchKind;
use crate::resource::Resource;
use crate::status::Status;
use crate::yaml::read_yaml;
use crate::{defaults, go_json};

/// A request, received over HTTP or as a direct call.
#[derive(Clone, Debug)]
pub struct Request {
    /// The user.
    pub user: Arc<str>,
    /// The groups the user is in.
    pub groups: Arc<[String]>,
    /// The verb.
    pub verb: Verb,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The namespace. Empty for cluster-scoped resources and for requests over all namespaces.
    pub namespace: String,
    /// The object's name. Empty for collections.
    pub name: String,
    /// The subresource.
    pub subresource: Option<Subresource>,
    /// The query.
    pub options: Options,
    /// The body.
    pub content: Content,
    /// True if answers contain `PartialObjectMetadata` instead of objects.
    pub metadata_only: bool,
    /// True if answers contain `metadata.managedFields`.
    pub managed_fields: bool,
    /// True if the object in the body was created from a stored one and does not have to be decoded.
    pub(crate) decoded: bool,
    /// The name of the client program. It is the field manager if [`Options::field_manager`] is empty.
    pub agent: Arc<str>,
    /// Warnings of the answer, collected while the request is handled.
    pub(crate) warnings: Vec<String>,
}

/// A verb of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read an object.
    Get,
    /// Read a collection.
    List,
    /// Follow changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

/// A subresource.
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
    /// No body.
    #[default]
    None,
    /// An object in JSON, not parsed yet.
    Json(Bytes),
    /// An object in YAML, not parsed yet.
    Yaml(Bytes),
    /// An object.
    Value(Value),
    /// A patch.
    Patch(PatchKind, Bytes),
}

/// Names an object or, with an empty name, a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Plural name.
    pub plural: &'a str,
    /// Namespace; empty for cluster-wide resources.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

impl Request {
    /// Creates a request without options and body.
    pub fn new(user: Arc<str>, verb: Verb, resource: Arc<Resource>, namespace: &str, name: &str) -> Self {
        Self {
            agent: Arc::clone(&user),
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
            managed_fields: false,
            decoded: false,
            warnings: Vec::new(),
        }
    }

    /// Returns the field manager of this request.
    pub(crate) fn manager(&self) -> &str {
        match self.options.field_manager.as_str() {
            "" => &self.agent,
            manager => manager,
        }
    }

    /// Takes the object from the body and decodes it as the resource's kind.
    pub(crate) fn take_object(&mut self) -> Result<Value, Status> {
        let kind = &self.resource.kind;
        let mut duplicates = Vec::new();
        let mut object = match std::mem::take(&mut self.content) {
            Content::Value(object) if self.decoded => {
                debug_assert!(self.is_as_decoded(&object), "{object}");
                return Ok(object);
            }
            Content::Value(object) => object,
            Content::Json(json) => {
                let parsed = go_json::parse(&json).map_err(|error| unreadable(kind, &error, &json))?;
                duplicates = parsed.duplicates;
                parsed.value
            }
            Content::Yaml(yaml) => read_yaml(&yaml).map_err(|error| unreadable(kind, &error, &yaml))?,
            Content::None | Content::Patch(..) => return Err(unreadable(kind, "unexpected end of JSON input", &[])),
        };
        if !matches!(object, Value::Null | Value::Object(_)) {
            let why = no_object(&object);
            return Err(unreadable(kind, &why, object.to_string().as_bytes()));
        }
        let warnings = defaults::decode(&self.resource, &mut object, &duplicates, self.options.field_validation)?;
        self.warnings.extend(warnings);
        Ok(object)
    }

    /// Returns whether decoding would not change an object.
    fn is_as_decoded(&self, object: &Value) -> bool {
        let mut decoded = object.clone();
        defaults::decode(&self.resource, &mut decoded, &[], FieldValidation::Strict).is_ok() && decoded == *object
    }
}

impl Verb {
    /// Returns the verb's name in RBAC.
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

    /// Returns whether the verb is read-only.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl Subresource {
    /// Returns the subresource's name in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

/// Go's error for a text without kind and version.
pub(crate) fn no_object(value: &Value) -> String {
    const WANTED: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    format!("json: cannot unmarshal {} into Go value of type {WANTED}", go_json::kind_of(value))
}

/// `transformDecodeError` of apiserver's `endpoints/handlers/rest.go`.
fn unreadable(kind: &str, why: &str, json: &[u8]) -> Status {
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
