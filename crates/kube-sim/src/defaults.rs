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
//! Namespaces, Nodes and Pods. Other resources have none.

use serde_json::Value;

use crate::resource::{Resource, Special};
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

/// Objects that admission and defaulting look up in the cluster.
pub trait Lookup {
    /// Returns all objects of a resource, of all namespaces.
    fn list(&self, group: &str, plural: &str) -> Vec<Value>;
    /// One object.
    fn get(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value>;
    /// Returns whether a namespace is being deleted. `None` if it does not exist.
    fn is_terminating(&self, namespace: &str) -> Option<bool>;
    /// Returns whether the server's feature gate `CrossNamespaceVolumeDataSource` is on.
    fn has_cross_namespace_data_sources(&self) -> bool;
}

/// Prepares a decoded object with its system fields for validation: defaults, mutating admission, and the strategy's
/// `PrepareForCreate`. Creations in missing or terminating namespaces are refused. `now` is a `metav1.Time`.
pub fn on_create(resource: &Resource, object: &mut Value, cluster: &dyn Lookup, now: &str) -> Result<(), Status> {
    admission::namespace_lives(resource, object, cluster)?;
    types::set_defaults(resource, object);
    admission::mutate_on_create(resource, object, cluster);
    strategy::prepare_for_create(resource, object, cluster, now);
    Ok(())
}

/// Prepares a decoded object to replace `old`: defaults, and the strategy's `PrepareForUpdate` for the resource or its
/// `subresource` (`status`, `finalize`), which restores fields that the request may not change. `now` is a
/// `metav1.Time`.
pub fn on_update(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
    cluster: &dyn Lookup,
    now: &str,
) {
    types::set_defaults(resource, new);
    strategy::prepare_for_update(resource, old, new, subresource, cluster, now);
}

/// Validating admission of an update: refuses an expansion that the claim's class does not allow.
pub fn admit_update(
    resource: &Resource,
    old: &Value,
    new: &Value,
    subresource: Option<&str>,
    cluster: &dyn Lookup,
) -> Result<(), Status> {
    match (resource.special, subresource) {
        (Special::Claim, None) => admission::claim_may_grow(resource, old, new, cluster),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
