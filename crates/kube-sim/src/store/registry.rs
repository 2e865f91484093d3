//! The existing resources: built-in resources and custom resources.

use std::sync::Arc;

use crate::resource::{Resource, StorageId, builtins};

/// All resources, by path or by kind.
pub(crate) struct Registry {
    /// Sorted by group, version and plural.
    resources: Vec<Arc<Resource>>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let mut resources = builtins().to_vec();
        resources.sort_by(|one, other| path(one).cmp(&path(other)));
        Self { resources }
    }

    /// Returns the resource at a path.
    pub(crate) fn at_path(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| resource.is(group, plural) && resource.version == version)
    }

    /// Returns whether the group has built-in resources.
    pub(crate) fn has_builtin_group(&self, group: &str) -> bool {
        self.resources.iter().any(|resource| resource.group == group && !resource.custom)
    }

    /// Returns the resource of this name, in its first version.
    pub(crate) fn named(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| resource.is(group, plural))
    }

    /// Returns the resource of objects with this `apiVersion` and `kind`.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let fits =
            |resource: &&Arc<Resource>| resource.kind == kind && resource.group == group && resource.version == version;
        self.resources.iter().find(fits)
    }

    /// Adds resources, and replaces resources with the same path.
    pub(crate) fn add(&mut self, added: Vec<Arc<Resource>>) {
        for resource in added {
            match self.resources.binary_search_by(|other| path(other).cmp(&path(&resource))) {
                Ok(index) => self.resources[index] = resource,
                Err(index) => self.resources.insert(index, resource),
            }
        }
    }

    /// Removes all versions of a storage.
    pub(crate) fn remove(&mut self, storage: StorageId) {
        self.resources.retain(|resource| resource.storage != storage);
    }

    /// Returns all resources, sorted by group, version and plural.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.resources
    }
}

fn path(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.plural)
}
