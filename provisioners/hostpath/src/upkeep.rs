//! What is done at the start and beside the calls: the root's marker, the node's uid, deletions, the trash.

use std::sync::Arc;
use std::time::Duration;

use directory_volumes::{DirectoryError, Root};
use jiff::Timestamp;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::Api;
use kube_provisioner::kube::api::{Patch, PatchParams};
use kube_provisioner::{FencingToken, ProvisionedVolume, Start, StartError};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::node::{NODE, NODE_UID, Node};
use crate::placement::{GONE_SINCE, ROOT};

/// How often the trash is looked at.
const TRASH_PERIOD: Duration = Duration::from_secs(60);

/// Before the first volume is made or removed.
pub(crate) async fn begin(root: &Arc<Root>, node: Option<&Node>, start: &Start) -> Result<(), StartError> {
    if let Some(advice) = root.advice() {
        tracing::warn!("{advice}");
    }
    if !root.has_marker()? {
        mark(root, node, start).await?;
    }
    if let Some(node) = node {
        registered_again(root, node, start).await?;
    }
    // The volumes of deletions that an earlier run did not finish may be gone, so nobody would ask again.
    work_on(root, Root::finish_removals);
    Ok(())
}

/// Removes from the trash whose time is over.
pub(crate) async fn empty_trash(root: Arc<Root>) {
    loop {
        tokio::time::sleep(TRASH_PERIOD).await;
        work_on(&root, |root, token| match root.has_marker() {
            Ok(true) => root.purge_expired(Timestamp::now(), token),
            _ => Ok(()),
        });
    }
}

/// A new root gets its marker, unless there are volumes: then it is not the root that they are in.
async fn mark(root: &Root, node: Option<&Node>, start: &Start) -> Result<(), StartError> {
    let volumes = start.volumes().await?;
    let mut here = volumes.iter().filter(|volume| node.is_none_or(|node| volume.annotation(NODE) == Some(node.name())));
    match here.find(|volume| volume.annotation(ROOT).is_some()) {
        Some(volume) => {
            let (path, name) = (root.path().to_owned(), volume.name());
            Err(StartError::new(format!("{}; the volume {name} is there", DirectoryError::Unmarked(path))))
        }
        None => Ok(root.put_marker()?),
    }
}

/// A node that was deleted and registered again has another uid. With the same root its volumes are there: they say so from
/// now on, before anybody gives them up.
async fn registered_again(root: &Root, node: &Node, start: &Start) -> Result<(), StartError> {
    let Some(uid) = node.uid() else { return Ok(()) };
    if root.note("node")?.is_some_and(|former| former == uid) {
        return Ok(());
    }
    let volumes = Api::<PersistentVolume>::all(start.client().clone());
    let is_here = |volume: &&ProvisionedVolume| {
        volume.annotation(NODE) == Some(node.name()) && volume.annotation(ROOT) == root.id()
    };
    for volume in start.volumes().await?.iter().filter(is_here) {
        if volume.annotation(NODE_UID) != Some(uid) {
            let patch = json!({"metadata": {"uid": volume.object().metadata.uid,
                "annotations": {NODE_UID: uid, GONE_SINCE: null}}});
            volumes.patch(volume.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
    }
    // A full disk must not keep volumes from being removed; the next start looks again.
    if let Err(error) = root.put_note("node", uid) {
        tracing::warn!("{error}");
    }
    Ok(())
}

/// Work that nobody waits for.
fn work_on(root: &Arc<Root>, work: fn(&Root, &FencingToken) -> Result<(), DirectoryError>) {
    let root = root.clone();
    spawn_blocking(move || {
        if let Err(error) = work(&root, &FencingToken::unlimited()) {
            tracing::warn!("the removal of an earlier volume is not finished: {error}");
        }
    });
}
