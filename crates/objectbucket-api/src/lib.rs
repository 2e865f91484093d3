//! ObjectBucketClaim and ObjectBucket (`objectbucket.io/v1alpha1`): the types, their names on the wire, and their CRDs.
//!
//! * [`ObjectBucketClaim`] is what a user writes: a bucket, please. [`ObjectBucket`] is the bucket that was made for it.
//! * [`crds`] are the CustomResourceDefinitions of both. The folder `crds/` holds the same as YAML.
//! * [`names`] holds what provisioners and pods agree on: the finalizer, the label, the keys of the Secret and ConfigMap.
//!
//! Reading is lenient, since Go writers send `null` for every empty map and pointer, and `""` for every empty string:
//!
//! * `null`, a missing field and, where a field is optional, `""` are all the same: nothing.
//! * An empty reference to the claim (`claimRef: {}`) is none. Some CRDs of the field prune it to that.
//! * A phase or policy that nobody knows is kept, as `Unknown`. One odd object does not stop the list that it is in.
//!
//! Writing never sends `null`, and leaves empty optional fields out.

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
