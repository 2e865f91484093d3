//! Buckets on request: what an author of a bucket provisioner implements and is given.
//!
//! An ObjectBucketClaim names a StorageClass, the class names a provisioner, the provisioner makes a bucket and a user with
//! keys, and the claim's namespace gets a Secret and a ConfigMap that a pod takes with `envFrom`.
//!
//! * **claim**: an ObjectBucketClaim, what a user asks for.
//! * **object bucket**: an ObjectBucket, the object that stands for a bucket. It is written before anything is made, with all
//!   that deletion needs.
//! * **bucket**: the bucket itself, in the **backend** that the author's code talks to.

mod parameters;
mod provisioner;
mod recent;
mod request;

pub use self::parameters::{Access, Authentication, DeletionPolicy, ServiceAccount};
pub use self::provisioner::{BucketCapabilities, BucketProvisioner};
pub use self::recent::RecentlyCreated;
pub use self::request::{
    Bucket, BucketRequest, BucketStart, ClaimName, Credentials, Endpoint, MadeFor, ProvisionedBucket, RequestOf, Source,
};
#[cfg(feature = "planted-faults")]
pub use crate::controller::bucket::BucketSafeguard;
/// Who finds these names in a cluster; see [`objectbucket_api`].
pub use objectbucket_api;
