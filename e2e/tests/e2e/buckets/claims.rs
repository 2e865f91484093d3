//! The life of a claim, from its creation to objects in its bucket and its deletion.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DeleteParams;
use objectbucket_api::{BucketPhase, ObjectBucket};
use serde_json::{Value, json};
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

// Rules: W1, W2, Z16.
#[tokio::test]
async fn ceph_pod_can_use_only_its_own_bucket() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::started("bucket-use").await?;
    let claim = fixture.claim("photos", "class", json!({})).await?;
    fixture.claim("videos", "class", json!({})).await?;
    let bound = fixture.bound("photos").await?;
    fixture.bound("videos").await?;
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    assert_eq!(bound.spec.bucket_name.as_deref(), Some(&*format!("e2e-{uid}")));
    let object = bound.spec.object_bucket_name.clone().unwrap_or_default();
    let buckets = fixture.space.cluster_api::<ObjectBucket>();
    let object = buckets.get(&object).await?;
    assert_eq!(object.status.and_then(|status| status.phase), Some(BucketPhase::Bound));

    let (photos, videos) = (fixture.user("photos").await?, fixture.user("videos").await?);
    photos.put("cat", "miaow").await?;
    assert_eq!(photos.get("cat").await?.as_deref(), Some("miaow"));
    let error = videos.client.get_object(&photos.bucket, "cat").await.unwrap_err();
    assert_eq!(error.code(), "AccessDenied");
    // A claim's user cannot create other buckets.
    assert!(photos.client.create_bucket("another-one-of-mine", None).await.is_err());
    photos.client.delete_object(&photos.bucket, "cat").await?;

    photos.put("left", "behind").await?;
    fixture.delete("photos").await?;
    fixture.delete("videos").await?;
    for gone in ["photos", "videos"] {
        fixture.space.wait_gone(&fixture.space.api::<Secret>(), gone).await?;
        fixture.space.wait_gone(&fixture.space.api::<ConfigMap>(), gone).await?;
    }
    fixture.leaks_no_secrets(&program, &[&fixture.ceph.secret_key, &photos.secret, &videos.secret]).await?;
    fixture.done().await
}

// Rules: W5, W6, Y10.
#[tokio::test]
async fn ceph_quotas_hold_and_change() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-quota").await?;
    let user = fixture.new_user("photos", "class", json!({"additionalConfig": {"bucketMaxObjects": "1"}})).await?;
    user.put("a", "x").await?;
    assert_eq!(user.put("b", "x").await.unwrap_err().code(), "QuotaExceeded");
    // A higher quota allows more objects.
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"bucketMaxObjects": "2"}}})).await?;
    let raised = eventually(SOON, async || Ok(user.put("b", "x").await.ok()));
    ensure!(raised.await?.is_some(), "the quota is not raised");
    // A quota by size. The gateway counts in multiples of 4Ki, and caches its count for minutes.
    let small = fixture.new_user("small", "class", json!({"additionalConfig": {"bucketMaxSize": "4Ki"}})).await?;
    assert_eq!(
        small.client.put_object(&small.bucket, "large", "x".repeat(5000)).await.unwrap_err().code(),
        "QuotaExceeded"
    );
    small.put("small", "x").await?;
    fixture.delete("small").await?;
    for (limit, part) in [("-1", "negative"), ("0", "leave it out"), ("1e30", "more than any store holds")] {
        fixture.patch("photos", json!({"spec": {"additionalConfig": {"bucketMaxSize": limit}}})).await?;
        let told = eventually(SOON, async || {
            let message = fixture.message("photos", "InvalidConfig").await?;
            Ok(message.contains(part).then_some(()))
        });
        ensure!(told.await?.is_some(), "{limit} is not refused");
    }
    fixture.done_without(&["photos"]).await
}

// Rules: W7, W8.
#[tokio::test]
async fn ceph_policies_and_lifecycles_follow_changes_of_the_claim() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-policy").await?;
    let user = fixture.new_user("photos", "class", json!({})).await?;
    let policy = |action: &str| {
        json!({"Version": "2012-10-17", "Statement": [{
            "Sid": "mine", "Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/rgw-admin-ops-user"]},
            "Action": [action], "Resource": [format!("arn:aws:s3:::{}/*", user.bucket)],
        }]})
    };
    let has = async |action: Option<&str>| {
        let found = eventually(SOON, async || {
            let policy = user.client.bucket_policy(&user.bucket).await?;
            let statement = policy.statement("mine").map(Value::to_string);
            let as_wanted = match action {
                None => statement.is_none(),
                Some(action) => statement.is_some_and(|text| text.contains(action)),
            };
            Ok(as_wanted.then_some(()))
        });
        ensure!(found.await?.is_some(), "the policy is not {action:?}");
        anyhow::Ok(())
    };
    let lifecycle = r#"{"Rules":[{"ID":"a","Status":"Enabled","Filter":{"Prefix":"tmp/"},"Expiration":{"Days":1}}]}"#;
    let set = |key: &str, value: Value| json!({"spec": {"additionalConfig": {key: value}}});
    fixture.patch("photos", set("bucketPolicy", policy("s3:GetObject").to_string().into())).await?;
    has(Some("s3:GetObject")).await?;
    fixture.patch("photos", set("bucketPolicy", policy("s3:PutObject").to_string().into())).await?;
    has(Some("s3:PutObject")).await?;
    fixture.patch("photos", set("bucketLifecycle", lifecycle.into())).await?;
    let live =
        eventually(SOON, async || Ok((!user.client.bucket_lifecycle(&user.bucket).await?.is_empty()).then_some(())));
    ensure!(live.await?.is_some(), "there is no lifecycle");
    fixture.patch("photos", set("bucketPolicy", "no JSON".into())).await?;
    fixture.message("photos", "InvalidConfig").await?;
    fixture.patch("photos", json!({"spec": {"additionalConfig": null}})).await?;
    has(None).await?;
    let gone =
        eventually(SOON, async || Ok(user.client.bucket_lifecycle(&user.bucket).await?.is_empty().then_some(())));
    ensure!(gone.await?.is_some(), "the lifecycle is not removed");
    fixture.done_without(&["photos"]).await
}

// Rules: Z9.
#[tokio::test]
async fn ceph_keys_rotate_with_an_overlap() -> anyhow::Result<()> {
    let fixture = Fixture::new("bucket-rotate").await?;
    fixture.class("short", &[("credentialsOverlap", "8s")]).await?;
    let _program = fixture.start().await?;
    let before = fixture.new_user("photos", "short", json!({})).await?;
    fixture.request_key_rotation("photos", "now").await?;
    let after = fixture.next_user("photos", &before).await?;
    after.put("a", "x").await?;
    assert_eq!(before.get("a").await?.as_deref(), Some("x"), "the old key works during the overlap");
    let retired = eventually(SOON, async || Ok(before.get("a").await.is_err().then_some(())));
    ensure!(retired.await?.is_some(), "the old key keeps working");
    assert_eq!(after.get("a").await?.as_deref(), Some("x"));
    // A lost Secret is recreated with the same key.
    fixture.space.api::<Secret>().delete("photos", &DeleteParams::default()).await?;
    fixture.space.wait_for_within(SOON, &fixture.space.api::<Secret>(), "photos", "back", |_| true).await?;
    assert_eq!(fixture.user("photos").await?.id, after.id);
    fixture.done_without(&["photos"]).await
}

// Rules: W9, W11, W12, W13.
#[tokio::test]
async fn ceph_existing_bucket_owner_is_used_and_kept() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-owner").await?;
    let owner = format!("owner-{}", fixture.space.namespace());
    fixture.claim("early", "class", json!({"additionalConfig": {"bucketOwner": owner}})).await?;
    fixture.message("early", "ProvisioningFailed").await?;
    fixture.ceph.radosgw_admin(&["user", "create", "--uid", &owner, "--display-name", "somebody"]).await?;
    fixture.bound("early").await?;
    let user = fixture.new_user("late", "class", json!({"additionalConfig": {"bucketOwner": owner}})).await?;
    user.put("a", "x").await?;
    fixture.delete("late").await?;
    fixture.user("early").await?.put("b", "x").await?;
    fixture.delete("early").await?;
    fixture.ceph.radosgw_admin(&["user", "info", "--uid", &owner]).await?;
    let buckets = fixture.ceph.radosgw_admin(&["bucket", "list", "--uid", &owner]).await?;
    assert_eq!(buckets, json!([]), "the owner still has buckets");
    fixture.ceph.radosgw_admin(&["user", "rm", "--uid", &owner]).await?;
    fixture.done().await
}

#[tokio::test]
async fn ceph_restart_does_not_write_unchanged_objects() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::started("bucket-idle").await?;
    fixture.bind("photos", "class", json!({})).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let version = async || {
        let claim = fixture.space.api::<objectbucket_api::ObjectBucketClaim>().get("photos").await?;
        let object = claim.spec.object_bucket_name.clone().unwrap_or_default();
        let object = fixture.space.cluster_api::<ObjectBucket>().get(&object).await?;
        let secret = fixture.space.api::<Secret>().get("photos").await?;
        anyhow::Ok([
            claim.metadata.resource_version,
            object.metadata.resource_version,
            secret.metadata.resource_version,
        ])
    };
    let before = version().await?;
    drop(program);
    let _again = fixture.start().await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(version().await?, before);
    fixture.done_without(&["photos"]).await
}

// Rules: W3, W4.
#[tokio::test]
async fn ceph_user_quota_is_enforced_and_raised() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-user-quota").await?;
    let user = fixture.new_user("photos", "class", json!({"additionalConfig": {"maxObjects": "2"}})).await?;
    for key in ["a", "b"] {
        user.put(key, "x").await?;
    }
    // The gateway counts a user's objects with some delay.
    let mut number = 0;
    let refused = eventually(SOON, async || {
        number += 1;
        let answer = user.client.put_object(&user.bucket, &format!("more-{number}"), "x").await;
        Ok(answer.err().filter(|error| error.code() == "QuotaExceeded"))
    });
    ensure!(refused.await?.is_some(), "the quota of two objects is not enforced");
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"maxObjects": "1000"}}})).await?;
    let raised = eventually(SOON, async || Ok(user.put("c", "x").await.ok()));
    ensure!(raised.await?.is_some(), "the quota is not raised");
    fixture.done_without(&["photos"]).await
}

// Rules: W10, Y10.
#[tokio::test]
async fn ceph_bucket_owner_can_be_unset_but_not_changed() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-owners").await?;
    let owners = ["one", "two"].map(|name| format!("{name}-{}", fixture.space.namespace()));
    for owner in &owners {
        fixture.ceph.radosgw_admin(&["user", "create", "--uid", owner, "--display-name", owner]).await?;
    }
    let user = fixture.new_user("photos", "class", json!({"additionalConfig": {"bucketOwner": owners[0]}})).await?;
    user.put("a", "x").await?;
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"bucketOwner": owners[1]}}})).await?;
    let message = fixture.message("photos", "ProvisioningFailed").await?;
    ensure!(message.contains(&owners[0]), "{message}");
    assert_eq!(user.get("a").await?.as_deref(), Some("x"), "the bucket must stay with its owner");
    fixture.patch("photos", json!({"spec": {"additionalConfig": {"bucketOwner": null}}})).await?;
    fixture.message("photos", "Bound").await?;
    assert_eq!(user.get("a").await?.as_deref(), Some("x"), "the bucket must keep its owner");
    fixture.delete("photos").await?;
    for owner in &owners {
        fixture.ceph.radosgw_admin(&["user", "rm", "--uid", owner]).await?;
    }
    fixture.done().await
}

// Rules: Z14.
#[tokio::test]
async fn ceph_versions_and_open_uploads_are_deleted_with_the_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-versions").await?;
    let user = fixture.new_user("photos", "class", json!({})).await?;
    user.client.put_bucket_versioning(&user.bucket, true).await?;
    for _ in 0..3 {
        user.put("a", "x").await?;
    }
    user.client.delete_object(&user.bucket, "a").await?;
    user.client.sdk().create_multipart_upload().bucket(&user.bucket).key("large").send().await?;
    fixture.done_without(&["photos"]).await
}
