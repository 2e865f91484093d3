//! Tests that apply to all bucket provisioners.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::{self as cases, BucketFixture as _};
use testbed::cluster::eventually;
use testbed::s3::proxy::Faults;

use super::fixture::{Fixture, SOON};

mod garage_cases {
    crate::store_cases::store_cases!(super::Fixture, "garage", &[]);
}

// Rules: Z34.
#[tokio::test]
async fn garage_only_orphans_are_found_and_removed() -> anyhow::Result<()> {
    let case = async |fixture: &Fixture| {
        cases::orphans_are_found_and_removed(fixture, async |more: &[&str]| fixture.orphans(more).await).await
    };
    Fixture::case("garage-orphans", case).await
}

// Rules: Z1, Z2.
#[tokio::test]
async fn garage_killed_at_any_moment_nothing_is_left_or_created_twice() -> anyhow::Result<()> {
    let mut fixture = Fixture::new("garage-kill").await?;
    fixture.disturb(Faults::USUAL).await?;
    let mut program = fixture.start().await?;
    fixture.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.bound("owner").await?;
    fixture.class_with("granted", &[("bucketName", "shared-bucket")]).await?;
    program.kill().await?;
    let change = json!({"spec": {"additionalConfig": {"maxObjects": "1k"}}});
    let _program = fixture
        .survive_kills(("class", |kill| json!({"bucketName": format!("named-{kill}")}), change), || fixture.spawn())
        .await?;
    // Four claims and the owner's remain: after the overlap, each has one key for its bucket, and there are three
    // buckets.
    let settled = eventually(SOON, async || {
        let all = fixture.assets().await?;
        let keys = all.iter().filter(|asset| asset.starts_with("key ")).count();
        Ok(((keys, all.len()) == (5, 13)).then_some(()))
    });
    ensure!(settled.await?.is_some(), "{:?}", fixture.assets().await?);
    fixture.end_all_but("owner").await?;
    fixture.delete("owner").await?;
    fixture.done().await
}
