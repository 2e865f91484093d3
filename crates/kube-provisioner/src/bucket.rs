//! Buckets on request: what an author of a bucket provisioner implements and is given.
//!
//! An ObjectBucketClaim names a StorageClass, the class names a provisioner, the provisioner makes a bucket and an account with
//! a key, and the claim's namespace gets a Secret and a ConfigMap that a pod takes with `envFrom`.
//!
//! * **claim**: an ObjectBucketClaim, what a user asks for.
//! * **object bucket**: an ObjectBucket, the object that stands for a bucket. It is written before anything is made, with all
//!   that deletion needs.
//! * **bucket**: the bucket itself, in the **backend** that the author's code talks to.
//! * **account**: who is let into buckets, with a key or by a service account.

mod account;
mod answer;
mod asset;
mod endpoint;
mod failure;
mod hooks;
mod parameters;
mod provisioner;
mod recent;
mod request;

pub use self::account::{Account, BucketAccess, ClaimName, Owner};
pub use self::answer::{Bucket, Credentials, Granted};
pub use self::asset::{Asset, AssetKind, Assets, ListAssets, MarkedCluster};
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::failure::{Emptying, Misconfigured, Objection};
pub use self::hooks::BucketHooks;
pub use self::parameters::{Access, Authentication, DeletionPolicy, Limit, ServiceAccount, Versioning};
pub use self::provisioner::{BucketCapabilities, BucketProvisioner};
pub use self::recent::RecentlyCreated;
pub use self::request::{
    BucketLookup, BucketRequest, BucketStart, GrantOf, GrantRequest, GrantedAccount, ProvisionedBucket, Record,
    RequestOf,
};
#[cfg(feature = "planted-faults")]
pub use crate::controller::bucket::BucketSafeguard;
/// Who finds these names in a cluster; see [`objectbucket_api`].
pub use objectbucket_api;
