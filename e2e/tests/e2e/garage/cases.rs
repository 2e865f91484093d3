//! Tests that apply to all bucket provisioners.

use serde_json::json;
use testbed::bucket_cases::{self as cases, BucketFixture as _};
use testbed::s3::proxy::Faults;

use super::fixture::Fixture;

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
    let claims = (
        |kill| json!({"bucketName": format!("named-{kill}")}),
        json!({"spec": {"additionalConfig": {"maxObjects": "1k"}}}),
    );
    // After the overlap, each of five claims has one key for its bucket, and there are three buckets.
    let is_settled = async || {
        let all = fixture.assets().await?;
        let keys = all.iter().filter(|asset| asset.starts_with("key ")).count();
        Ok((keys, all.len()) == (5, 13))
    };
    cases::killed_at_any_moment_nothing_is_left(&fixture, &[], claims, is_settled).await?;
    fixture.done().await
}
