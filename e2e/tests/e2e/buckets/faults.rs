//! A gateway that is down, slow, or modified externally, and a provisioner that is killed.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::bucket_cases::{BucketFixture as _, leaves_nothing_behind_when_killed_at_random};
use testbed::ceph::{Ceph, State};
use testbed::control_plane;
use testbed::progress;

use super::fixture::Fixture;

// Rules: Z13.
#[tokio::test]
async fn ceph_stopped_or_hanging_gateway_is_reported_and_retried() -> anyhow::Result<()> {
    let ceph = Ceph::start(&State::for_tests()?.guard(), &progress::silent()).await?;
    let fixture = Fixture::on(State::read(&ceph.state().path())?, "bucket-down").await?;
    let _program = fixture.start().await?;
    fixture.ceph.stop_rgw().await?;
    fixture.claim("photos", "class", json!({})).await?;
    let message = fixture.message("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("cannot be reached") || message.contains("connect"), "{message}");
    fixture.ceph.start_rgw().await?;
    fixture.bound("photos").await?;
    fixture.ceph.pause().await?;
    fixture.claim("videos", "class", json!({})).await?;
    let message = fixture.message("videos", "ProvisioningFailed").await?;
    ensure!(message.contains("did not answer"), "{message}");
    fixture.ceph.resume()?;
    fixture.bound("videos").await?;
    // An administrator removes a bucket directly on the gateway.
    let bucket = fixture.user("photos").await?.bucket;
    fixture.ceph.radosgw_admin(&["bucket", "rm", "--bucket", &bucket, "--purge-objects"]).await?;
    fixture.done_without(&["photos", "videos"]).await?;
    ceph.stop()
}

#[tokio::test]
async fn ceph_wrong_admin_keys_are_reported_and_new_keys_used() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-admin").await?;
    fixture.set_admin(&fixture.ceph.access_key, "wrong")?;
    fixture.claim("photos", "class", json!({})).await?;
    let message = fixture.message("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("key"), "{message}");
    ensure!(!message.contains(&fixture.ceph.access_key), "{message}");
    fixture.set_admin(&fixture.ceph.access_key, &fixture.ceph.secret_key)?;
    fixture.bound("photos").await?;
    fixture.done_without(&["photos"]).await
}

// Rules: Z1, Z2.
#[tokio::test]
async fn ceph_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    let fixture = Fixture::new("bucket-kill").await?;
    let quota = |limit: &str| json!({"additionalConfig": {"bucketMaxObjects": limit}});
    // Five users, each with one key after the overlap.
    let is_settled = async || {
        let users = fixture.users().await?;
        let mut keys = 0;
        for user in &users {
            let info = fixture.ceph.radosgw_admin(&["user", "info", "--uid", user]).await?;
            keys += info["keys"].as_array().map_or(0, Vec::len);
        }
        Ok((users.len(), keys) == (5, 5))
    };
    let claims = (|_| quota("5"), json!({"spec": quota("6")}));
    leaves_nothing_behind_when_killed_at_random(&fixture, &[("credentialsOverlap", "2s")], claims, is_settled).await?;
    fixture.done().await
}

// Rules: U10.
#[tokio::test]
async fn ceph_tls_trusts_the_authorities_in_the_secret_of_the_class() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("bucket-tls").await?;
    let admin = |ca_bundle: &str| -> anyhow::Result<Secret> {
        let data = json!({
            "accessKey": fixture.ceph.access_key, "secretKey": fixture.ceph.secret_key, "caBundle": ca_bundle,
        });
        Ok(serde_json::from_value(json!({"metadata": {"name": "admin"}, "stringData": data}))?)
    };
    // An authority that has not signed the gateway's certificate.
    let other_authority = &control_plane::State::for_tests()?.ca_pem;
    fixture.space.create(&admin(other_authority)?).await?;
    let parameters = [
        ("endpoint", fixture.ceph.https_endpoint.as_str()),
        ("adminSecretName", "admin"),
        ("adminSecretNamespace", fixture.space.namespace()),
    ];
    fixture.class("tls", &parameters).await?;
    fixture.claim("photos", "tls", json!({})).await?;
    let text = fixture.message("photos", "ProvisioningFailed").await?;
    ensure!(text.contains("certificate"), "{text}");

    let secrets = fixture.space.api::<Secret>();
    let mended = Patch::Merge(admin(&fixture.ceph.ca_pem)?);
    secrets.patch("admin", &PatchParams::default(), &mended).await?;
    fixture.bound("photos").await?;
    let map = fixture.space.api::<ConfigMap>().get("photos").await?.data.unwrap_or_default();
    assert_eq!(map.get("AWS_ENDPOINT_URL_S3"), Some(&fixture.ceph.https_endpoint));
    fixture.done_without(&["photos"]).await
}
