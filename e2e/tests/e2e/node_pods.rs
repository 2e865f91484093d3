//! Volumes as pods on a real node see them. The prefixes of the names refer to test cases of other provisioners.

use std::fs;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::cluster::{Installed, TestSpace, Variant};

use crate::hostpath::fixture::path_of;

/// Creates a claim in a class of the manifests.
async fn claim(space: &TestSpace, installed: &Installed<'_>, name: &str, class: &str) -> anyhow::Result<()> {
    space.create_claim(testbed::cluster::claim(name, &installed.class(class))).await?;
    Ok(())
}

/// Creates a claim in a class with delayed binding and these parameters.
async fn claim_with(space: &TestSpace, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
    let class = space.waiting_class_with("class", parameters.iter().copied()).await?;
    space.create_claim(space.claim("data", &class)).await?;
    Ok(())
}

#[tokio::test]
async fn node_pod_writes_to_a_volume_of_the_default_type() -> anyhow::Result<()> {
    let space = TestSpace::new("p1").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim_with(&space, &[]).await?;
    assert_eq!(space.run(&space.script("pod", "data", "echo hello > /data/file; cat /data/file")?).await?, "hello");
    let (_, volume) = space.wait_bound("data").await?;
    assert!(volume.spec.as_ref().unwrap().host_path.is_some());
    assert_eq!(path_of(&volume), installed.root().join(volume.name_any()));
    assert_eq!(fs::read_to_string(path_of(&volume).join("file"))?, "hello\n");
    space.delete_pod("pod").await?;
    installed.delete_claim("data").await?;
    space.done().await
}

#[tokio::test]
async fn node_local_volume_belongs_to_the_fs_group_of_its_pod() -> anyhow::Result<()> {
    let space = TestSpace::new("p2").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim(&space, &installed, "data", "hostpath-local").await?;
    let mut pod =
        space.script("pod", "data", "echo > /data/file; stat -c '%g %a' /data; stat -c '%u %g' /data/file")?;
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000});
    let told = space.run(&pod).await?;
    assert_eq!(told, "2000 2770\n1000 2000");
    let (_, volume) = space.wait_bound("data").await?;
    assert!(volume.spec.as_ref().unwrap().local.is_some());
    space.done().await
}

#[tokio::test]
async fn node_claim_waits_for_its_pod_and_binds_on_its_node() -> anyhow::Result<()> {
    let space = TestSpace::new("p4").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim(&space, &installed, "data", "hostpath").await?;
    space.wait_for_event("PersistentVolumeClaim", "data", "WaitForFirstConsumer").await?;
    assert_eq!(installed.directories(), Vec::<String>::new());
    let mut pod = space.script("pod", "data", "echo done")?;
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/hostname", "operator": "Exists"},
        ]}],
    }}});
    space.run(&pod).await?;
    let pod = space.api::<Pod>().get("pod").await?;
    let node = pod.spec.unwrap().node_name.unwrap();
    let (claim, volume) = space.wait_bound("data").await?;
    assert_eq!(claim.annotations()["volume.kubernetes.io/selected-node"], node);
    let affinity = serde_json::to_string(&volume.spec.as_ref().unwrap().node_affinity)?;
    assert!(affinity.contains(&node), "{affinity}");
    space.done().await
}

#[tokio::test]
async fn node_read_write_once_pod_claim_is_used_by_one_pod() -> anyhow::Result<()> {
    let space = TestSpace::new("p5").await?;
    let installed = space.install(Variant::PerNode).await?;
    let mut claim = testbed::cluster::claim("data", &installed.class("hostpath"));
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteOncePod".to_owned()]);
    space.create_claim(claim).await?;
    space.start_pod(&space.script("first", "data", "sleep 600")?).await?;
    let second = serde_json::from_value(space.script("second", "data", "echo done")?)?;
    space.create::<Pod>(&second).await?;
    let event = space.wait_for_event("Pod", "second", "FailedScheduling").await?;
    let note = event.message.unwrap_or_default();
    assert!(note.contains("ReadWriteOncePod"), "{note}");
    space.delete_pod("first").await?;
    let ran = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
    space.wait_for(&space.api::<Pod>(), "second", "at its end", ran).await?;
    space.done().await
}

#[tokio::test]
async fn node_restricted_pod_writes_to_its_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("p6").await?;
    let installed = space.install(Variant::PerNode).await?;
    // A restricted namespace would refuse the provisioner's pod, so wait for it first.
    installed.processes(1).await?;
    let level = Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
    space.cluster_api::<Namespace>().patch(space.namespace(), &PatchParams::default(), &level).await?;
    claim(&space, &installed, "data", "hostpath").await?;
    let mut pod = space.script("pod", "data", "echo hello > /data/file; stat -c %u /data/file")?;
    let privileged = serde_json::from_value::<Pod>(pod.clone())?;
    assert!(space.create(&privileged).await.is_err(), "the namespace is not restricted");
    pod["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "runAsUser": 1234, "seccompProfile": {"type": "RuntimeDefault"}});
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(space.run(&pod).await?, "1234");
    space.delete_pod("pod").await?;
    // Files of another user are deleted as well.
    installed.delete_claim("data").await?;
    space.done().await
}

#[tokio::test]
async fn node_pod_mounts_a_sub_path_of_its_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("p7").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim(&space, &installed, "data", "hostpath").await?;
    let mut pod = space.script("pod", "data", "echo hello > /data/file")?;
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = json!("a/part");
    space.run(&pod).await?;
    let (_, volume) = space.wait_bound("data").await?;
    assert_eq!(fs::read_to_string(path_of(&volume).join("a/part/file"))?, "hello\n");
    space.done().await
}

#[tokio::test]
async fn node_pod_sees_owner_and_mode_from_the_class() -> anyhow::Result<()> {
    let space = TestSpace::new("p10").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim_with(&space, &[("uid", "1000"), ("gid", "2000"), ("mode", "2700")]).await?;
    let script = "stat -c '%u %g %a' /data; mkdir /data/mine; echo > /data/mine/file; chmod 0500 /data/mine";
    let mut pod = space.script("pod", "data", script)?;
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000});
    assert_eq!(space.run(&pod).await?, "1000 2000 2700");
    space.delete_pod("pod").await?;
    installed.delete_claim("data").await?;
    space.done().await
}

#[tokio::test]
async fn node_new_pod_reads_the_files_of_the_previous_pod() -> anyhow::Result<()> {
    let space = TestSpace::new("m1").await?;
    let installed = space.install(Variant::PerNode).await?;
    claim(&space, &installed, "data", "hostpath").await?;
    space.run(&space.script("pod", "data", "echo hello > /data/file")?).await?;
    space.delete_pod("pod").await?;
    assert_eq!(space.run(&space.script("pod", "data", "cat /data/file")?).await?, "hello");
    space.done().await
}

#[tokio::test]
async fn node_rwx_two_pods_share_the_files_of_a_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("rwx").await?;
    let installed = space.install(Variant::PerNode).await?;
    let mut claim = testbed::cluster::claim("data", &installed.class("hostpath"));
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    space.create_claim(claim).await?;
    for pod in ["first", "second"] {
        space.start_pod(&space.script(pod, "data", "sleep 600")?).await?;
    }
    for (writer, reader) in [("first", "second"), ("second", "first")] {
        space.exec(writer, &format!("echo {writer} >> /data/file"))?;
        assert!(space.exec(reader, "cat /data/file")?.contains(writer));
    }
    let (_, volume) = space.wait_bound("data").await?;
    assert_eq!(fs::read_to_string(path_of(&volume).join("file"))?, "first\nsecond\n");
    space.done().await
}
