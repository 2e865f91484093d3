//! The CRDs of ObjectBucketClaims and ObjectBuckets, which all tests share.

use anyhow::Context;
use kube::api::ListParams;
use kube::{Api, Client};
use objectbucket_api::{ClaimPhase, ObjectBucket, ObjectBucketClaim, Validation, crds};
use serde_json::json;

use super::{DEFAULT_LIMIT, apply, eventually};

/// Installs the charts' CRDs if necessary, and waits until the API server serves them. They are never removed because
/// concurrent tests use them.
pub async fn install_bucket_crds(client: &Client) -> anyhow::Result<()> {
    let definitions = crds(Validation::Strict).map(|definition| {
        let mut definition = json!(definition);
        definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
        definition["kind"] = "CustomResourceDefinition".into();
        definition
    });
    let (claims, buckets) = (Api::<ObjectBucketClaim>::all(client.clone()), Api::<ObjectBucket>::all(client.clone()));
    let served = eventually(DEFAULT_LIMIT, async || {
        // Two tests that create a CRD at once can conflict.
        let is_served = apply(client, &definitions).await.is_ok()
            && claims.list(&ListParams::default()).await.is_ok()
            && buckets.list(&ListParams::default()).await.is_ok();
        Ok(is_served.then_some(()))
    });
    served.await?.context("the API server does not serve ObjectBucketClaims and ObjectBuckets")
}

/// True if an ObjectBucketClaim is bound.
pub fn is_bucket_bound(claim: &ObjectBucketClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&ClaimPhase::Bound)
}
