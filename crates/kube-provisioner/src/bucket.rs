//! Buckets on request: the traits of bucket provisioners, with their arguments and results.
//!
//! An ObjectBucketClaim names a StorageClass, and the class names a provisioner. The provisioner creates a bucket and
//! an account with a key, and the claim's namespace receives a Secret and a ConfigMap that a pod can use with
//! `envFrom`.
//!
//! * **claim**: an ObjectBucketClaim, a user's request.
//! * **object bucket**: an ObjectBucket, the object that represents a bucket. It is written before anything is created,
//!   with all data that deletion needs.
//! * **bucket**: the bucket itself, in the **backend** that the provisioner talks to.
//! * **account**: an identity with access to buckets, by a key or by a service account.

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
pub use self::failure::{BackendConfigError, EmptyingTimeLimit, RequestFailure};
pub use self::hooks::BucketHooks;
pub use self::parameters::{Access, Authentication, DeletionPolicy, Limit, ServiceAccount, Versioning};
pub use self::provisioner::{BucketCapabilities, BucketProvisioner};
pub use self::recent::RecentlyCreated;
pub use self::request::{
    BucketLookup, BucketRequest, BucketStartContext, GrantOf, GrantRequest, GrantedAccount, ProvisionedBucket, Record,
    RequestOf,
};
#[cfg(feature = "planted-faults")]
pub use crate::controller::bucket::BucketSafeguard;
/// The API's types, wire names and CRDs; see [`objectbucket_api`].
pub use objectbucket_api;
