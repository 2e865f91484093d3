//! What the key of a claim may do, and for how long.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use s3_client::Error;
use s3_client::iam::NewIdentity;
use s3_client::policy::Policy;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::{BucketUser, eventually};

use crate::fixture::{Fixture, REGION, SOON};
use crate::settings::LIFECYCLE;

/// Fails unless this is refused for want of a right.
fn is_denied<T>(what: &str, answer: Result<T, Error>) -> anyhow::Result<()> {
    match answer {
        Err(error) if error.code() == "AccessDenied" => Ok(()),
        Err(error) => anyhow::bail!("{what}: {error}"),
        Ok(_) => anyhow::bail!("{what} is allowed"),
    }
}

/// Nothing beyond objects, and nothing of another bucket.
async fn has_no_other_rights(user: &BucketUser, other: &str) -> anyhow::Result<()> {
    let (client, bucket) = (&user.client, user.bucket.as_str());
    let public = json!({"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{bucket}/*")});
    let policy = Policy::parse(&json!({"Version": "2012-10-17", "Statement": [public]}).to_string())?;
    is_denied("making a bucket", client.create_bucket("another-one", Some(REGION)).await)?;
    is_denied("deleting its bucket", client.delete_bucket(bucket).await)?;
    is_denied("setting tags", client.put_bucket_tagging(bucket, &[("a".into(), "b".into())].into()).await)?;
    is_denied("setting a policy", client.put_bucket_policy(bucket, &policy).await)?;
    is_denied("deleting a policy", client.delete_bucket_policy(bucket).await)?;
    is_denied("reading another bucket", client.get_object(other, "x").await)?;
    is_denied("writing another bucket", client.put_object(other, "x", "y").await)?;
    is_denied("listing another bucket", client.list_object_versions(other).await)
}

#[tokio::test]
async fn seaweedfs_w1_w2_z8_z9_z16_a_pod_uses_its_bucket_and_nobody_elses_and_keys_rotate() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-use").await?;
    let program = fixture.start().await?;
    for claim in ["photos", "videos"] {
        fixture.claim(claim, "class", json!({})).await?;
        fixture.bound(claim).await?;
    }
    let (photos, videos) = (fixture.user("photos").await?, fixture.user("videos").await?);
    photos.put("cat", "miaow").await?;
    ensure!(photos.get("cat").await?.as_deref() == Some("miaow"), "the object is not there");
    has_no_other_rights(&photos, &videos.bucket).await?;
    has_no_other_rights(&videos, &photos.bucket).await?;

    fixture.ask_for_keys("photos", "now").await?;
    let after = fixture.next_user("photos", &photos).await?;
    ensure!(after.works().await && photos.works().await, "both keys work for some time");
    let retired = eventually(SOON, async || Ok((!photos.works().await).then_some(()))).await?;
    ensure!(retired.is_some() && after.works().await, "the old key works for ever");
    // A lost Secret comes back with a key that works: IAM shows a key only once.
    fixture.space.api::<Secret>().delete("photos", &DeleteParams::default()).await?;
    fixture.space.wait_for_within(SOON, &fixture.space.api::<Secret>(), "photos", "back", |_| true).await?;
    let back = fixture.user("photos").await?;
    ensure!(back.works().await && !after.works().await, "the new key does not work, or the lost one still does");

    fixture.delete("photos").await?;
    fixture.delete("videos").await?;
    let all = [&fixture.server().secret_key, &photos.secret, &videos.secret, &after.secret, &back.secret];
    fixture.is_discreet(&program, &all.map(String::as_str)).await?;
    fixture.done().await
}

#[tokio::test]
async fn seaweedfs_y4_claims_are_let_into_a_bucket_that_exists() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-grant").await?;
    let _program = fixture.start().await?;
    let admin = fixture.server().admin()?;
    for bucket in ["shared-bucket", "other-bucket"] {
        admin.create_bucket(bucket, Some(REGION)).await?;
        admin.put_object(bucket, "x", "hello").await?;
    }
    let before = fixture.assets().await?;
    for access in ["read-write", "read-only", "write-only"] {
        fixture.class_with(access, &[("bucketName", "shared-bucket"), ("accessMode", access)]).await?;
        fixture.claim(access, access, json!({})).await?;
        fixture.bound(access).await?;
        let user = fixture.user(access).await?;
        let (reads, writes) = (access != "write-only", access != "read-only");
        let list = user.client.list_object_versions("shared-bucket").await;
        match reads {
            true => ensure!(user.get("x").await?.is_some() && list.is_ok(), "{access} cannot read"),
            false => {
                is_denied("reading", user.get("x").await)?;
                is_denied("listing", list)?;
            }
        }
        match writes {
            true => {
                user.put("y", "yes").await?;
                user.client.delete_object("shared-bucket", "y").await?;
            }
            false => {
                is_denied("writing", user.put("y", "no").await)?;
                is_denied("deleting", user.client.delete_object("shared-bucket", "x").await)?;
            }
        }
        has_no_other_rights(&user, "other-bucket").await?;
    }
    // A bucket of somebody else is refused and stays.
    fixture.claim("thief", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.told("thief", "was not made for this claim").await?;
    for claim in ["read-write", "read-only", "write-only", "thief"] {
        fixture.delete(claim).await?;
    }
    assert_eq!(fixture.assets().await?, before);
    for bucket in ["shared-bucket", "other-bucket"] {
        ensure!(admin.get_object(bucket, "x").await?.is_some(), "somebody's object is gone");
        admin.empty_bucket(bucket).await?;
        admin.delete_bucket(bucket).await?;
    }
    fixture.done().await
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
