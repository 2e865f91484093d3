//! The hostPath provisioner of a node that is taken away, and of another one that gets its name.

use std::path::Path;
use std::time::Duration;

use e2e::cluster::{Access, Program, TestSpace, provisioner_program};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_provisioner::protocol::SELECTED_NODE;
use kube_provisioner::rbac::{Account, manifests, rules};
use kube_provisioner::{Capabilities, Coordination, Options};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

async fn started(space: &TestSpace, access: &Access, root: &Path, node: &str) -> anyhow::Result<Program> {
    let (root, kubeconfig) = (root.display().to_string(), access.kubeconfig.display().to_string());
    let arguments = [
        ["--root", root.as_str()],
        ["--provisioner-name", space.provisioner()],
        ["--kubeconfig", kubeconfig.as_str()],
        ["--namespace", space.namespace()],
        ["--node-name", node],
    ];
    let program = space.spawn("hostpath", provisioner_program()?, arguments.concat())?;
    program.wait_for_output("ready", SOON).await?;
    Ok(program)
}

#[tokio::test]
async fn node_k3_a_node_that_gets_the_name_of_another_leaves_its_volumes_alone() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("k3").await?, tempfile::tempdir()?);
    let mut options = Options::new(space.provisioner());
    options.coordination = Coordination::PerNode;
    let rules = rules(&options, &Capabilities::default(), &[]);
    space.apply(&manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)).await?;
    let access = space.access_of("provisioner").await?;
    let node = space.create_node("node", &[]).await?.name_any();
    let mut program = started(&space, &access, root.path(), &node).await?;
    let mut class = space.class("class");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    let class = space.create_class(class).await?;
    let mut claim = space.claim("claim", &class);
    claim.annotations_mut().insert(SELECTED_NODE.to_owned(), node.clone());
    space.create_claim(claim).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    let directory = root.path().join(volume.name_any());
    std::fs::write(directory.join("file"), "of the first node")?;
    program.kill().await?;
    drop(program);

    space.cluster_api::<Node>().delete(&node, &DeleteParams::default()).await?;
    let second = space.create_node("node", &[]).await?.uid().unwrap();
    let _program = started(&space, &access, root.path(), &node).await?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    let event = space.wait_for_event("PersistentVolume", &volume.name_any(), "VolumeFailedDelete").await?;
    let note = event.message.unwrap_or_default();
    assert!(note.contains("earlier node") && note.contains(&second), "{note}");
    assert!(directory.join("file").exists());

    // Somebody who knows better can say so, as the event tells.
    let same = Patch::Merge(json!({"metadata": {"annotations": {"hostpath-provisioner/node-uid": second}}}));
    let volumes = space.cluster_api::<PersistentVolume>();
    volumes.patch(&volume.name_any(), &PatchParams::default(), &same).await?;
    space.wait_gone(&volumes, &volume.name_any()).await?;
    assert!(!directory.exists());
    space.done().await
}
