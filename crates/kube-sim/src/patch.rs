//! Patches of all four kinds, on objects in the form of the requested version.
//!
//! What comes out has been decoded as the server decodes ([`crate::defaults::decode`] need not be called again): unknown
//! fields are gone, wrong types refused. Whether the name, namespace and uid are still right is for the caller, as for an
//! update.

use serde_json::Value;

use crate::defaults::{self, FieldValidation};
use crate::go_json;
use crate::resource::Resource;
use crate::status::{Cause, CauseReason, Details, Status};

mod apply;
mod fields;
mod json;
mod managers;
mod merge;
mod shape;
mod strategic;

pub(crate) use managers::Managers;

/// The kind of a patch, from the request's content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`, RFC 6902.
    Json,
    /// `application/merge-patch+json`, RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`; not for custom resources, for which the server answers 415.
    StrategicMerge,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}

/// What a patch request says beside the patch.
#[derive(Clone, Copy, Debug, Default)]
pub struct PatchOptions<'a> {
    /// Who patches.
    pub field_manager: Option<&'a str>,
    /// Whether apply takes fields from other managers.
    pub force: bool,
    /// What becomes of fields that nobody knows.
    pub field_validation: FieldValidation,
    /// The subresource patched; managers own fields per subresource.
    pub subresource: Option<&'a str>,
    /// The time now, as `metav1.Time` is written.
    pub now: &'a str,
}

/// What a patch leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Patched {
    /// The object. An apply leaves `metadata.managedFields` in it, which must be kept when the object is written.
    pub object: Value,
    /// What the answer warns of, e.g. `unknown field "spec.foo"`.
    pub warnings: Vec<String>,
}

/// Applies a patch to `current`, the object as a GET shows it; `None` only for an apply that creates.
pub fn apply_patch(
    kind: PatchKind,
    resource: &Resource,
    current: Option<&Value>,
    patch: &[u8],
    options: &PatchOptions<'_>,
) -> Result<Patched, Status> {
    let current_or_missing = || current.ok_or_else(|| Status::not_found(resource, ""));
    match kind {
        PatchKind::Json => {
            let current = current_or_missing()?;
            decode_json(resource, options, Vec::new(), || json::patch(current, patch))
        }
        PatchKind::Merge => {
            let current = current_or_missing()?;
            let parsed = go_json::parse(patch).map_err(|_| no_json())?;
            decode_json(resource, options, parsed.duplicates, || merge::patch(current, parsed.value.clone()))
        }
        PatchKind::StrategicMerge => strategic::patch(resource, current_or_missing()?, patch, options),
        PatchKind::Apply => {
            apply::patch(resource, current, patch, options).map(|object| Patched { object, warnings: Vec::new() })
        }
    }
}

/// The result of a JSON or merge patch is decoded like a body, but refused in another way.
fn decode_json(
    resource: &Resource,
    options: &PatchOptions<'_>,
    duplicates: Vec<String>,
    patch: impl Fn() -> Result<Value, Status>,
) -> Result<Patched, Status> {
    let mut object = patch()?;
    match defaults::decode_result(resource, &mut object, &duplicates, options.field_validation) {
        Ok(warnings) => Ok(Patched { object, warnings }),
        // What is half decoded is not what was refused.
        Err(error) => Err(unusable(&patch()?.to_string(), &error)),
    }
}

/// 422: what the patch leads to cannot be decoded. The server names no kind here.
fn unusable(shown: &str, error: &str) -> Status {
    let cause = Cause::invalid("patch", &shown.into(), error);
    let message = format!(" \"\" is invalid: {}", cause.text());
    Status {
        details: Some(Box::new(Details { causes: vec![cause], ..Details::default() })),
        ..Status::new(422, "Invalid", message)
    }
}

/// 500 with nothing but a text: what becomes of errors the server does not expect.
fn unexpected(message: impl Into<String>) -> Status {
    Status::new(500, "", message)
}

/// The refusal of a patch that is no JSON.
fn no_json() -> Status {
    Status::bad_request("invalid JSON patch")
}

/// A cause about the managers of fields, which has a type of its own.
fn manager_conflict(field: String, message: String) -> Cause {
    Cause { reason: CauseReason::FieldManagerConflict, field, message }
}

#[cfg(test)]
mod tests;
