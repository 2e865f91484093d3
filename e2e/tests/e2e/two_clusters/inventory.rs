//! The contents of a backend, and their owners.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

/// All contents of a backend, by paths such as `bucket/NAME/OBJECT` or file paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory(pub(crate) BTreeMap<String, String>);

impl Inventory {
    /// The entries at these paths and below them.
    pub(crate) fn of(&self, assets: &BTreeSet<String>) -> Self {
        let is_of = |path: &str| ancestors(path).any(|path| assets.contains(path));
        Self(self.0.iter().filter(|(path, _)| is_of(path)).map(|(path, what)| (path.clone(), what.clone())).collect())
    }

    /// The paths that belong to no claim: neither to one of the assets, nor to a parent directory of one.
    pub(crate) fn without_owner(&self, assets: &BTreeSet<String>) -> Vec<&str> {
        let above: BTreeSet<&str> = assets.iter().flat_map(|path| ancestors(path)).collect();
        let is_somebodys = |path: &str| above.contains(path) || ancestors(path).any(|path| assets.contains(path));
        self.0.keys().map(String::as_str).filter(|path| !is_somebodys(path)).collect()
    }

    /// The paths and contents that tenants wrote, without users and marks, which an administrator may renew.
    pub(crate) fn data(&self) -> Self {
        let is_data = |path: &str| !path.starts_with("user/") && !path.starts_with(".kube-provisioner/");
        Self(self.0.iter().filter(|(path, _)| is_data(path)).map(|(path, what)| (path.clone(), what.clone())).collect())
    }

    /// True if an entry has exactly this content.
    pub(crate) fn holds(&self, text: &str) -> bool {
        self.0.values().any(|what| what == text)
    }

    /// Fails if an entry has changed.
    pub(crate) fn is_untouched_in(&self, now: &Self, when: &str) -> anyhow::Result<()> {
        let changed: Vec<_> = self.0.iter().filter(|(path, what)| now.0.get(*path) != Some(what)).collect();
        let first: Vec<_> = changed.iter().take(5).map(|(path, what)| (path, what, now.0.get(*path))).collect();
        ensure!(changed.is_empty(), "{when}: {} of {} things changed, such as {first:#?}", changed.len(), self.0.len());
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A path and its parents.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
}
