//! The controllers' decisions about an object, for programs that explain them, such as this project's kubectl plugin.
//!
//! **Unstable.** These are the controllers' internal types, behind the feature `unstable-explain`: any release may
//! change or remove them. A program that uses them must require one exact version of this crate.
//!
//! The rules are the controllers' own: objects of the API server pass through the same tables into the same pure
//! functions. Nothing is called and nothing is written. The enums name every state of rest and every refusal; they grow
//! with the rules, so that programs that match them must handle each new one.

use std::collections::BTreeMap;

use crate::bucket::{
    Bucket, BucketHooks, BucketProvisioner, GrantOf, Granted, GrantedAccount, ProvisionedBucket, RequestOf,
};
use crate::error::{DeleteError, ProvisionError};
use crate::hooks::Hooks;
use crate::provisioner::Provisioner;
use crate::request::{ProvisionRequest, ProvisionedVolume};
use crate::volume::Volume;

/// Decisions about claims and their volumes.
pub mod volume {
    pub use crate::controller::volume::decision::{Decision, Deletion, NoAction, Refusal};
    #[cfg(feature = "fuzzing")]
    pub use crate::controller::volume::explain::decide_from_bytes;
    pub use crate::controller::volume::explain::{Attempt, Judgement, Objects, about_claim, about_volume};
}

/// Decisions about ObjectBucketClaims and their ObjectBuckets.
pub mod bucket {
    pub use crate::controller::bucket::decision::{
        BucketClaimProblem, ChangeWithoutEffect, Decision, NoAction, Reason, Refusal, ReleaseMode,
    };
    pub use crate::controller::bucket::explain::{Delivery, Judgement, Objects, about_claim, delivered_names};
    pub use crate::controller::bucket::key::shard_text;
}

/// The content of a journal.
pub mod journal {
    pub use crate::cli::journal::{EntryObjects, table};
}

/// The installation of a provisioner whose decision is requested.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The name of the provisioner in classes.
    pub provisioner: String,
    /// The identity on its volumes, see [`Options::identity`](crate::Options::identity).
    pub identity: String,
    /// The cluster ID, see [`Options::cluster_id`](crate::Options::cluster_id).
    pub cluster_id: String,
    /// The node of the replica, if every node has its own replica.
    pub node: Option<String>,
}

/// The assumed capabilities of the provisioner. Only its code knows them, so callers request the decision for both
/// extremes: if the decisions are equal, the capabilities do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssumedCapabilities {
    /// Every feature that a claim or a class may use.
    All,
    /// Only the features that every provisioner supports.
    Least,
}

/// A provisioner that accepts all parameters.
pub(crate) struct AnyProvisioner;

impl Provisioner for AnyProvisioner {
    type Parameters = BTreeMap<String, String>;

    async fn provision(&self, _: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        Err(ProvisionError::retry("nothing is made here"))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Err(DeleteError::retry("nothing is deleted here"))
    }
}

impl Hooks for AnyProvisioner {}

impl BucketProvisioner for AnyProvisioner {
    type Parameters = BTreeMap<String, String>;
    type Config = BTreeMap<String, String>;

    async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        Err(ProvisionError::retry("nothing is made here"))
    }

    async fn delete_bucket(&self, _: ProvisionedBucket<Self::Parameters>) -> Result<(), DeleteError> {
        Err(DeleteError::retry("nothing is deleted here"))
    }

    async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        Err(ProvisionError::retry("nothing is made here"))
    }

    async fn revoke(&self, _: GrantedAccount<Self::Parameters>) -> Result<(), DeleteError> {
        Err(DeleteError::retry("nothing is deleted here"))
    }
}

impl BucketHooks for AnyProvisioner {}
