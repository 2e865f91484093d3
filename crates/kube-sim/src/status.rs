//! `metav1.Status` as an error, with the reasons and messages of apimachinery's `api/errors` and
//! `util/validation/field`.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::resource::{Resource, qualified};

/// A refusal with the API server's text. Its JSON is [`Status::to_value`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, e.g. `NotFound`; empty if the server has none.
    pub reason: &'static str,
    /// Human-readable text.
    pub message: String,
    /// The refused object, and the causes.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: a token to continue an expired list without consistency.
    pub continue_token: Option<Box<str>>,
}

/// `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group; empty for core.
    pub group: String,
    /// The plural resource name, or the kind for `Invalid`, as in the server's answers.
    pub kind: String,
    /// UID of the object, if known.
    pub uid: String,
    /// One entry per field error.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry; 0 for none. Also sent as the header `Retry-After`.
    pub retry_after_seconds: u32,
}

/// `metav1.StatusCause`; for validation it is one `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of error.
    pub reason: CauseReason,
    /// Path of the field, e.g. `spec.capacity[storage]`. Empty if the cause does not concern a field.
    pub field: String,
    /// Text without the field, e.g. `Required value: name or generateName is required`.
    pub message: String,
}

/// The type of a [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseReason {
    /// The field's value repeats another's.
    Duplicate,
    /// Another manager owns the field.
    FieldManagerConflict,
    /// The field must not be set or changed.
    Forbidden,
    /// An internal error.
    Internal,
    /// The field's value is malformed or out of range.
    Invalid,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The value refers to something that does not exist.
    NotFound,
    /// The value is not one of the known ones.
    NotSupported,
    /// A value is missing.
    Required,
    /// The requested resourceVersion lies in the future.
    ResourceVersionTooLarge,
    /// The value is longer than allowed.
    TooLong,
    /// The list has more items than allowed.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
    /// The error has no type.
    Untyped,
}

impl Status {
    /// Creates a refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.group_resource());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    /// 404: the path does not lead to a resource.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_empty_details()
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.group_resource());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// 409: the write's condition does not hold; `why` is the text after the colon.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.group_resource());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409: the resourceVersion is not the newest.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422: validation failed; `causes` must not be empty.
    pub fn invalid(resource: &Resource, name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 for something other than a resource, e.g. `ListOptions`. Equal causes are merged.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, found: Vec<Cause>) -> Self {
        let mut causes: Vec<Cause> = Vec::with_capacity(found.len());
        for cause in found {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        let qualified = qualified(kind, group);
        let message = format!("{qualified} {name:?} is invalid: {}", Cause::aggregate(&causes));
        let (name, group, kind) = (name.to_owned(), group.to_owned(), kind.to_owned());
        let details = Details { name, group, kind, causes, ..Details::default() };
        Self { details: Some(Box::new(details)), ..Self::new(422, "Invalid", message) }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: `why` is the text after the colon; an empty name leaves the name out.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let what = resource.group_resource();
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            _ => format!("{what} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 405: the path does not support the HTTP method.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_empty_details()
    }

    /// 406.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
    }

    /// 410: the requested resourceVersion or continue token has expired.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl fmt::Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"))
    }

    /// 415.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 429.
    pub fn too_many_requests(retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", "Too many requests, please try again later.").retry_after(retry_after_seconds)
    }

    /// 500.
    pub fn internal(why: impl Into<String>) -> Self {
        let why = why.into();
        let cause = Cause { reason: CauseReason::Untyped, field: String::new(), message: why.clone() };
        Self {
            details: Some(Box::new(Details { causes: vec![cause], ..Details::default() })),
            ..Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
        }
    }

    /// 501: not simulated; `what` names it.
    pub fn not_implemented(what: impl fmt::Display) -> Self {
        Self::new(501, "NotImplemented", format!("not implemented by kube-sim: {what}"))
    }

    /// 503.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: it is unknown whether the write was executed.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: u32) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// 504: the requested resourceVersion lies in the future.
    pub fn resource_version_too_large(asked: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::timeout(message, retry_after_seconds);
        status.details.get_or_insert_default().causes = vec![Cause {
            reason: CauseReason::ResourceVersionTooLarge,
            field: String::new(),
            message: "Too large resource version".to_owned(),
        }];
        status
    }

    /// Returns whether this is [`Status::resource_version_too_large`].
    pub fn is_too_large_resource_version(&self) -> bool {
        let causes = self.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        self.code == 504 && causes.iter().any(|cause| cause.reason == CauseReason::ResourceVersionTooLarge)
    }

    /// Adds empty `details`, as in refusals by the server's router.
    #[must_use]
    pub(crate) fn with_empty_details(self) -> Self {
        Self { details: Some(Box::default()), ..self }
    }

    /// Sets the seconds after which a client may retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Returns the JSON that the server sends.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = (**token).into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        let details = Details {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.plural.clone(),
            ..Details::default()
        };
        Self { details: Some(Box::new(details)), ..self }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code, self.reason)
    }
}

impl std::error::Error for Status {}

impl Details {
    /// Returns the JSON that the server sends, without empty fields.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            map.insert("causes".to_owned(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds != 0 {
            map.insert("retryAfterSeconds".to_owned(), self.retry_after_seconds.into());
        }
        Value::Object(map)
    }
}

impl Cause {
    /// Returns a cause for a missing value.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::plain(CauseReason::Required, field, detail)
    }

    /// Returns a cause for a field that must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::plain(CauseReason::Forbidden, field, detail)
    }

    /// Returns a cause for a malformed value.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(CauseReason::Invalid, field, value, detail)
    }

    /// Returns a cause for a value of the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(CauseReason::TypeInvalid, field, value, detail)
    }

    /// Returns a cause for a reference to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(CauseReason::NotFound, field, value, "")
    }

    /// Returns a cause for a repeated value.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(CauseReason::Duplicate, field, value, "")
    }

    /// Returns a cause for a value that is not one of `supported`, which must be in the server's (sorted) order.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::with_value(CauseReason::NotSupported, field, value, &detail)
    }

    /// Returns a cause for a text longer than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::plain(CauseReason::TooLong, field, &format!("may not be more than {max} {unit}"))
    }

    /// Returns a cause for a list with more than `max` items.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::with_value(CauseReason::TooMany, field, &actual.into(), &detail)
    }

    /// Returns the text with its field, as it appears in a message: `spec.x: Required value`.
    pub fn text(&self) -> String {
        match self.field.as_str() {
            "" => self.message.clone(),
            field => format!("{field}: {}", self.message),
        }
    }

    fn plain(reason: CauseReason, field: impl Into<String>, detail: &str) -> Self {
        let message = match detail {
            "" => reason.title().to_owned(),
            _ => format!("{}: {detail}", reason.title()),
        };
        Self { reason, field: field.into(), message }
    }

    /// Returns a cause that shows a value like Go's `%v` shows its JSON: strings quoted, objects and lists as JSON,
    /// other values plain.
    fn with_value(reason: CauseReason, field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let mut message = format!("{}: {value}", reason.title());
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self { reason, field: field.into(), message }
    }

    /// Returns the text of all causes: a single one unchanged, several joined in brackets.
    fn aggregate(causes: &[Self]) -> String {
        let texts: Vec<String> = causes.iter().map(Self::text).collect();
        match texts.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", texts.join(", ")),
        }
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("reason", self.reason.as_str()), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), text.into());
            }
        }
        Value::Object(map)
    }
}

impl CauseReason {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::FieldManagerConflict => "FieldManagerConflict",
            Self::Forbidden => "FieldValueForbidden",
            Self::Internal => "InternalError",
            Self::Invalid => "FieldValueInvalid",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::ResourceVersionTooLarge => "ResourceVersionTooLarge",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Untyped => "",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::Internal => "Internal error",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotFound => "Not found",
            Self::NotSupported => "Unsupported value",
            Self::Required => "Required value",
            Self::ResourceVersionTooLarge => "Too large resource version",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::FieldManagerConflict | Self::NamespaceTerminating | Self::Untyped => "",
        }
    }
}
