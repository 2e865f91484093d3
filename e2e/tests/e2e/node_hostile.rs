//! Tenants and classes that try to access more than their volume, on a real node.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testbed::cluster::{TestSpace, Variant};

#[tokio::test]
async fn node_symlink_out_of_a_volume_is_neither_mounted_nor_followed() -> anyhow::Result<()> {
    let space = TestSpace::new("links").await?;
    let installed = space.install(Variant::PerNode).await?;
    let secret = installed.root().parent().unwrap().join("secret");
    fs::create_dir_all(&secret)?;
    fs::write(secret.join("file"), "of somebody else")?;
    space.create_claim(testbed::cluster::claim("data", &installed.class("hostpath"))).await?;
    let script = format!("ln -s {} /data/link; ln -s / /data/all; mkdir /data/dir", secret.display());
    space.run(&space.script("planter", "data", &script)?).await?;
    let mut pod = space.script("user", "data", "cat /data/file")?;
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = json!("link");
    space.create::<Pod>(&serde_json::from_value(pod)?).await?;
    let refused = |pod: &Pod| {
        let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
        let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CreateContainerConfigError"))
    };
    space.wait_for(&space.api::<Pod>(), "user", "refused by the kubelet", refused).await?;
    space.delete_pod("user").await?;
    space.delete_pod("planter").await?;
    installed.delete_claim("data").await?;
    assert_eq!(fs::read_to_string(secret.join("file"))?, "of somebody else");
    space.done().await
}
