//! What a backend has for the claims of a cluster, as the command `orphans` compares it with the ObjectBuckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::{Account, ClaimName};
use crate::secrets::Secrets;

/// Where [`BucketHooks::list_assets`](super::BucketHooks::list_assets) looks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListAssets<P> {
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The Secrets that the class names.
    pub secrets: Secrets,
    /// The cluster, as [`BucketRequest::cluster_id`](super::BucketRequest::cluster_id).
    pub cluster_id: String,
}

impl<P> ListAssets<P> {
    /// For an author's own tests. Its fields may be changed.
    pub fn new(parameters: P, secrets: Secrets, cluster_id: impl Into<String>) -> Self {
        Self { parameters: Arc::new(parameters), secrets, cluster_id: cluster_id.into() }
    }

    pub(crate) fn of(parameters: Arc<P>, secrets: Secrets, cluster_id: String) -> Self {
        Self { parameters, secrets, cluster_id }
    }
}

/// What a backend has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assets {
    /// The buckets and users whose marks name a claim.
    pub found: Vec<Asset>,
    /// What could not be read, as sentences. Nothing that it may be a part of is in `found`.
    pub unread: Vec<String>,
}

/// A bucket or a user that was made for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asset {
    /// What it is.
    pub kind: AssetKind,
    /// Its name in the backend.
    pub name: String,
    /// For whom it was made. Where marks do not tell the claim's namespace from its name, any division will do.
    pub owner: Account,
    /// Which cluster its mark names.
    pub cluster: MarkedCluster,
    /// Whether its claim was released and the bucket was to stay, by the reclaim policy: the keys are gone.
    pub retained: bool,
    /// What [`ProvisionedBucket::state`](super::ProvisionedBucket::state) has to be to remove it.
    pub state: BTreeMap<String, String>,
}

/// What an [`Asset`] is.
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
    /// [The one of the question](ListAssets::cluster_id).
    This,
    /// Another one, as the mark names it.
    Other(String),
    /// None: the mark is an earlier version's.
    Unknown,
}

impl MarkedCluster {
    /// That of a mark which names this cluster, or none.
    pub fn of(marked: Option<&str>, this: &str) -> Self {
        match marked {
            None => Self::Unknown,
            Some(marked) if marked == this => Self::This,
            Some(marked) => Self::Other(marked.to_owned()),
        }
    }
}

impl Asset {
    /// One that was not retained and needs no state. Its fields may be changed.
    pub fn new(kind: AssetKind, name: impl Into<String>, owner: ClaimName, cluster: MarkedCluster) -> Self {
        let owner = Account::of(owner);
        Self { kind, name: name.into(), owner, cluster, retained: false, state: BTreeMap::new() }
    }
}
