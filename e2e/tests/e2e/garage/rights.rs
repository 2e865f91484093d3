//! The permissions of a claim's key and their duration, and the permissions that the provisioner's token needs.

use anyhow::{Context, ensure};
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::bucket_rights as rights;

use super::fixture::Fixture;
use crate::bucket_clients::all_work;

// Rules: W1, W2, Z8, Z9, Z16.
#[tokio::test]
async fn garage_pod_uses_only_its_own_bucket_and_keys_rotate() -> anyhow::Result<()> {
    Fixture::case("garage-use", rights::a_pod_uses_only_its_own_bucket_and_keys_rotate).await
}

// Rules: Y4.
#[tokio::test]
async fn garage_claims_get_access_to_an_existing_bucket() -> anyhow::Result<()> {
    Fixture::case("garage-grant", rights::claims_get_access_to_an_existing_bucket).await
}

/// Access to a claim's own bucket can also be restricted, because in Garage the claim does not own the bucket.
#[tokio::test]
async fn garage_claim_can_restrict_access_to_its_own_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("garage-less").await?;
    for access in ["read-only", "write-only", "read-write"] {
        let name = format!("own-{access}");
        let config = json!({"bucketName": name, "additionalConfig": {"accessMode": access}});
        fixture.bind(access, "class", config).await?;
        fixture.server().owner_of(&name).await?.put_object(&name, "x", "hello").await?;
        rights::has_access(access, &fixture.user(access).await?, "x").await.context(access)?;
    }
    // A changed access mode applies to the same key.
    let before = fixture.user("read-only").await?;
    fixture.patch("read-only", json!({"spec": {"additionalConfig": {"accessMode": "write-only"}}})).await?;
    let changed = testbed::cluster::eventually(super::fixture::SOON, async || {
        Ok(rights::has_access("write-only", &before, "x").await.ok())
    });
    ensure!(changed.await?.is_some(), "the key still has the previous access");
    for access in ["read-only", "write-only", "read-write"] {
        fixture.delete(access).await?;
    }
    fixture.done().await
}

/// Runs boto3, the AWS CLI and rclone with only the entries of Secret and ConfigMap.
#[tokio::test]
async fn garage_clients_use_a_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("garage-clients").await?;
    all_work(&fixture).await?;
    fixture.done_without(&["photos"]).await
}

/// Uses the scope of the provisioner's token verbatim from `docs/book/pages/use/garage.md`.
#[tokio::test]
async fn garage_documented_scope_suffices() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/pages/use/garage.md"))?;
    let scope = page.split("--scope ").nth(1).and_then(|text| text.split_whitespace().next());
    let scope: Vec<&str> = scope.context("the page has no scope")?.split(',').collect();
    let fixture = Fixture::new("garage-least").await?;
    let token = fixture.server().ask("CreateAdminToken", Some(json!({"name": "provisioner", "scope": scope}))).await?;
    let token = token["secretToken"].as_str().context("the answer has no token")?;
    let program = fixture.spawn_with(token, &[])?;
    let config = json!({"maxObjects": "10", "accessMode": "read-write"});
    fixture.bind("photos", "class", json!({"additionalConfig": config})).await?;
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"accessMode": "write-only"}}})).await?;
    let user = fixture.user("photos").await?;
    fixture.request_key_rotation("photos", "now").await?;
    let next = fixture.next_user("photos", &user).await?;
    next.put("cat", "miaow").await?;
    fixture.class_with("granted", &[("bucketName", &next.bucket)]).await?;
    fixture.bind("granted", "granted", json!({})).await?;
    fixture.delete("granted").await?;
    fixture.delete("photos").await?;
    fixture.leaks_no_secrets(&program, &[token, &user.secret, &next.secret]).await?;
    fixture.done().await
}
