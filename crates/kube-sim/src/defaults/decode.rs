//! Decodes like the server: into Go structs and back. Wrong types are refused, unknown fields are dropped, quantities
//! and times are normalized, empty values are omitted, and required ones are added.

use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, alphabet};
use serde_json::{Map, Value};

use super::schema::{Field, Kind, Struct, Type};
use super::time::{self, Precision};
use crate::go_json::kind_of;
use crate::resource::{Resource, builtins};
use crate::status::Status;
use crate::validate::quantity::Quantity;

/// The query parameter `fieldValidation`: the treatment of unknown fields. `Ignore` and `Warn` drop them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped without a warning.
    Ignore,
    /// Unknown fields are dropped, with a `Warning` header for each.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// Decodes the body of a create or update in the requested version, and sets `kind` and `apiVersion`. Returns the
/// warnings, e.g. `unknown field "spec.foo"`.
///
/// Only the metadata of custom resources and CustomResourceDefinitions is decoded. `duplicates` are the paths of
/// repeated members in the body.
pub fn decode(
    resource: &Resource,
    object: &mut Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    check_kind(resource, object).map_err(|wrong| wrong.refusal(resource))?;
    validated(resource, object, duplicates, validation)
        .map_err(|error| cannot_be_handled(resource, &resource.version, &resource.kind, &error))
}

/// Like [`decode`], for the result of a patch. Errors are Go's.
pub(crate) fn decode_result(
    resource: &Resource,
    object: &mut Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, String> {
    check_kind(resource, object).map_err(|wrong| wrong.error)?;
    validated(resource, object, duplicates, validation)
}

fn validated(
    resource: &Resource,
    object: &mut Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, String> {
    let mut warnings: Vec<String> = duplicates.iter().map(|field| format!("duplicate field {field:?}")).collect();
    warnings.extend(fields(resource, object)?);
    match validation {
        FieldValidation::Strict if !warnings.is_empty() => {
            Err(format!("strict decoding error: {}", warnings.join(", ")))
        }
        FieldValidation::Ignore => Ok(Vec::new()),
        _ => Ok(warnings),
    }
}

/// Returns the paths of unknown fields, e.g. `spec.foo`. Errors are Go's.
pub(crate) fn unknown_fields(resource: &Resource, object: &Value) -> Result<Vec<String>, String> {
    let mut decoder = Decoder { unknown: Vec::new() };
    decoder.root(resource, &mut object.clone())?;
    Ok(decoder.unknown)
}

/// Returns the zero value of a resource's type in Go's JSON.
pub(crate) fn zero(resource: &Resource) -> Value {
    let mut object = Value::Object(Map::new());
    let decoded = fields(resource, &mut object);
    assert!(decoded.is_ok(), "there is nothing in it that could be wrong");
    object
}

/// Returns the zero value of a built-in resource's field in Go's JSON.
pub(super) fn zero_field(resource: &Resource, name: &str) -> Option<Value> {
    let field = Struct::of(resource)?.field(name)?;
    let mut decoder = Decoder { unknown: Vec::new() };
    decoder.zero(&field.ty, &FieldPath::Root).ok()
}

/// Decodes an object and sets its type. Returns the warnings about unknown fields.
fn fields(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let mut decoder = Decoder { unknown: Vec::new() };
    decoder.root(resource, object)?;
    name_type(resource, object);
    Ok(decoder.unknown.iter().map(|field| format!("unknown field {field:?}")).collect())
}

/// Sets `kind` and `apiVersion`, which usually are correct already.
pub(crate) fn name_type(resource: &Resource, object: &mut Value) {
    if object.get("kind").is_none_or(|kind| *kind != *resource.kind) {
        object["kind"] = resource.kind.as_str().into();
    }
    if object.get("apiVersion").and_then(Value::as_str).is_none_or(|text| !resource.has_api_version(text)) {
        object["apiVersion"] = resource.api_version().into();
    }
}

/// An object of another kind or version than the request's.
struct WrongKind {
    version: String,
    kind: String,
    error: String,
}

impl WrongKind {
    fn refusal(&self, resource: &Resource) -> Status {
        if resource.custom {
            Status::bad_request(self.error.as_str())
        } else {
            cannot_be_handled(resource, &self.version, &self.kind, &self.error)
        }
    }
}

/// Checks kind and version. Missing values are accepted.
fn check_kind(resource: &Resource, object: &Value) -> Result<(), WrongKind> {
    const SCHEME: &str = "in scheme \"pkg/runtime/scheme.go:111\"";
    let text = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_none_or(|kind| kind == resource.kind) && api_version.is_none_or(|text| resource.has_api_version(text)) {
        return Ok(());
    }
    let wanted = resource.api_version();
    let kind = kind.unwrap_or(&resource.kind).to_owned();
    let api_version = api_version.unwrap_or(&wanted).to_owned();
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    let error = if resource.custom && api_version != wanted {
        format!("the API version in the data ({api_version}) does not match the expected API version ({wanted})")
    } else if resource.custom {
        let wanted = &resource.kind;
        format!(
            "{kind} in version {version:?} cannot be handled as a {wanted}: the kind in the data ({kind}) does not match \
             the expected kind ({wanted})"
        )
    } else if let Some(other) = builtins().iter().find(|other| other.kind == kind && other.api_version() == api_version)
    {
        // The server decodes the object as the kind that it names before it checks that kind.
        fields(other, &mut object.clone()).err().unwrap_or_else(|| {
            let group = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
            format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", resource.kind)
        })
    } else {
        format!("no kind {kind:?} is registered for version {api_version:?} {SCHEME}")
    };
    Err(WrongKind { version, kind, error })
}

fn cannot_be_handled(resource: &Resource, version: &str, kind: &str, error: &str) -> Status {
    let wanted = &resource.kind;
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {error}"))
}

struct Decoder {
    /// Paths of unknown fields.
    unknown: Vec<String>,
}

/// The decoder's position in the object.
enum FieldPath<'a> {
    Root,
    Name { parent: &'a FieldPath<'a>, embedded: &'static str, name: &'a str },
    Index { parent: &'a FieldPath<'a>, index: usize },
    Key { parent: &'a FieldPath<'a>, key: &'a str },
}

impl Decoder {
    fn root(&mut self, resource: &Resource, object: &mut Value) -> Result<(), String> {
        if let Some(root) = Struct::of(resource) {
            return self.structure(object, root, &FieldPath::Root);
        }
        let path = FieldPath::Name { parent: &FieldPath::Root, embedded: "", name: "metadata" };
        self.structure(&mut object["metadata"], Struct::object_meta(), &path)
    }

    fn structure(&mut self, value: &mut Value, structure: &'static Struct, path: &FieldPath<'_>) -> Result<(), String> {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(map) = value else {
            // Fields of a wrong type are refused by the caller, so this is the root.
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type v1.{}",
                kind_of(value),
                structure.name
            ));
        };
        let mut error = None;
        // Usually stays empty.
        let mut left_out = Vec::new();
        for (name, value) in &mut *map {
            let Some(field) = structure.field(name) else {
                self.unknown.push(FieldPath::Name { parent: path, embedded: "", name }.to_string());
                left_out.push(name.clone());
                continue;
            };
            let at = FieldPath::Name { parent: path, embedded: field.embedded, name: field.name };
            if value.is_null() {
                // Null counts as missing.
                left_out.push(name.clone());
                continue;
            }
            match self.value(value, &field.ty, structure, &at) {
                Ok(()) if is_omitted(field, value) => left_out.push(name.clone()),
                Ok(()) => {}
                Err(refused) => {
                    error = Some(refused);
                    break;
                }
            }
        }
        for name in left_out {
            map.remove(&name);
        }
        for field in structure.always_written() {
            if !map.contains_key(field.name) {
                let at = FieldPath::Name { parent: path, embedded: field.embedded, name: field.name };
                map.insert(field.name.to_owned(), self.zero(&field.ty, &at)?);
            }
        }
        error.map_or(Ok(()), Err)
    }

    fn value(&mut self, value: &mut Value, ty: &Type, inside: &Struct, path: &FieldPath<'_>) -> Result<(), String> {
        let mismatch = |what: &dyn fmt::Display| {
            let (name, path) = (inside.name, GoPath(path));
            format!("json: cannot unmarshal {what} into Go struct field {name}.{path} of type {ty}")
        };
        if value.is_null() {
            *value = self.zero(ty, path)?;
            return Ok(());
        }
        match (&ty.kind, &mut *value) {
            (Kind::Any, _)
            | (Kind::Text | Kind::Duration | Kind::IntOrString, Value::String(_))
            | (Kind::Bool, Value::Bool(_)) => {}
            (Kind::Int32 | Kind::Int64 | Kind::IntOrString, Value::Number(number)) => {
                let fits = match ty.kind {
                    Kind::Int64 => number.as_i64().is_some(),
                    _ => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                };
                if !fits {
                    return Err(mismatch(&format_args!("number {number}")));
                }
            }
            (Kind::Quantity, _) => rewrite_quantity(value, false)?,
            (Kind::Time, Value::String(text)) => rewrite_time(text, Precision::Seconds)?,
            (Kind::MicroTime, Value::String(text)) => rewrite_time(text, Precision::Microseconds)?,
            (Kind::Bytes, Value::String(text)) => rewrite_bytes(text)?,
            (Kind::List(element), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(item, element, inside, &FieldPath::Index { parent: path, index })?;
                }
            }
            (Kind::Map(element), Value::Object(map)) => {
                // `SetDefaults_ResourceList`
                let milli = ty.is_resource_list();
                for (key, item) in map {
                    if milli {
                        rewrite_quantity(item, true)?;
                    } else {
                        self.value(item, element, inside, &FieldPath::Key { parent: path, key })?;
                    }
                }
            }
            (Kind::Struct(reference), Value::Object(_)) => self.structure(value, reference.structure(), path)?,
            (_, other) => return Err(mismatch(&kind_of(other))),
        }
        Ok(())
    }

    /// Returns the zero value of a type in Go's JSON.
    fn zero(&mut self, ty: &Type, path: &FieldPath<'_>) -> Result<Value, String> {
        Ok(match ty.kind {
            _ if ty.pointer => Value::Null,
            Kind::Text => "".into(),
            Kind::Bool => false.into(),
            Kind::Int32 | Kind::Int64 | Kind::IntOrString => 0.into(),
            Kind::Quantity => "0".into(),
            Kind::Duration => "0s".into(),
            Kind::Time | Kind::MicroTime | Kind::Bytes | Kind::Any | Kind::List(_) | Kind::Map(_) => Value::Null,
            Kind::Struct(ref reference) => {
                let mut empty = Value::Null;
                self.structure(&mut empty, reference.structure(), path)?;
                empty
            }
        })
    }
}

/// Returns whether Go omits the decoded value: `omitempty` and `omitzero`.
fn is_omitted(field: &Field, value: &Value) -> bool {
    // Empty `managedFields` differ from missing ones: they reset the owners.
    if field.ty.pointer || field.name == "managedFields" {
        return false;
    }
    match value {
        Value::String(text) => field.omit_empty && text.is_empty(),
        Value::Bool(truth) => field.omit_empty && !truth,
        Value::Number(number) => {
            field.omit_empty && number.as_i64() == Some(0) && !matches!(field.ty.kind, Kind::IntOrString)
        }
        Value::Array(items) => field.omit_empty && items.is_empty(),
        Value::Object(map) => match field.ty.kind {
            Kind::Struct(_) => field.omit_zero && map.is_empty(),
            _ => field.omit_empty && map.is_empty(),
        },
        Value::Null => field.omit_empty || field.omit_zero,
    }
}

fn rewrite_quantity(value: &mut Value, milli: bool) -> Result<(), String> {
    let number;
    let text = match &*value {
        Value::String(text) => text.trim(),
        Value::Number(plain) => {
            number = plain.to_string();
            &number
        }
        Value::Null => "0",
        // Go passes the JSON itself to the parser, which always fails.
        _ => "",
    };
    let written = Quantity::rewrite(text, milli).map_err(|error| error.to_string())?;
    match written {
        Some(written) => *value = written.into(),
        None if value.as_str() != Some(text) => *value = text.to_owned().into(),
        None => {}
    }
    Ok(())
}

fn rewrite_time(text: &mut String, precision: Precision) -> Result<(), String> {
    if let Some(written) = time::rewrite(text, precision)? {
        *text = written;
    }
    Ok(())
}

/// Go's base64 decoder skips line ends and ignores trailing bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

fn rewrite_bytes(text: &mut String) -> Result<(), String> {
    text.retain(|character| !matches!(character, '\r' | '\n'));
    let bytes = BASE64.decode(&*text).map_err(|error| {
        let offset = match error {
            DecodeError::InvalidByte(offset, _) => offset,
            _ => text.len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {offset}")
    })?;
    *text = BASE64.encode(bytes);
    Ok(())
}

impl fmt::Display for FieldPath<'_> {
    /// Returns the path as in warnings: `spec.containers[0].image`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Index { parent, index } => write!(formatter, "{parent}[{index}]"),
            Self::Name { parent: Self::Root, name, .. } => formatter.write_str(name),
            Self::Name { parent, name, .. } | Self::Key { parent, key: name } => write!(formatter, "{parent}.{name}"),
        }
    }
}

/// A path as in errors of Go's `json`: with embedded structs, without indices and keys.
struct GoPath<'a>(&'a FieldPath<'a>);

impl fmt::Display for GoPath<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FieldPath::Root => Ok(()),
            FieldPath::Index { parent, .. } | FieldPath::Key { parent, .. } => GoPath(parent).fmt(formatter),
            FieldPath::Name { parent: FieldPath::Root, embedded, name } => write!(formatter, "{embedded}{name}"),
            FieldPath::Name { parent, embedded, name } => write!(formatter, "{}.{embedded}{name}", GoPath(parent)),
        }
    }
}

#[cfg(test)]
mod tests;
