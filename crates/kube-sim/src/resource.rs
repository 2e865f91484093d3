//! Resources and their properties.

use std::sync::Arc;

mod builtin;

pub use builtin::builtins;

/// A resource in one version, such as `/apis/storage.k8s.io/v1/storageclasses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Plural name, lower case, as in paths.
    pub plural: String,
    /// Singular name, lower case.
    pub singular: String,
    /// Kind of its objects.
    pub kind: String,
    /// Kind of its lists.
    pub list_kind: String,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// Short names for command lines, e.g. `pvc`.
    pub short_names: Vec<String>,
    /// Categories for command lines, e.g. `all`.
    pub categories: Vec<String>,
    /// True if there is a `/status` subresource.
    pub status: bool,
    /// The storage of its objects. The versions of a resource (and the groups of events) share one.
    pub storage: StorageId,
    /// True if an update without resourceVersion is allowed (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// True if an update of a missing object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// True if a delete answers with the deleted object instead of a `Status` (`ReturnDeletedObject`).
    pub returns_deleted: bool,
    /// True if its objects are answered but never stored, e.g. `selfsubjectaccessreviews`.
    pub ephemeral: bool,
    /// True if a CustomResourceDefinition defined it.
    pub custom: bool,
    /// The rules that are specific to the resource.
    pub(crate) special: Special,
}

/// Resources with specific rules, so that code need not compare names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    AttributesClass,
    Claim,
    Class,
    ConfigMap,
    CsiDriver,
    Definition,
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    Secret,
    Volume,
    /// The resource has no specific rules.
    Not,
}

/// The storage of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

impl Special {
    /// Returns the value for a built-in resource.
    fn of(group: &str, plural: &str) -> Self {
        match (group, plural) {
            ("", "persistentvolumes") => Self::Volume,
            ("", "persistentvolumeclaims") => Self::Claim,
            ("", "configmaps") => Self::ConfigMap,
            ("", "secrets") => Self::Secret,
            ("" | "events.k8s.io", "events") => Self::Event,
            ("", "namespaces") => Self::Namespace,
            ("", "nodes") => Self::Node,
            ("", "pods") => Self::Pod,
            ("apiextensions.k8s.io", "customresourcedefinitions") => Self::Definition,
            ("coordination.k8s.io", "leases") => Self::Lease,
            ("storage.k8s.io", "csidrivers") => Self::CsiDriver,
            ("storage.k8s.io", "storageclasses") => Self::Class,
            ("storage.k8s.io", "volumeattributesclasses") => Self::AttributesClass,
            _ => Self::Not,
        }
    }
}

impl Resource {
    /// Returns a built-in resource, for callers that know that it exists.
    ///
    /// # Panics
    /// If there is no such built-in resource.
    pub fn builtin(group: &str, plural: &str) -> Arc<Self> {
        let found = builtins().iter().find(|resource| resource.group == group && resource.plural == plural);
        Arc::clone(found.unwrap_or_else(|| panic!("no built-in resource {plural}.{group}")))
    }

    /// `v1` or `storage.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns whether `text` is its `apiVersion`.
    pub(crate) fn has_api_version(&self, text: &str) -> bool {
        match self.group.as_str() {
            "" => text == self.version,
            group => text.split_once('/') == Some((group, &self.version)),
        }
    }

    /// `persistentvolumes` or `storageclasses.storage.k8s.io`, as in error messages.
    pub fn group_resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// Returns whether the resource has this group and plural name.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.plural == plural && self.group == group
    }
}

/// `name` or `name.group`.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    match group {
        "" => name.to_owned(),
        _ => format!("{name}.{group}"),
    }
}
