//! Nodes that go, come back, or leave their name to another one.

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube_provisioner::rbac::{Account, manifests, rules};
use kube_provisioner::{Coordination, Options};
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace, eventually};

use crate::fixture::*;

/// A bound volume on a node, whose pod is gone.
struct Fixture {
    space: TestSpace,
    access: Access,
    root: TempDir,
    node: String,
    volume: String,
}

impl Fixture {
    async fn new(test: &str) -> anyhow::Result<(Self, Program)> {
        let (space, root) = (TestSpace::new(test).await?, tempfile::tempdir()?);
        let mut options = Options::new(space.provisioner());
        options.coordination = Coordination::PerNode;
        let rules = rules(&options, &capabilities(), &[]);
        space.apply(&manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)).await?;
        let access = space.access_of("provisioner").await?;
        let node = space.create_node("node", &[]).await?.name_any();
        let program = started(&space, &access, root.path(), &["--node-name", &node]).await?;
        let mut class = space.class("class");
        class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
        let class = space.create_class(class).await?;
        space.create_claim(space.claim("claim", &class)).await?;
        space.create(&space.pod("pod", "claim")).await?;
        let (_, volume) = space.wait_bound("claim").await?;
        space.api::<Pod>().delete("pod", &DeleteParams::default().grace_period(0)).await?;
        space.wait_gone(&space.api::<Pod>(), "pod").await?;
        Ok((Self { space, access, root, node, volume: volume.name_any() }, program))
    }

    async fn delete_node(&self) -> anyhow::Result<()> {
        let nodes = self.space.cluster_api::<Node>();
        nodes.delete(&self.node, &DeleteParams::default()).await?;
        self.space.wait_gone(&nodes, &self.node).await
    }

    fn look(&self, grace: &str) -> anyhow::Result<String> {
        let (ok, text) = command(&self.space, self.root.path(), &["gone-nodes", "--delete", "--grace", grace])?;
        anyhow::ensure!(ok, "{text}");
        Ok(text)
    }

    async fn journal(&self) -> anyhow::Result<Option<ConfigMap>> {
        let name = format!("{}-journal-node-{}", self.space.provisioner().replace('/', "-"), self.node);
        Ok(self.space.api::<ConfigMap>().get_opt(&name).await?)
    }

    async fn is_there(&self) -> anyhow::Result<bool> {
        let claim = self.space.api::<PersistentVolumeClaim>().get_opt("claim").await?;
        Ok(claim.is_some() && self.space.cluster_api::<PersistentVolume>().get_opt(&self.volume).await?.is_some())
    }
}

#[tokio::test]
async fn hostpath_l4_volumes_of_a_node_that_is_gone_are_given_up_after_some_time() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("l4").await?;
    assert_eq!(fixture.look("0s")?, "", "the node is there");
    // The entry of an attempt that has ended is removed with the next write.
    let is_empty = |journal: &ConfigMap| journal.data.as_ref().is_none_or(|data| !data.contains_key("entries"));
    let emptied = eventually(SOON, async || Ok(fixture.journal().await?.filter(is_empty))).await?;
    assert!(emptied.is_some());
    drop(program);
    fixture.delete_node().await?;
    assert!(fixture.look("0s")?.contains("is gone"), "the first look deletes no volume");
    assert!(fixture.journal().await?.is_none(), "an empty journal is deleted with its node");
    for (kind, name) in [("PersistentVolume", fixture.volume.as_str()), ("PersistentVolumeClaim", "claim")] {
        let event = fixture.space.wait_for_event(kind, name, "NodeGone").await?;
        assert!(event.message.is_some_and(|text| text.contains(&fixture.node)), "{kind}");
    }
    assert!(fixture.look("1h")?.contains("is gone since"));
    assert!(fixture.is_there().await?);
    assert!(fixture.look("0s")?.contains("given up"));
    fixture.space.wait_gone(&fixture.space.cluster_api::<PersistentVolume>(), &fixture.volume).await?;
    assert!(fixture.space.api::<PersistentVolumeClaim>().get_opt("claim").await?.is_none());
    assert_eq!(fixture.look("0s")?, "");
    fixture.space.done().await
}

/// A node that was deleted and registers again has another uid, and the same disk.
#[tokio::test]
async fn hostpath_l5_a_node_that_comes_back_in_time_keeps_its_volumes() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("l5").await?;
    drop(program);
    fixture.delete_node().await?;
    fixture.look("1h")?;
    let node = fixture.space.create_node("node", &[]).await?;
    let _program = start(&fixture.space, &fixture.access, fixture.root.path(), &["--node-name", &fixture.node])?;
    let is_here =
        |volume: &PersistentVolume| volume.annotations().get("hostpath-provisioner/node-uid") == node.uid().as_ref();
    fixture.space.wait_for(&fixture.space.cluster_api(), &fixture.volume, "of the new node", is_here).await?;
    assert_eq!(fixture.look("0s")?, "");
    assert!(fixture.is_there().await?);
    assert_eq!(directories(&fixture.root).len(), 1);
    fixture.space.delete_claim("claim").await?;
    assert!(directories(&fixture.root).is_empty());
    fixture.space.done().await
}

#[tokio::test]
async fn hostpath_k3_another_node_of_the_same_name_is_another_node() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("k3").await?;
    drop(program);
    fixture.delete_node().await?;
    fixture.space.create_node("node", &[]).await?;
    let other = tempfile::tempdir()?;
    let program = start(&fixture.space, &fixture.access, other.path(), &["--node-name", &fixture.node])?;
    // To the provisioner it looks as if its disk were not mounted, and it makes nothing on the other one.
    program.wait_for_output("has no marker", SOON).await?;
    assert_eq!(std::fs::read_dir(other.path())?.count(), 0);
    assert!(fixture.look("1h")?.contains("is gone"));
    assert!(fixture.look("0s")?.contains("given up"));
    fixture.space.wait_gone(&fixture.space.cluster_api::<PersistentVolume>(), &fixture.volume).await?;
    // With the last volume of the former node the new one is free to begin.
    let marker = other.path().join(".kube-provisioner/root");
    assert!(eventually(SOON, async || Ok(marker.exists().then_some(()))).await?.is_some());
    assert_eq!(directories(&fixture.root).len(), 1, "nobody has touched the former disk");
    fixture.space.done().await
}
