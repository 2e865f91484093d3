//! Which resources there are and what is special about each.

use std::sync::Arc;

mod builtin;

pub use builtin::builtins;

/// One resource in one version: what a path such as `/apis/storage.k8s.io/v1/storageclasses` leads to.
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
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names for people, e.g. `pvc`.
    pub short_names: Vec<String>,
    /// Groups of resources for people, e.g. `all`.
    pub categories: Vec<String>,
    /// Whether there is a `/status` subresource.
    pub status: bool,
    /// Where its objects are kept; resources over several versions (or groups, as events) share one.
    pub storage: StorageId,
    /// Whether an update without resourceVersion is allowed (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Whether an update of a missing object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether a delete answers with the deleted object instead of a `Status` (`ReturnDeletedObject`).
    pub returns_deleted: bool,
    /// Whether it is only asked, never stored, e.g. `selfsubjectaccessreviews`.
    pub ephemeral: bool,
    /// Whether a CustomResourceDefinition defined it.
    pub custom: bool,
    /// Which rules of its own it has.
    pub(crate) special: Special,
}

/// The resources that have rules of their own somewhere, so that nobody compares names to find them.
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
    /// No rules of its own.
    Not,
}

/// The place where the objects of a resource are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

impl Special {
    /// Which one a built-in resource is.
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
    /// A built-in resource, for tests and other callers that know what they ask for.
    ///
    /// # Panics
    /// When there is none of that group and name.
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

    /// Whether `text` is its `apiVersion`.
    pub(crate) fn has_api_version(&self, text: &str) -> bool {
        match self.group.as_str() {
            "" => text == self.version,
            group => text.split_once('/') == Some((group, &self.version)),
        }
    }

    /// `persistentvolumes` or `storageclasses.storage.k8s.io`, as error texts name resources.
    pub fn group_resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `PersistentVolume` or `StorageClass.storage.k8s.io`, as error texts name kinds.
    pub fn group_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    /// Whether it is the built-in or custom resource of this group and plural name.
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
