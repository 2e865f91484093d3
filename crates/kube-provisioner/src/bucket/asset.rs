//! The assets in a backend, which the command `orphans` compares with the ObjectBuckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::{Account, ClaimName};
use crate::secrets::Secrets;

/// The argument of [`BucketHooks::list_assets`](super::BucketHooks::list_assets).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListAssets<P> {
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The Secrets named by the class.
    pub secrets: Secrets,
    /// The cluster ID, as in [`BucketRequest::cluster_id`](super::BucketRequest::cluster_id).
    pub cluster_id: String,
}

impl<P> ListAssets<P> {
    /// Creates an argument, for use in tests. Its fields can be changed.
    pub fn new(parameters: P, secrets: Secrets, cluster_id: impl Into<String>) -> Self {
        Self { parameters: Arc::new(parameters), secrets, cluster_id: cluster_id.into() }
    }
}

/// The assets in a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assets {
    /// The buckets and users whose marks name a claim.
    pub found: Vec<Asset>,
    /// Sentences that name what could not be read. `found` contains nothing that depends on it.
    pub unread: Vec<String>,
}

/// A bucket or a user that was created for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asset {
    /// The kind of asset.
    pub kind: AssetKind,
    /// Its name in the backend.
    pub name: String,
    /// The claim's account. If marks do not separate the claim's namespace from its name, any split will do.
    pub owner: Account,
    /// The cluster that its mark names.
    pub cluster: MarkedCluster,
    /// True if the claim was released and its reclaim policy retained the bucket: the keys have been removed.
    pub retained: bool,
    /// The [`ProvisionedBucket::state`](super::ProvisionedBucket::state) that its removal requires.
    pub state: BTreeMap<String, String>,
}

/// The kind of an [`Asset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AssetKind {
    /// A bucket.
    Bucket,
    /// A user, or a service account, with its keys.
    Account,
}

/// The cluster that a mark names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkedCluster {
    /// The [cluster in question](ListAssets::cluster_id).
    This,
    /// Another cluster, as named by the mark.
    Other(String),
    /// No cluster: the mark was written by an earlier version.
    Unknown,
}

impl MarkedCluster {
    /// Compares the cluster that a mark names, if any, with this cluster.
    pub fn of(marked: Option<&str>, this: &str) -> Self {
        match marked {
            None => Self::Unknown,
            Some(marked) if marked == this => Self::This,
            Some(marked) => Self::Other(marked.to_owned()),
        }
    }
}

impl Asset {
    /// Creates an asset that was not retained and needs no state. Its fields can be changed.
    pub fn new(kind: AssetKind, name: impl Into<String>, owner: ClaimName, cluster: MarkedCluster) -> Self {
        let owner = Account::of(owner);
        Self { kind, name: name.into(), owner, cluster, retained: false, state: BTreeMap::new() }
    }
}
