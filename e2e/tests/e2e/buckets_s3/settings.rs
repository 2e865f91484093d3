//! Bucket settings in a claim's `additionalConfig`.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Value, json};
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::{Fixture, SOON};

const ALLOWED: &str = "ALLOWED_ADDITIONAL_CONFIG=bucketLifecycle,bucketPolicy,bucketTags,bucketVersioning";

// Rules: W7, W8, W15.
#[tokio::test]
async fn aws_policy_tags_and_versioning_follow_changes_of_the_claim() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-config").await?;
    let server = fixture.server();
    let key = server.variables();
    let program = fixture.spawn_with(&[&key[0], &key[1], ALLOWED], &["--cluster-id", "cluster-a"])?;
    program.wait_for_output("connected", SOON).await?;
    let admin = server.admin()?;
    let policy = json!({"Version": "2012-10-17", "Statement": [{
        "Sid": "reader", "Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
        "Action": "s3:GetObject", "Resource": "arn:aws:s3:::photos-of-ours/*",
    }]});
    let asked = json!({
        "bucketPolicy": policy.to_string(), "bucketTags": "team=shop,stage=test", "bucketVersioning": "Enabled",
    });
    fixture.bind("photos", "class", json!({"bucketName": "photos-of-ours", "additionalConfig": asked})).await?;
    let live = async || {
        let policy = admin.bucket_policy("photos-of-ours").await?;
        let mut tags = admin.bucket_tagging("photos-of-ours").await?;
        let ours = tags.iter().filter(|(key, _)| key.starts_with("kube-provisioner/")).count();
        tags.retain(|key, _| !key.starts_with("kube-provisioner/"));
        anyhow::Ok((policy.statement("reader").is_some(), tags, ours))
    };
    let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(live().await?, (true, tags(&[("team", "shop"), ("stage", "test")]), 3));
    assert_eq!(admin.bucket_tagging("photos-of-ours").await?["kube-provisioner/cluster-id"], "cluster-a");
    let becomes = async |config: Value, wanted: (bool, BTreeMap<String, String>, usize)| {
        fixture.patch("photos", json!({"spec": {"additionalConfig": config}})).await?;
        let found = eventually(SOON, async || Ok((live().await? == wanted).then_some(())));
        ensure!(found.await?.is_some(), "{:?} is not {wanted:?}", live().await?);
        anyhow::Ok(())
    };
    // moto's response about versioning differs from S3's, so check it with objects.
    let user = fixture.user("photos").await?;
    let versions = async |key: &str| {
        for text in ["one", "two"] {
            user.put(key, text).await?;
        }
        let all = admin.list_object_versions("photos-of-ours").await?;
        anyhow::Ok(all.iter().filter(|version| version.key == key).count())
    };
    assert_eq!(versions("kept").await?, 2);
    let fewer = json!({"bucketPolicy": null, "bucketTags": "stage=live", "bucketVersioning": "Suspended"});
    becomes(fewer, (false, tags(&[("stage", "live")]), 3)).await?;
    let mut tries = 0;
    let suspended = eventually(SOON, async || {
        tries += 1;
        Ok((versions(&format!("replaced-{tries}")).await? == 1).then_some(()))
    });
    ensure!(suspended.await?.is_some(), "the bucket still has versions");
    // A claim cannot overwrite the tags that prove the bucket's owner.
    fixture
        .patch("photos", json!({"spec": {"additionalConfig": {"bucketTags": "kube-provisioner/claim-uid=x"}}}))
        .await?;
    ensure!(fixture.message("photos", "InvalidConfig").await?.contains("is reserved"), "the tag is not refused");
    becomes(json!({"bucketTags": null, "bucketVersioning": null}), (false, tags(&[]), 3)).await?;
    // A policy that denies deletions to everyone does not keep the bucket.
    let locked = json!({"Version": "2012-10-17", "Statement": [{
        "Sid": "reader", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject",
        "Resource": "arn:aws:s3:::photos-of-ours/*",
    }]});
    becomes(json!({"bucketPolicy": locked.to_string()}), (true, tags(&[]), 3)).await?;
    fixture.done_without(&["photos"]).await
}
