//! What all provisioners of buckets do.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::{self as cases, BucketFixture as _};
use testbed::cluster::eventually;

use super::contract::FAULTS;
use super::fixture::{Fixture, SOON};

#[tokio::test]
async fn garage_u1_u3_u7_u8_y1_y5_claims_of_a_late_class_are_served() -> anyhow::Result<()> {
    Fixture::case("garage-late", cases::claims_of_a_late_class_are_served).await
}

#[tokio::test]
async fn garage_z3_z4_buckets_outlive_their_classes() -> anyhow::Result<()> {
    Fixture::case("garage-classes", cases::buckets_outlive_their_classes).await
}

#[tokio::test]
async fn garage_z5_z6_z7_z8_what_is_of_others_stays() -> anyhow::Result<()> {
    Fixture::case("garage-others", cases::what_is_of_others_stays).await
}

#[tokio::test]
async fn garage_z10_z11_claims_that_change_are_looked_at_at_once() -> anyhow::Result<()> {
    Fixture::case("garage-change", cases::claims_that_change_are_looked_at_at_once).await
}

#[tokio::test]
async fn garage_z30_claims_share_a_bucket() -> anyhow::Result<()> {
    Fixture::case("garage-share", cases::claims_share_a_bucket).await
}

#[tokio::test]
async fn garage_z12_a_replica_takes_over() -> anyhow::Result<()> {
    Fixture::case("garage-two", cases::a_replica_takes_over).await
}

#[tokio::test]
async fn garage_z14_a_full_bucket_goes_while_others_are_served() -> anyhow::Result<()> {
    let case = async |fixture: &Fixture| cases::a_full_bucket_goes_while_others_are_served(fixture, &[]).await;
    Fixture::case("garage-full", case).await
}

#[tokio::test]
async fn garage_z17_a_bucket_with_objects_stays_if_its_class_says_so() -> anyhow::Result<()> {
    Fixture::case("garage-careful", cases::a_bucket_with_objects_stays_if_its_class_says_so).await
}

#[tokio::test]
async fn garage_z34_orphans_are_found_and_removed_and_nothing_else_is() -> anyhow::Result<()> {
    let case = async |fixture: &Fixture| {
        cases::orphans_are_found_and_removed(fixture, async |more: &[&str]| fixture.orphans(more).await).await
    };
    Fixture::case("garage-orphans", case).await
}

#[tokio::test]
async fn garage_z1_z2_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let mut fixture = Fixture::new("garage-kill").await?;
    fixture.disturb(FAULTS).await?;
    let mut program = fixture.start().await?;
    fixture.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.bound("owner").await?;
    fixture.class_with("granted", &[("bucketName", "shared-bucket")]).await?;
    program.kill().await?;
    let change = json!({"spec": {"additionalConfig": {"maxObjects": "1k"}}});
    let _program = fixture
        .survive_kills(("class", |kill| json!({"bucketName": format!("named-{kill}")}), change), || fixture.spawn())
        .await?;
    // Four claims are left, and the owner's: after the overlap one key each for its bucket, and three buckets.
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
