//! Nodes that are deleted, return, or are replaced by another node of the same name.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace, eventually};

use super::fixture::*;

/// A bound volume on a node, whose pod no longer exists.
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
        let access = account_per_node(&space).await?;
        let node = space.create_node("node", &[]).await?.name_any();
        let program = started(&space, &access, root.path(), &["--node-name", &node]).await?;
        let class = space.waiting_class_with("class", []).await?;
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

    async fn wait_for_phase(&self, phase: &str) -> anyhow::Result<()> {
        let is_so = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase))
        };
        self.space.wait_for(&self.space.api(), "claim", phase, is_so).await.map(drop)
    }

    async fn is_there(&self) -> anyhow::Result<bool> {
        let claim = self.space.api::<PersistentVolumeClaim>().get_opt("claim").await?;
        Ok(claim.is_some() && self.space.cluster_api::<PersistentVolume>().get_opt(&self.volume).await?.is_some())
    }
}

#[tokio::test]
async fn hostpath_abandons_volumes_of_a_deleted_node_after_some_time() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("l4").await?;
    assert_eq!(fixture.look("0s")?, "", "the node exists");
    // The next write removes the entry of an attempt that has ended.
    let is_empty = |journal: &ConfigMap| journal.data.as_ref().is_none_or(|data| !data.contains_key("entries"));
    let emptied = eventually(SOON, async || Ok(fixture.journal().await?.filter(is_empty))).await?;
    assert!(emptied.is_some());
    drop(program);
    fixture.delete_node().await?;
    assert!(fixture.look("0s")?.contains("no longer exists"), "the first run must not delete volumes");
    assert!(fixture.journal().await?.is_none(), "an empty journal is deleted with its node");
    for (kind, name) in [("PersistentVolume", fixture.volume.as_str()), ("PersistentVolumeClaim", "claim")] {
        let event = fixture.space.wait_for_event(kind, name, "NodeGone").await?;
        assert!(event.message.is_some_and(|text| text.contains(&fixture.node)), "{kind}");
    }
    assert!(fixture.look("1h")?.contains("has not existed since"));
    assert!(fixture.is_there().await?);
    assert!(fixture.look("0s")?.contains("abandoned"));
    fixture.space.wait_gone(&fixture.space.cluster_api::<PersistentVolume>(), &fixture.volume).await?;
    assert!(fixture.space.api::<PersistentVolumeClaim>().get_opt("claim").await?.is_none());
    assert_eq!(fixture.look("0s")?, "");
    fixture.space.done().await
}

/// A node that was deleted and registers again has another uid, but the same disk.
#[tokio::test]
async fn hostpath_keeps_volumes_of_a_node_that_returns_in_time() -> anyhow::Result<()> {
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

/// A node of the same name may have the same disk or a new one. Only an administrator can abandon its volumes.
#[tokio::test]
async fn hostpath_uses_another_disk_only_after_an_administrator_confirms() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("k3").await?;
    drop(program);
    fixture.delete_node().await?;
    assert!(fixture.look("1h")?.contains("no longer exists"));
    fixture.space.create_node("node", &[]).await?;
    let (disk, former) = (fixture.root.path(), tempfile::tempdir()?);
    let former = former.path().join("former");
    fs::rename(disk, &former)?;
    fs::create_dir(disk)?;
    fs::set_permissions(disk, fs::Permissions::from_mode(0o700))?;
    let program = start(&fixture.space, &fixture.access, disk, &["--node-name", &fixture.node])?;
    // To the provisioner, this looks like a disk that is not mounted, so it creates nothing on the new one.
    program.wait_for_output("has no marker", SOON).await?;
    assert_eq!(fs::read_dir(disk)?.count(), 0);
    assert!(fixture.look("0s")?.contains("is back"));
    assert_eq!(fixture.look("0s")?, "");
    assert!(fixture.is_there().await?);
    let replace = ["root", "replace", "--node-name", &fixture.node, "--yes"];
    let (ok, text) = command(&fixture.space, disk, &replace)?;
    assert!(ok && text.contains(&format!("{} is abandoned", fixture.volume)), "{text}");
    fixture.space.wait_gone(&fixture.space.cluster_api::<PersistentVolume>(), &fixture.volume).await?;
    fixture.wait_for_phase("Lost").await?;
    // After the deletion of the former disk's last volume, the new disk can be used.
    let marker = disk.join(".kube-provisioner/root");
    assert!(eventually(SOON, async || Ok(marker.exists().then_some(()))).await?.is_some());
    assert!(former.join(&fixture.volume).exists(), "the former disk must not change");
    fixture.space.done().await
}

/// The node affinity of volumes cannot be changed, so they are recreated.
#[tokio::test]
async fn hostpath_gives_a_renamed_node_the_volumes_of_its_disk() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::new("l6").await?;
    drop(program);
    let node = fixture.space.create_node("other", &[]).await?.name_any();
    let adopt = ["root", "adopt", "--node-name", &node, "--yes"];
    let (ok, text) = command(&fixture.space, fixture.root.path(), &adopt)?;
    assert!(!ok && text.contains("exists"), "{text}");
    fixture.delete_node().await?;
    let (ok, text) = command(&fixture.space, fixture.root.path(), &adopt)?;
    assert!(ok && text.contains("is now a volume of this node"), "{text}");
    let volume = fixture.space.cluster_api::<PersistentVolume>().get(&fixture.volume).await?;
    assert!(serde_json::to_string(&volume.spec.and_then(|spec| spec.node_affinity))?.contains(&node));
    fixture.wait_for_phase("Bound").await?;
    let _program = started(&fixture.space, &fixture.access, fixture.root.path(), &["--node-name", &node]).await?;
    fixture.space.delete_claim("claim").await?;
    fixture.space.wait_gone(&fixture.space.cluster_api::<PersistentVolume>(), &fixture.volume).await?;
    assert!(directories(&fixture.root).is_empty(), "the directory is not deleted with its volume");
    fixture.space.done().await
}
