//! The steps of kube-apiserver between a request's body and validation: decoding, defaulting, mutating admission, and
//! the rules about fields that an update may not change.
//!
//! The order, for callers:
//! * create: [`decode`] the body in its version, convert it to the stored version, set the system fields (uid,
//!   creationTimestamp, a generated name), [`on_create`], then [`crate::validate::on_create`].
//! * update: [`decode`], convert, [`on_update`], [`crate::validate::on_update`], [`admit_update`].
//! * patch: [`crate::patch::apply_patch`] decodes its result itself; then the steps of an update.
//!
//! Defaults exist for PersistentVolumes, claims, StorageClasses, VolumeAttributesClasses, CSIDrivers, Secrets,
//! Namespaces and Nodes. Other resources have none.

use serde_json::Value;

use crate::resource::{Resource, Special};
use crate::state::State;
use crate::status::Status;

mod admission;
mod decode;
pub(crate) mod schema;
mod strategy;
mod time;
mod types;

pub(crate) use admission::default_among;
pub use decode::{FieldValidation, decode};
pub(crate) use decode::{decode_result, name_type, unknown_fields, zero};

/// Prepares a decoded object with its system fields for validation: defaults, mutating admission, and the strategy's
/// `PrepareForCreate`. Creations in missing or terminating namespaces are refused. `now` is a `metav1.Time`.
pub(crate) fn on_create(resource: &Resource, object: &mut Value, state: &State, now: &str) -> Result<(), Status> {
    admission::namespace_lives(resource, object, state)?;
    types::set_defaults(resource, object);
    admission::mutate_on_create(resource, object, state);
    strategy::prepare_for_create(resource, object, state, now);
    Ok(())
}

/// Prepares a decoded object to replace `old`: defaults, and the strategy's `PrepareForUpdate` for the resource or its
/// `subresource` (`status`, `finalize`), which restores fields that the request may not change. `now` is a
/// `metav1.Time`.
pub(crate) fn on_update(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
    state: &State,
    now: &str,
) {
    types::set_defaults(resource, new);
    strategy::prepare_for_update(resource, old, new, subresource, state, now);
}

/// Validating admission of an update: refuses an expansion that the claim's class does not allow.
pub(crate) fn admit_update(
    resource: &Resource,
    old: &Value,
    new: &Value,
    subresource: Option<&str>,
    state: &State,
) -> Result<(), Status> {
    match (resource.special, subresource) {
        (Special::Claim, None) => admission::claim_may_grow(resource, old, new, state),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
