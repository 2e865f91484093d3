//! Several claims that share one bucket.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

#[tokio::test]
async fn ceph_grants_come_and_go_one_by_one() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-grant").await?;
    let name = format!("shared-{}", fixture.space.namespace());
    let owner = fixture.new_user("owner", "class", json!({"bucketName": name})).await?;
    owner.put("a", "x").await?;
    fixture.class("write", &[("bucketName", &name)]).await?;
    fixture.class("read", &[("bucketName", &name), ("accessMode", "read-only")]).await?;
    for (claim, class) in [("one", "write"), ("two", "write"), ("reader", "read")] {
        fixture.bind(claim, class, json!({})).await?;
    }
    let (one, two, reader) = (fixture.user("one").await?, fixture.user("two").await?, fixture.user("reader").await?);
    for user in [&one, &two, &reader] {
        let reads = eventually(SOON, async || Ok(user.get("a").await.ok().flatten()));
        ensure!(reads.await?.as_deref() == Some("x"), "a granted user cannot read");
    }
    one.put("b", "x").await?;
    two.put("c", "x").await?;
    assert_eq!(reader.put("d", "x").await.unwrap_err().code(), "AccessDenied");
    fixture.delete("one").await?;
    ensure!(one.get("a").await.is_err(), "a revoked user reads");
    assert_eq!(two.get("b").await?.as_deref(), Some("x"), "the others keep their access");
    assert_eq!(reader.get("b").await?.as_deref(), Some("x"));
    fixture.delete("two").await?;
    fixture.delete("reader").await?;
    // As in S3, objects of other users belong to them; the bucket and the owner's objects stay.
    assert_eq!(owner.get("a").await?.as_deref(), Some("x"));
    fixture.done_without(&["owner"]).await
}

#[tokio::test]
async fn ceph_a_bucket_that_does_not_exist_is_not_granted() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-nogrant").await?;
    fixture.class("missing", &[("bucketName", &format!("missing-{}", fixture.space.namespace()))]).await?;
    fixture.claim("waits", "missing", json!({})).await?;
    let message = fixture.message("waits", "ProvisioningFailed").await?;
    ensure!(message.contains("does not exist") || message.contains("no bucket"), "{message}");
    fixture.done_without(&["waits"]).await
}
