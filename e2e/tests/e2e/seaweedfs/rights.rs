//! What the key of a claim may do, and for how long.

use anyhow::Context;
use s3_client::iam::NewIdentity;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::bucket_rights as rights;

use super::fixture::Fixture;
use super::settings::LIFECYCLE;

#[tokio::test]
async fn seaweedfs_w1_w2_z8_z9_z16_a_pod_uses_its_bucket_and_nobody_elses_and_keys_rotate() -> anyhow::Result<()> {
    Fixture::case("weed-use", rights::a_pod_uses_its_bucket_and_nobody_elses_and_keys_rotate).await
}

#[tokio::test]
async fn seaweedfs_y4_claims_are_let_into_a_bucket_that_exists() -> anyhow::Result<()> {
    Fixture::case("weed-grant", rights::claims_are_let_into_a_bucket_that_exists).await
}

/// The policy that `docs/book/pages/use/seaweedfs.md` gives to the provisioner's key, word for word.
#[tokio::test]
async fn seaweedfs_the_documented_policy_is_enough() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/pages/use/seaweedfs.md"))?;
    let policy = page.split("```json").nth(1).and_then(|text| text.split("```").next());
    let fixture = Fixture::new("weed-least").await?;
    let (iam, tags) = (fixture.server().iam()?, Default::default());
    iam.create_user(NewIdentity { name: "provisioner", path: "/", tags: &tags, permissions_boundary: None }).await?;
    // A policy of a user alone has no right to make buckets.
    let created = iam.sdk().create_policy().policy_name("kube-provisioner");
    let created = created.policy_document(policy.context("the page has no policy")?).send().await?.policy;
    let arn = created.and_then(|policy| policy.arn).context("the policy has an ARN")?;
    iam.sdk().attach_user_policy().user_name("provisioner").policy_arn(arn).send().await?;
    let key = iam.create_access_key("provisioner").await?;
    let _program = fixture.spawn_with(&key)?;
    fixture.class_with("versions", &[("versioning", "true"), ("lifecycle", LIFECYCLE)]).await?;
    fixture.class_with("locks", &[("objectLock", "governance:1d")]).await?;
    for class in ["class", "versions", "locks"] {
        fixture.claim(class, class, json!({})).await?;
        fixture.bound(class).await?;
        let user = fixture.user(class).await?;
        if class != "locks" {
            user.put("cat", "miaow").await?;
        }
        fixture.delete(class).await?;
    }
    // It is no administrator of its own.
    assert_eq!(fixture.server().users().await?, ["provisioner"]);
    iam.sdk().delete_access_key().user_name("provisioner").access_key_id(key.access_key_id).send().await?;
    iam.delete_user("provisioner").await?;
    fixture.done().await
}
