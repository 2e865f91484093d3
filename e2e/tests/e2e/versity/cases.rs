//! What all provisioners of buckets do.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::{self as cases, BucketFixture as _};
use testbed::cluster::eventually;

use super::contract::FAULTS;
use super::fixture::{Fixture, SOON};

#[tokio::test]
async fn versity_u1_u3_u7_u8_y1_y5_claims_of_a_late_class_are_served() -> anyhow::Result<()> {
    Fixture::case("versity-late", cases::claims_of_a_late_class_are_served).await
}

#[tokio::test]
async fn versity_z3_z4_buckets_outlive_their_classes() -> anyhow::Result<()> {
    Fixture::case("versity-classes", cases::buckets_outlive_their_classes).await
}

#[tokio::test]
async fn versity_z5_z6_z7_z8_what_is_of_others_stays() -> anyhow::Result<()> {
    Fixture::case("versity-others", cases::what_is_of_others_stays).await
}

#[tokio::test]
async fn versity_z10_z11_claims_that_change_are_looked_at_at_once() -> anyhow::Result<()> {
    Fixture::case("versity-change", cases::claims_that_change_are_looked_at_at_once).await
}

#[tokio::test]
async fn versity_z12_a_replica_takes_over() -> anyhow::Result<()> {
    Fixture::case("versity-two", cases::a_replica_takes_over).await
}

#[tokio::test]
async fn versity_z14_a_full_bucket_goes_while_others_are_served() -> anyhow::Result<()> {
    const VERSIONS: &[(&str, &str)] = &[("versioning", "true")];
    let case = async |fixture: &Fixture| cases::a_full_bucket_goes_while_others_are_served(fixture, VERSIONS).await;
    Fixture::case("versity-full", case).await
}

#[tokio::test]
async fn versity_z17_a_bucket_with_objects_stays_if_its_class_says_so() -> anyhow::Result<()> {
    Fixture::case("versity-careful", cases::a_bucket_with_objects_stays_if_its_class_says_so).await
}

#[tokio::test]
async fn versity_z1_z2_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let mut fixture = Fixture::new("versity-kill").await?;
    fixture.disturb(FAULTS).await?;
    let mut program = fixture.start().await?;
    fixture.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.bound("owner").await?;
    fixture.class_with("granted", &[("bucketName", "shared-bucket")]).await?;
    program.kill().await?;
    let _program = fixture
        .survive_kills(("class", |kill| json!({"bucketName": format!("named-{kill}")}), json!({})), || fixture.spawn())
        .await?;
    // Four claims are left, and the owner's: as many users, and after the overlap one key each.
    let iam = fixture.server().iam()?;
    let settled = eventually(SOON, async || {
        let users = iam.users("/kube-provisioner/").await?;
        let mut keys = 0;
        for user in &users {
            keys += iam.access_keys(user).await?.len();
        }
        let buckets = fixture.server().admin()?.list_buckets().await?.len();
        Ok(((users.len(), keys, buckets) == (5, 5, 3)).then_some(()))
    });
    ensure!(settled.await?.is_some(), "{:?}", fixture.assets().await?);
    fixture.end_all_but("owner").await?;
    fixture.delete("owner").await?;
    fixture.done().await
}

#[tokio::test]
async fn versity_z30_claims_share_a_bucket() -> anyhow::Result<()> {
    Fixture::case("versity-share", cases::claims_share_a_bucket).await
}
