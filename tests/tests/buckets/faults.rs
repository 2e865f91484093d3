//! A gateway that is down, slow, or changed behind our back, and a provisioner that is killed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::ceph::{Ceph, Settings, State};
use e2e::cluster::eventually;
use e2e::control_plane;
use e2e::progress;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::fixture::{SOON, Scene, is_bound};

/// How often the provisioner is killed. `E2E_KILLS` is for longer runs.
fn kills() -> u64 {
    std::env::var("E2E_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12)
}

#[tokio::test]
async fn ceph_z13_a_gateway_that_is_down_or_hangs_is_told_and_waited_for() -> anyhow::Result<()> {
    let ceph = Ceph::start(&Settings::default(), &State::for_tests()?.guard(), &progress::silent()).await?;
    let scene = Scene::on(State::read(&ceph.state().path())?, "bucket-down").await?;
    let _program = scene.start(&["--retry-interval-max", "3s"]).await?;
    scene.ceph.stop_rgw().await?;
    scene.claim("photos", "class", json!({})).await?;
    let message = scene.told("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("cannot be reached") || message.contains("connect"), "{message}");
    scene.ceph.start_rgw().await?;
    scene.bound("photos").await?;
    scene.ceph.pause().await?;
    scene.claim("videos", "class", json!({})).await?;
    let message = scene.told("videos", "ProvisioningFailed").await?;
    ensure!(message.contains("has not answered"), "{message}");
    scene.ceph.resume()?;
    scene.bound("videos").await?;
    // Somebody removes a bucket behind our back.
    let bucket = scene.user("photos").await?.bucket;
    scene.ceph.radosgw_admin(&["bucket", "rm", "--bucket", &bucket, "--purge-objects"]).await?;
    scene.delete("photos").await?;
    scene.delete("videos").await?;
    scene.nothing_left().await?;
    scene.space.done().await?;
    ceph.stop()
}

#[tokio::test]
async fn ceph_wrong_admin_keys_are_told_and_new_ones_taken() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-admin").await?;
    let _program = scene.start(&["--retry-interval-max", "2s"]).await?;
    scene.set_admin(&scene.ceph.access_key, "wrong")?;
    scene.claim("photos", "class", json!({})).await?;
    let message = scene.told("photos", "ProvisioningFailed").await?;
    ensure!(message.contains("key"), "{message}");
    ensure!(!message.contains(&scene.ceph.access_key), "{message}");
    scene.set_admin(&scene.ceph.access_key, &scene.ceph.secret_key)?;
    scene.bound("photos").await?;
    scene.delete("photos").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}

/// Claims come, change, rotate and go while the provisioner is killed at any moment.
#[tokio::test]
async fn ceph_z1_z2_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-kill").await?;
    scene.class("short", &[("credentialsOverlap", "2s")]).await?;
    let shared = format!("shared-{}", scene.space.namespace());
    let mut program = scene.start(&[]).await?;
    scene.claim("owner", "class", json!({"bucketName": shared})).await?;
    scene.bound("owner").await?;
    scene.class("granted", &[("bucketName", &shared)]).await?;
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills() {
        let (made, granted) = (format!("made-{kill}"), format!("granted-{kill}"));
        scene.claim(&made, "short", json!({"additionalConfig": {"bucketMaxObjects": "5"}})).await?;
        scene.claim(&granted, "granted", json!({})).await?;
        if kill > 0 {
            let before = format!("made-{}", kill - 1);
            let rotation = json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": format!("{kill}")}},
                "spec": {"additionalConfig": {"bucketMaxObjects": "6"}}});
            scene.patch(&before, rotation).await?;
        }
        if kill > 1 {
            let claims = scene.space.api::<objectbucket_api::ObjectBucketClaim>();
            for gone in [format!("made-{}", kill - 2), format!("granted-{}", kill - 2)] {
                claims.delete(&gone, &kube::api::DeleteParams::default()).await?;
            }
        }
        moments = moments.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep(Duration::from_millis(moments >> 54)).await;
        program.kill().await?;
        program = scene.spawn(&[])?;
    }
    let last = kills() - 1;
    for claim in [format!("made-{last}"), format!("made-{}", last - 1), format!("granted-{last}")] {
        scene.bound(&claim).await?;
        let user = scene.user(&claim).await?;
        let works = eventually(SOON, async || Ok(user.get("nothing").await.is_ok().then_some(())));
        ensure!(works.await?.is_some(), "the keys of {claim} do not work");
    }
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
    let claims = scene.space.api::<objectbucket_api::ObjectBucketClaim>();
    let all = claims.list(&kube::api::ListParams::default()).await?;
    ensure!(all.iter().all(is_bound), "some claims are not bound");
    for claim in all.iter().filter_map(|claim| claim.metadata.name.clone()).filter(|name| name != "owner") {
        scene.delete(&claim).await?;
    }
    assert_eq!(scene.users().await?.len(), 1);
    scene.delete("owner").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}

#[tokio::test]
async fn ceph_z12_two_replicas_share_nothing_and_take_over() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-two").await?;
    let mut first = scene.start(&[]).await?;
    scene.claim("a", "class", json!({})).await?;
    scene.bound("a").await?;
    let _second = scene.start(&[]).await?;
    first.kill().await?;
    let start = Instant::now();
    scene.claim("b", "class", json!({})).await?;
    scene.bound("b").await?;
    ensure!(start.elapsed() < Duration::from_secs(20), "taking over took {:?}", start.elapsed());
    scene.delete("a").await?;
    scene.delete("b").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}

#[tokio::test]
async fn ceph_u10_tls_with_the_certificates_of_the_classs_secret() -> anyhow::Result<()> {
    let scene = Scene::new("bucket-tls").await?;
    let _program = scene.start(&[]).await?;
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
    let text = scene.told("photos", "ProvisioningFailed").await?;
    ensure!(text.contains("certificate"), "{text}");

    let secrets = scene.space.api::<Secret>();
    let mended = Patch::Merge(admin(&scene.ceph.ca_pem)?);
    secrets.patch("admin", &PatchParams::default(), &mended).await?;
    scene.bound("photos").await?;
    let map = scene.space.api::<ConfigMap>().get("photos").await?.data.unwrap_or_default();
    assert_eq!(map.get("AWS_ENDPOINT_URL"), Some(&scene.ceph.https_endpoint));
    scene.delete("photos").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}
