//! Tags, versioning and placements that claims request.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::BucketFixture;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

// Rules: W15.
#[tokio::test]
async fn ceph_tags_and_versioning_follow_changes_of_the_claim() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-tags").await?;
    let asked =
        json!({"bucketTags": "team=shop", "bucketVersioning": "Enabled", "bucketPlacement": "default-placement"});
    let user = fixture.new_user("photos", "class", json!({"additionalConfig": asked})).await?;
    let live = async || {
        anyhow::Ok((
            user.client.bucket_tagging(&user.bucket).await?,
            user.client.bucket_versioning(&user.bucket).await?,
        ))
    };
    assert_eq!(live().await?, (BTreeMap::from([("team".to_owned(), "shop".to_owned())]), Some(true)));
    fixture
        .patch("photos", json!({"spec": {"additionalConfig": {"bucketTags": null, "bucketVersioning": "Suspended"}}}))
        .await?;
    let followed = eventually(SOON, async || Ok((live().await? == (BTreeMap::new(), Some(false))).then_some(())));
    ensure!(followed.await?.is_some(), "{:?}", live().await?);
    fixture.done_without(&["photos"]).await
}

// Rules: W16.
#[tokio::test]
async fn ceph_missing_placement_is_reported_and_buckets_never_move() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-placement").await?;
    fixture.claim("nowhere", "class", json!({"additionalConfig": {"bucketPlacement": "nowhere"}})).await?;
    fixture.wait_for_ready_message("nowhere", "InvalidLocationConstraint").await?;
    fixture.claim("ice", "class", json!({"additionalConfig": {"bucketStorageClass": "ICE"}})).await?;
    fixture.wait_for_ready_message("ice", "create the bucket").await?;
    for claim in ["nowhere", "ice"] {
        fixture.delete(claim).await?;
    }
    fixture.bind("photos", "class", json!({})).await?;
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"bucketPlacement": "elsewhere"}}})).await?;
    fixture.wait_for_ready_message("photos", "is in the placement default-placement").await?;
    ensure!(fixture.user("photos").await?.works().await, "the bucket no longer works");
    fixture.done_without(&["photos"]).await
}
