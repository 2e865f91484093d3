//! Several claims on one bucket.

use anyhow::ensure;
use e2e::bucket_cases::BucketScene as _;
use e2e::cluster::eventually;
use serde_json::json;

use super::fixture::{SOON, Scene};

#[tokio::test]
async fn ceph_grants_come_and_go_one_by_one() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-grant").await?;
    let _program = scene.start().await?;
    let name = format!("shared-{}", scene.space.namespace());
    scene.claim("owner", "class", json!({"bucketName": name})).await?;
    scene.bound("owner").await?;
    let owner = scene.user("owner").await?;
    owner.put("a", "x").await?;
    scene.class("write", &[("bucketName", &name)]).await?;
    scene.class("read", &[("bucketName", &name), ("accessMode", "read-only")]).await?;
    for (claim, class) in [("one", "write"), ("two", "write"), ("reader", "read")] {
        scene.claim(claim, class, json!({})).await?;
        scene.bound(claim).await?;
    }
    let (one, two, reader) = (scene.user("one").await?, scene.user("two").await?, scene.user("reader").await?);
    for user in [&one, &two, &reader] {
        let reads = eventually(SOON, async || Ok(user.get("a").await.ok().flatten()));
        ensure!(reads.await?.as_deref() == Some("x"), "a granted user cannot read");
    }
    one.put("b", "x").await?;
    two.put("c", "x").await?;
    assert_eq!(reader.put("d", "x").await.unwrap_err().code(), "AccessDenied");
    scene.delete("one").await?;
    ensure!(one.get("a").await.is_err(), "a revoked user reads");
    assert_eq!(two.get("b").await?.as_deref(), Some("x"), "the others keep their access");
    assert_eq!(reader.get("b").await?.as_deref(), Some("x"));
    scene.delete("two").await?;
    scene.delete("reader").await?;
    // What others have written is theirs, as S3 has it; the bucket and what the owner wrote stay.
    assert_eq!(owner.get("a").await?.as_deref(), Some("x"));
    scene.delete("owner").await?;
    scene.done().await
}

#[tokio::test]
async fn ceph_a_bucket_that_does_not_exist_is_not_granted() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-nogrant").await?;
    let _program = scene.start().await?;
    scene.class("missing", &[("bucketName", &format!("missing-{}", scene.space.namespace()))]).await?;
    scene.claim("waits", "missing", json!({})).await?;
    let message = scene.message("waits", "ProvisioningFailed").await?;
    ensure!(message.contains("does not exist") || message.contains("no bucket"), "{message}");
    scene.delete("waits").await?;
    scene.done().await
}
