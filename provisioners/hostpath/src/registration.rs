//! A node that was deleted and registered again has another uid. With the same root its volumes are there.

use directory_volumes::Worker;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::Api;
use kube_provisioner::kube::api::{Patch, PatchParams};
use kube_provisioner::{ProvisionedVolume, Start, StartError};
use serde_json::json;

use crate::node::{NODE, NODE_UID, Node};
use crate::placement::{ANNOTATIONS, GONE_SINCE};

/// The root's note of the uid that its node had.
const NOTE: &str = "node";

/// The volumes say the node's new uid, before anybody gives them up.
pub(crate) async fn again(worker: &Worker, node: &Node, start: &Start) -> Result<(), StartError> {
    let Some(uid) = node.uid() else { return Ok(()) };
    let former: Option<String> = worker.run(|root| Ok::<_, StartError>(root.note(NOTE)?)).await?;
    if former.is_some_and(|former| former == uid) {
        return Ok(());
    }
    let volumes = Api::<PersistentVolume>::all(start.client.clone());
    let is_here = |volume: &&ProvisionedVolume| {
        volume.annotation(NODE) == Some(node.name()) && volume.annotation(ANNOTATIONS.root) == worker.root().id()
    };
    for volume in start.volumes().await?.iter().filter(is_here) {
        if volume.annotation(NODE_UID) != Some(&uid) {
            let patch = json!({"metadata": {"uid": volume.object.metadata.uid,
                "annotations": {NODE_UID: uid, GONE_SINCE: null}}});
            volumes.patch(&volume.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
    }
    // A full disk must not keep volumes from being removed; the next start looks again.
    if let Err(error) = worker.run(move |root| Ok::<_, StartError>(root.put_note(NOTE, &uid)?)).await {
        tracing::warn!("{error}");
    }
    Ok(())
}
