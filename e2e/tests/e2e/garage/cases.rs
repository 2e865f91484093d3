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
async fn garage_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    let mut fixture = Fixture::new("garage-kill").await?;
    fixture.disturb(Faults::USUAL).await?;
    let claims = (
        |kill| json!({"bucketName": format!("named-{kill}")}),
        json!({"spec": {"additionalConfig": {"maxObjects": "1k"}}}),
    );
    // After the overlap, each of five claims has one key for its bucket, and there are three buckets. The change of the
    // claim before the last set a limit.
    let is_settled = async || {
        let all = fixture.assets().await?;
        let keys = all.iter().filter(|asset| asset.starts_with("key ")).count();
        Ok((keys, all.len()) == (5, 14))
    };
    cases::leaves_nothing_behind_when_killed_at_random(&fixture, &[], claims, is_settled).await?;
    fixture.done().await
}
