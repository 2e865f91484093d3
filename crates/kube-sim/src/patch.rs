//! Patches of all four kinds, on objects in the requested version.
//!
//! The result is already decoded ([`crate::defaults::decode`]) as the server decodes it: unknown fields are dropped,
//! wrong types are refused. The caller checks name, namespace and uid, as for an update.

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
pub use merge::merge_patch;

/// The content types of patches that are possible for all resources, custom ones included.
pub(crate) const OF_ALL_RESOURCES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

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

/// The options of a patch request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PatchOptions<'a> {
    /// The field manager.
    pub field_manager: Option<&'a str>,
    /// True if apply takes over fields from other managers.
    pub force: bool,
    /// The treatment of unknown fields.
    pub field_validation: FieldValidation,
    /// The patched subresource. Managers own fields per subresource.
    pub subresource: Option<&'a str>,
    /// The current time in the format of `metav1.Time`.
    pub now: &'a str,
}

/// The result of a patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Patched {
    /// The object. After an apply it contains the new `metadata.managedFields`.
    pub object: Value,
    /// Warnings for the client, e.g. `unknown field "spec.foo"`.
    pub warnings: Vec<String>,
}

/// Applies a patch to `current`, the object as a GET shows it. `None` is for an apply that creates.
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

/// Decodes the result of a JSON or merge patch. Unlike the refusal of a body, this refusal shows the result.
fn decode_json(
    resource: &Resource,
    options: &PatchOptions<'_>,
    duplicates: Vec<String>,
    patch: impl Fn() -> Result<Value, Status>,
) -> Result<Patched, Status> {
    let mut object = patch()?;
    match defaults::decode_result(resource, &mut object, &duplicates, options.field_validation) {
        Ok(warnings) => Ok(Patched { object, warnings }),
        // Patches again, because `object` is partially decoded.
        Err(error) => Err(unusable(&patch()?.to_string(), &error)),
    }
}

/// 422: the patch's result cannot be decoded. The server does not name the kind here.
fn unusable(shown: &str, error: &str) -> Status {
    let cause = Cause::invalid("patch", &shown.into(), error);
    let message = format!(" \"\" is invalid: {}", cause.text());
    Status {
        details: Some(Box::new(Details { causes: vec![cause], ..Details::default() })),
        ..Status::new(422, "Invalid", message)
    }
}

/// 500 with only a text: an error that the server does not expect.
fn unexpected(message: impl Into<String>) -> Status {
    Status::new(500, "", message)
}

/// Returns the refusal of invalid JSON.
fn no_json() -> Status {
    Status::bad_request("invalid JSON patch")
}

/// Returns a conflict with another field manager.
fn manager_conflict(field: String, message: String) -> Cause {
    Cause { reason: CauseReason::FieldManagerConflict, field, message }
}

#[cfg(test)]
mod tests;
