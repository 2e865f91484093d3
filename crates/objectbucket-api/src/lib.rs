//! ObjectBucketClaim and ObjectBucket (`objectbucket.io/v1alpha1`): the types, their wire names, and their CRDs.
//!
//! * [`ObjectBucketClaim`] is a user's request for a bucket. [`ObjectBucket`] is the bucket provisioned for it.
//! * [`crds`] returns the CustomResourceDefinitions of both. The folder `crds/` contains them as YAML.
//! * [`names`] contains the names that provisioners and pods agree on: the finalizer, the label, the keys of the Secret
//!   and ConfigMap.
//!
//! Reading is lenient, because Go writers send `null` for every empty map and pointer, and `""` for every empty string:
//!
//! * `null`, a missing field and, for optional fields, `""` all mean that there is no value.
//! * An empty reference to the claim (`claimRef: {}`) counts as missing. Some existing CRDs prune it to that.
//! * An unknown phase or policy is kept as `Unknown`. One malformed object does not break the list that contains it.
//!
//! Writing never sends `null`, and omits empty optional fields. Fields that the types do not contain are not kept: if
//! you share an object with other writers, write it with patches.
//!
//! ```
//! use objectbucket_api::{ObjectBucketClaim, names};
//!
//! let claim: ObjectBucketClaim = serde_json::from_value(serde_json::json!({
//!     "metadata": {"namespace": "gallery", "name": "photos", "uid": "5ac4d1f0-8f3e-4a55-b8a1-5e2c0f1d9b77"},
//!     "spec": {"storageClassName": "fast", "bucketName": "", "generateBucketName": "photos", "additionalConfig": null},
//! }))?;
//! assert_eq!(claim.spec.bucket_name, None);
//!
//! let prefix = claim.spec.generate_bucket_name.as_deref().unwrap_or_default();
//! let uid = claim.metadata.uid.as_deref().unwrap_or_default();
//! assert_eq!(names::generated_bucket_name(prefix, uid), "photos-5ac4d1f0-8f3e-4a55-b8a1-5e2c0f1d9b77");
//! # Ok::<(), serde_json::Error>(())
//! ```

#![deny(missing_docs)]

mod bucket;
mod claim;
mod crd;
mod lenient;
pub mod names;
mod words;

pub use bucket::{ClaimReference, Endpoint, ObjectBucket, ObjectBucketSpec, ObjectBucketStatus};
pub use claim::{ObjectBucketClaim, ObjectBucketClaimSpec, ObjectBucketClaimStatus};
pub use crd::{Validation, crds};
pub use words::{BucketPhase, ClaimPhase, ReclaimPolicy};

/// The API group of both kinds.
pub const GROUP: &str = "objectbucket.io";
/// The only version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "objectbucket.io/v1alpha1";

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
