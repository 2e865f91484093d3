//! The interface between the scenario and a kind of storage.

use std::collections::BTreeSet;

use kube::core::ApiResource;
use serde_json::Value;
use testbed::cluster::{Program, TestSpace};

use super::inventory::Inventory;

/// The clusters: the surviving one, and the one that is lost.
pub(crate) const EAST: usize = 0;
pub(crate) const WEST: usize = 1;
pub(crate) const BOTH: [usize; 2] = [EAST, WEST];

/// A backend that two clusters share.
pub(crate) trait Backend {
    /// The name in figures.
    fn name(&self) -> &'static str;

    /// The kind of the claims.
    fn claims() -> ApiResource;

    /// The cluster-scoped kind that represents provisioned assets.
    fn records() -> ApiResource;

    fn space(&self, side: usize) -> &TestSpace;

    fn spawn(&self, side: usize) -> anyhow::Result<Program>;

    /// A claim with this number. With `wanted`, it requests a name in the backend that the same claim in the other
    /// cluster also requests.
    fn claim(&self, name: &str, number: usize, wanted: bool) -> Value;

    fn is_bound(claim: &Value) -> bool {
        claim["status"]["phase"] == "Bound"
    }

    /// The paths in [`Inventory`] of the assets that a record represents.
    fn assets(&self, record: &Value) -> BTreeSet<String>;

    /// All assets of claims in the backend.
    async fn inventory(&self) -> anyhow::Result<Inventory>;

    /// Writes like a pod with the claim's volume or Secret.
    async fn write(&self, side: usize, claim: &str, file: &str, text: String) -> anyhow::Result<()>;

    /// Removes the assets that this cluster does not use, like an administrator with a command.
    async fn clean(&self, _side: usize) -> anyhow::Result<()> {
        Ok(())
    }

    /// Gives the claims of a restored backup of this cluster their assets back, like an administrator. Returns a
    /// summary.
    async fn take_over(&self, side: usize) -> anyhow::Result<String>;

    /// Makes the mistakes that an administrator could make with another cluster's objects, and finally deletes the
    /// objects.
    async fn misuse_objects(&self, side: usize) -> anyhow::Result<()>;

    async fn done(self) -> anyhow::Result<()>;
}
