//! What the controllers decide about an object, for programs that explain it, such as the kubectl plugin of this project.
//!
//! **Unstable.** These are the controllers' internal types, behind the feature `unstable-explain`: any release may change or
//! remove them. A program that uses them must require one exact version of this crate.
//!
//! The rules are the controllers' own: objects of the API server go through the same tables into the same pure functions.
//! Nothing is called and nothing is written. The enums name every rest and every refusal; they grow with the rules, so that
//! who matches them has to say something about each.

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
    pub use crate::controller::volume::explain::{Attempt, Judgement, Objects, about_claim, about_volume};
}

/// Decisions about claims of buckets and their ObjectBuckets.
pub mod bucket {
    pub use crate::controller::bucket::decision::{
        BucketClaimProblem, ChangeWithoutEffect, Decision, Ending, NoAction, Reason, Refusal,
    };
    pub use crate::controller::bucket::explain::{Delivery, Judgement, Objects, about_claim, delivered_names};
    pub use crate::controller::bucket::key::shard_text;
}

/// What a journal records.
pub mod journal {
    pub use crate::cli::journal::{EntryObjects, table};
}

/// The installation of a provisioner whose decision is asked for.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The provisioner, as classes name it.
    pub provisioner: String,
    /// What its volumes carry, see [`Options::identity`](crate::Options::identity).
    pub identity: String,
    /// The cluster, see [`Options::cluster_id`](crate::Options::cluster_id).
    pub cluster_id: String,
    /// The node of the replica, where every node has one of its own.
    pub node: Option<String>,
}

/// What the author's code can do. Only that code knows it, so both ends are asked for: where the decisions are the same,
/// the code makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Able {
    /// All that a claim or a class may ask for.
    All,
    /// No more than every provisioner can.
    Least,
}

/// Author's code that takes all parameters.
pub(crate) struct Anything;

impl Provisioner for Anything {
    type Parameters = BTreeMap<String, String>;

    async fn provision(&self, _: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        Err(ProvisionError::retry("nothing is made here"))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Err(DeleteError::retry("nothing is deleted here"))
    }
}

impl Hooks for Anything {}

impl BucketProvisioner for Anything {
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

impl BucketHooks for Anything {}
