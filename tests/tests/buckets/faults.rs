//! A gateway that is down, slow, or changed behind our back, and a provisioner that is killed.

use anyhow::ensure;
use e2e::bucket_cases::BucketScene as _;
use e2e::ceph::{Ceph, Settings, State};
use e2e::cluster::eventually;
use e2e::control_plane;
use e2e::progress;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::fixture::{SOON, Scene};

#[tokio::test]
async fn ceph_z13_a_gateway_that_is_down_or_hangs_is_told_and_waited_for() -> anyhow::Result<()> {
    let ceph = Ceph::start(&Settings::default(), &State::for_tests()?.guard(), &progress::silent()).await?;
    let scene = Scene::on(State::read(&ceph.state().path())?, "bucket-down").await?;
    let _program = scene.start().await?;
    scene.ceph.stop_rgw().await?;
    scene.claim("photos", "class", json!({})).await?;
    let message = scene.message("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("cannot be reached") || message.contains("connect"), "{message}");
    scene.ceph.start_rgw().await?;
    scene.bound("photos").await?;
    scene.ceph.pause().await?;
    scene.claim("videos", "class", json!({})).await?;
    let message = scene.message("videos", "ProvisioningFailed").await?;
    ensure!(message.contains("has not answered"), "{message}");
    scene.ceph.resume()?;
    scene.bound("videos").await?;
    // Somebody removes a bucket behind our back.
    let bucket = scene.user("photos").await?.bucket;
    scene.ceph.radosgw_admin(&["bucket", "rm", "--bucket", &bucket, "--purge-objects"]).await?;
    scene.delete("photos").await?;
    scene.delete("videos").await?;
    scene.done().await?;
    ceph.stop()
}

#[tokio::test]
async fn ceph_wrong_admin_keys_are_told_and_new_ones_taken() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-admin").await?;
    let _program = scene.start().await?;
    scene.set_admin(&scene.ceph.access_key, "wrong")?;
    scene.claim("photos", "class", json!({})).await?;
    let message = scene.message("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("key"), "{message}");
    ensure!(!message.contains(&scene.ceph.access_key), "{message}");
    scene.set_admin(&scene.ceph.access_key, &scene.ceph.secret_key)?;
    scene.bound("photos").await?;
    scene.delete("photos").await?;
    scene.done().await
}

/// Claims come, change, rotate and go while the provisioner is killed at any moment.
#[tokio::test]
async fn ceph_z1_z2_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-kill").await?;
    scene.class("short", &[("credentialsOverlap", "2s")]).await?;
    let shared = format!("shared-{}", scene.space.namespace());
    let mut program = scene.start().await?;
    scene.claim("owner", "class", json!({"bucketName": shared})).await?;
    scene.bound("owner").await?;
    scene.class("granted", &[("bucketName", &shared)]).await?;
    program.kill().await?;
    let quota = |limit: &str| json!({"additionalConfig": {"bucketMaxObjects": limit}});
    let claims = ("short", |_| quota("5"), json!({"spec": quota("6")}));
    let _program = scene.survive_kills(claims, || scene.spawn()).await?;
    // Four claims are left, and the owner's: as many users, and after the overlap one key each.
    let settled = eventually(SOON, async || {
        let users = scene.users().await?;
        let mut keys = 0;
        for user in &users {
            let info = scene.ceph.radosgw_admin(&["user", "info", "--uid", user]).await?;
            keys += info["keys"].as_array().map_or(0, Vec::len);
        }
        Ok((users.len() == 5 && keys == 5).then_some(()))
    });
    ensure!(settled.await?.is_some(), "users: {:?}", scene.users().await?);
    scene.end_all_but("owner").await?;
    assert_eq!(scene.users().await?.len(), 1);
    scene.delete("owner").await?;
    scene.done().await
}

#[tokio::test]
async fn ceph_u10_tls_with_the_certificates_of_the_classs_secret() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-tls").await?;
    let _program = scene.start().await?;
    let admin = |ca_bundle: &str| -> anyhow::Result<Secret> {
        let data = json!({
            "accessKey": scene.ceph.access_key, "secretKey": scene.ceph.secret_key, "caBundle": ca_bundle,
        });
        Ok(serde_json::from_value(json!({"metadata": {"name": "admin"}, "stringData": data}))?)
    };
    // An authority that has not signed the gateway's certificate.
    let other_authority = &control_plane::State::for_tests()?.ca_pem;
    scene.space.create(&admin(other_authority)?).await?;
    let parameters = [
        ("endpoint", scene.ceph.https_endpoint.as_str()),
        ("adminSecretName", "admin"),
        ("adminSecretNamespace", scene.space.namespace()),
    ];
    scene.class("tls", &parameters).await?;
    scene.claim("photos", "tls", json!({})).await?;
    let text = scene.message("photos", "ProvisioningFailed").await?;
    ensure!(text.contains("certificate"), "{text}");

    let secrets = scene.space.api::<Secret>();
    let mended = Patch::Merge(admin(&scene.ceph.ca_pem)?);
    secrets.patch("admin", &PatchParams::default(), &mended).await?;
    scene.bound("photos").await?;
    let map = scene.space.api::<ConfigMap>().get("photos").await?.data.unwrap_or_default();
    assert_eq!(map.get("AWS_ENDPOINT_URL_S3"), Some(&scene.ceph.https_endpoint));
    scene.delete("photos").await?;
    scene.done().await
}
