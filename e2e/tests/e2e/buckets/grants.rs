//! Several claims that share one bucket.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

#[tokio::test]
async fn ceph_grants_are_added_and_revoked_independently() -> anyhow::Result<()> {
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
    ensure!(one.get("a").await.is_err(), "a revoked user can still read");
    assert_eq!(two.get("b").await?.as_deref(), Some("x"), "other users must keep their access");
    assert_eq!(reader.get("b").await?.as_deref(), Some("x"));
    fixture.delete("two").await?;
    fixture.delete("reader").await?;
    // The bucket and the owner's objects remain; as in S3, each user owns the objects that it has written.
    assert_eq!(owner.get("a").await?.as_deref(), Some("x"));
    fixture.done_without(&["owner"]).await
}

#[tokio::test]
async fn ceph_access_to_a_missing_bucket_is_refused() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-nogrant").await?;
    fixture.class("missing", &[("bucketName", &format!("missing-{}", fixture.space.namespace()))]).await?;
    fixture.claim("waits", "missing", json!({})).await?;
    let message = fixture.message("waits", "ProvisioningFailed").await?;
    ensure!(message.contains("does not exist") || message.contains("no bucket"), "{message}");
    fixture.done_without(&["waits"]).await
}
