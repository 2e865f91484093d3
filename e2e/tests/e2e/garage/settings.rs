//! Settings in a claim's `additionalConfig`, and the contents of buckets.

use anyhow::{Context, ensure};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use objectbucket_api::ObjectBucketClaim;
use serde_json::{Value, json};
use testbed::bucket_cases::BucketFixture as _;
use testbed::bucket_rights::Administered as _;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

const LIFECYCLE: &str =
    r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":"tmp/"},"Expiration":{"Days":30}}]}"#;
const TRANSITION: &str = r#"{"Rules":[{"ID":"cold","Status":"Enabled","Filter":{"Prefix":""},"Transitions":[{"Days":30,"StorageClass":"GLACIER"}]}]}"#;

/// Waits until the admin API shows the bucket in this state.
async fn becomes(fixture: &Fixture, bucket: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let mut last = Value::Null;
    let so = eventually(SOON, async || {
        last = fixture.server().bucket(bucket).await?.context("there is no bucket")?;
        Ok(is_so(&last).then_some(()))
    });
    so.await?.with_context(|| format!("{what}: {last}"))
}

#[tokio::test]
async fn garage_quotas_and_lifecycle_are_applied_and_removed() -> anyhow::Result<()> {
    let fixture = Fixture::new("garage-settings").await?;
    let allowed = ["--allowed-additional-config", "maxObjects,maxSize,bucketLifecycle"];
    let _program = fixture.spawn_with(&fixture.server().token, &allowed)?;
    let config = json!({"maxObjects": "2", "maxSize": "1Ki", "bucketLifecycle": LIFECYCLE});
    let user =
        fixture.new_user("photos", "class", json!({"bucketName": "my-photos", "additionalConfig": config})).await?;
    for name in ["one", "two"] {
        user.put(name, "x").await?;
    }
    let full = user.put("three", "x").await.err().context("the object quota is not enforced")?;
    ensure!(full.to_string().contains("quota"), "{full}");
    let large = user.client.put_object("my-photos", "two", vec![b'x'; 2000]).await;
    ensure!(large.is_err(), "the size quota is not enforced");
    becomes(&fixture, "my-photos", "the rules", |live| live["lifecycleRules"][0]["Expiration"]["Days"] == 30).await?;

    fixture.patch("photos", json!({"spec": {"additionalConfig": {"maxObjects": "3", "maxSize": null}}})).await?;
    let three = json!({"maxObjects": 3, "maxSize": null});
    becomes(&fixture, "my-photos", "the quotas", |live| live["quotas"] == three).await?;
    fixture.patch("photos", json!({"spec": {"additionalConfig": null}})).await?;
    let none = json!({"maxObjects": null, "maxSize": null});
    let is_bare = |live: &Value| live["quotas"] == none && live["lifecycleRules"].as_array().is_none_or(Vec::is_empty);
    becomes(&fixture, "my-photos", "no settings", is_bare).await?;

    // Garage would ignore this setting silently.
    fixture.claim("cold", "class", json!({"additionalConfig": {"bucketLifecycle": TRANSITION}})).await?;
    fixture.wait_for_ready_message("cold", "not a lifecycle that Garage supports").await?;
    fixture.done_without(&["cold", "photos"]).await
}

/// Names with a special meaning in URLs, in XML and for file systems, and an unfinished upload.
#[tokio::test]
async fn garage_all_contents_are_deleted_with_the_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("garage-names").await?;
    for (claim, names) in [("uploads", &[][..]), ("photos", &["a b+c%41&<ü>", "dir/", "dir/cat", "dir/sub/cat", "."])]
    {
        let user = fixture.new_user(claim, "class", json!({})).await?;
        for name in names {
            user.put(name, "x").await?;
        }
        let s3 = user.client.sdk();
        let upload = s3.create_multipart_upload().bucket(&user.bucket).key("big").send().await?;
        let part = s3.upload_part().bucket(&user.bucket).key("big").part_number(1);
        let part = part.set_upload_id(upload.upload_id).body(vec![0; 100_000].into());
        part.send().await?;
        fixture.delete(claim).await?;
    }
    fixture.done().await
}

#[tokio::test]
async fn garage_manually_created_bucket_is_never_adopted() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("garage-by-hand").await?;
    for name in ["empty-bucket", "full-bucket"] {
        let administrator = fixture.make_bucket(name).await?;
        if name == "full-bucket" {
            administrator.put_object(name, "x", "hello").await?;
        }
        let before = fixture.server().bucket(name).await?;
        fixture.claim(name, "class", json!({"bucketName": name})).await?;
        fixture.wait_for_ready_message(name, "was not created for this claim").await?;
        fixture.delete(name).await?;
        assert_eq!(fixture.server().bucket(name).await?, before);
        administrator.empty_bucket(name).await?;
        fixture.remove_bucket(name).await?;
    }
    fixture.done().await
}

/// A retained bucket still exists under its name, but no key can access it.
#[tokio::test]
async fn garage_retained_bucket_keeps_its_name_and_loses_its_keys() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("garage-retain").await?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "reclaimPolicy": "Retain",
        "metadata": {"name": fixture.space.cluster_wide_name("kept")}, "provisioner": fixture.space.provisioner(),
    });
    fixture.space.create_cluster_wide::<StorageClass>(&serde_json::from_value(class)?).await?;
    let user = fixture.new_user("photos", "kept", json!({"bucketName": "kept-photos"})).await?;
    user.put("cat", "miaow").await?;
    fixture.space.api::<ObjectBucketClaim>().delete("photos", &DeleteParams::default()).await?;
    let only = eventually(SOON, async || {
        Ok((fixture.assets().await?.into_iter().collect::<Vec<_>>() == ["kept-photos"]).then_some(()))
    });
    ensure!(only.await?.is_some() && !user.works().await, "{:?}", fixture.assets().await?);
    let owner = fixture.server().owner_of("kept-photos").await?;
    ensure!(owner.get_object("kept-photos", "cat").await?.is_some(), "the object no longer exists");
    owner.empty_bucket("kept-photos").await?;
    fixture.remove_bucket("kept-photos").await?;
    fixture.done().await
}
