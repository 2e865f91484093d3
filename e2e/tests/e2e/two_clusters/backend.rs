//! What a play asks of a kind of storage.

use std::collections::BTreeSet;

use kube::core::ApiResource;
use serde_json::Value;
use testbed::cluster::{Program, TestSpace};

use super::inventory::Inventory;

/// The clusters: the one that lives on, and the one that is lost.
pub(crate) const EAST: usize = 0;
pub(crate) const WEST: usize = 1;
pub(crate) const BOTH: [usize; 2] = [EAST, WEST];

/// One backend of two clusters.
pub(crate) trait Backend {
    /// For figures.
    fn name(&self) -> &'static str;

    /// What tenants ask with.
    fn claims() -> ApiResource;

    /// The cluster-wide objects that stand for what was made.
    fn records() -> ApiResource;

    fn space(&self, side: usize) -> &TestSpace;

    fn spawn(&self, side: usize) -> anyhow::Result<Program>;

    /// A claim of this number. With `wanted`, it asks for a name in the backend, which the same claim of the other cluster asks
    /// for, too.
    fn claim(&self, name: &str, number: usize, wanted: bool) -> Value;

    fn is_bound(claim: &Value) -> bool;

    /// The paths in [`Inventory`] that stand for what a record stands for.
    fn assets(&self, record: &Value) -> BTreeSet<String>;

    /// All that is in the backend for claims.
    async fn inventory(&self) -> anyhow::Result<Inventory>;

    /// Writes as a pod with the claim's volume or Secret does.
    async fn write(&self, side: usize, claim: &str, file: &str, text: String) -> anyhow::Result<()>;

    /// Removes what nobody in this cluster needs, as a person does by a command.
    async fn clean(&self, side: usize) -> anyhow::Result<()>;

    /// Lets the claims of a restored backup of this very cluster have what was theirs, as a person does. Returns what was done.
    async fn take_over(&self, side: usize) -> anyhow::Result<String>;

    /// Does what a person may do in the wrong cluster, where the objects are another's, and deletes them in the end.
    async fn mistake(&self, side: usize) -> anyhow::Result<()>;

    async fn done(self) -> anyhow::Result<()>;
}
