//! Many claims at once.

use std::time::Instant;

use kube::api::{DeleteParams, ListParams};
use objectbucket_api::ObjectBucketClaim;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::is_bucket_bound;

use super::fixture::{Fixture, SOON};

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a figure for people")]
async fn ceph_hundred_claims_at_once_are_bound_and_deleted() -> anyhow::Result<()> {
    const COUNT: usize = 100;
    let (fixture, _program) = Fixture::started("bucket-many").await?;
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let start = Instant::now();
    for at in 0..COUNT {
        fixture.claim(&format!("claim-{at}"), "class", json!({})).await?;
    }
    let count = async |limit, wanted: usize, bound: bool| {
        let reached = testbed::cluster::eventually(limit, async || {
            let all = claims.list(&ListParams::default()).await?;
            let now = if bound { all.iter().filter(|claim| is_bucket_bound(claim)).count() } else { all.items.len() };
            Ok((now == wanted).then_some(()))
        });
        anyhow::ensure!(reached.await?.is_some(), "the number of claims is not {wanted} in time");
        anyhow::Ok(())
    };
    count(4 * SOON, COUNT, true).await?;
    let bound = start.elapsed();
    assert_eq!(fixture.users().await?.len(), COUNT);
    let start = Instant::now();
    for at in 0..COUNT {
        claims.delete(&format!("claim-{at}"), &DeleteParams::default()).await?;
    }
    count(4 * SOON, 0, false).await?;
    eprintln!("{COUNT} claims bound in {bound:.1?}, deleted in {:.1?}", start.elapsed());
    fixture.done().await
}
