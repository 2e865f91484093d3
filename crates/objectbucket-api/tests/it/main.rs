//! Tests of the CRDs and types of ObjectBucketClaims and ObjectBuckets.

mod crds;
mod reading;
mod served;
mod simulated;
