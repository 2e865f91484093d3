//! The node that contains the root directory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use directory_volumes::{Root, Worker};
use kube_provisioner::k8s_openapi::api::core::v1::{Node as NodeObject, NodeSelectorRequirement, PersistentVolume};
use kube_provisioner::kube::api::{Patch, PatchParams};
use kube_provisioner::kube::{self, Api, Client};
use kube_provisioner::protocol::HOSTNAME_LABEL;
use kube_provisioner::{
    DeleteError, ExpandError, ProvisionError, ProvisionedVolume, StartContext, StartError, error_chain,
};
use serde_json::json;
use thiserror::Error;

use crate::placement::{ANNOTATIONS, GONE_SINCE, NodeTopology};

/// The annotations of a volume with its node's name and uid. A later node with another disk may have the same name.
pub(crate) const NODE: &str = "hostpath-provisioner/node";
pub(crate) const NODE_UID: &str = "hostpath-provisioner/node-uid";

/// The root's note with the uid of its node.
const NOTE: &str = "node";

/// The node with this name. Its object may change: labels are added and removed, and a node that registers again has
/// another uid.
pub(crate) struct Node {
    name: String,
    uid: Mutex<Option<String>>,
}

/// The current state of the node's object.
pub(crate) struct ObservedNode {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
}

/// Reasons why a node cannot provision a claim now.
#[derive(Debug, Error)]
pub(crate) enum NodeUnsuitable {
    #[error("the node {0} does not exist; --node-name must be the name of a Node object")]
    NotFound(String),
    #[error(
        "the node {node} has no label {label}, which the class's nodeAffinityKey names; label the nodes, or choose another label"
    )]
    NoLabel { node: String, label: String },
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Self { name, uid: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the node's object for the first time in a term.
    pub(crate) async fn start(&self, client: &Client) -> Result<ObservedNode, String> {
        let seen = self.read(client).await.map_err(|error| self.read_error(&error))?;
        seen.ok_or_else(|| NodeUnsuitable::NotFound(self.name.clone()).to_string())
    }

    /// Reads the node's object. Its labels may have changed since the last attempt.
    pub(crate) async fn observe(&self, client: &Client) -> Result<ObservedNode, ProvisionError> {
        let seen = self.read(client).await.map_err(|error| ProvisionError::retry(self.read_error(&error)))?;
        seen.ok_or_else(|| ProvisionError::reschedule(NodeUnsuitable::NotFound(self.name.clone())))
    }

    /// Returns warnings about other nodes' volumes: volumes that are in this root, and volumes that may be mistaken for
    /// this node's because both nodes have the same label value.
    pub(crate) async fn advice(&self, root: &Root, start: &StartContext) -> Vec<String> {
        let (Ok(seen), Ok(volumes)) = (self.observe(&start.client).await, start.volumes().await) else {
            return Vec::new();
        };
        let elsewhere = |volume: &&ProvisionedVolume| volume.annotation(NODE).is_some_and(|node| node != self.name);
        let mut others: Vec<&ProvisionedVolume> = volumes.iter().filter(elsewhere).collect();
        others.sort_by(|one, other| one.name.cmp(&other.name));
        let here = seen.labels.get(HOSTNAME_LABEL).unwrap_or(&self.name);
        let in_root = others.iter().filter(|volume| volume.annotation(ANNOTATIONS.root) == root.id());
        let alike = others
            .iter()
            .filter(|volume| affinity_key(volume) == Some(HOSTNAME_LABEL) && affinity(volume) == Some(here));
        let node = |volume: &ProvisionedVolume| volume.annotation(NODE).unwrap_or_default().to_owned();
        let in_root = in_root.clone().next().map(|volume| {
            let (count, path, name, node) = (in_root.count(), root.path().display(), &volume.name, node(volume));
            format!(
                "volumes of the root directory {path} name another node ({count} in total), such as {name} on {node}, \
                 and no replica manages them here; if this node was renamed, run the command `root adopt`"
            )
        });
        let alike = alike.map(|volume| node(volume)).next().map(|node| {
            format!(
                "the nodes {} and {node} have the same value of the label {HOSTNAME_LABEL}, {here}, so pods may run where their volume is \
                 not; give each node its own value, or set nodeAffinityKey in the classes",
                self.name
            )
        });
        in_root.into_iter().chain(alike).collect()
    }

    async fn read(&self, client: &Client) -> kube::Result<Option<ObservedNode>> {
        let Some(found) = Api::<NodeObject>::all(client.clone()).get_metadata_opt(&self.name).await? else {
            return Ok(None);
        };
        let uid = found.metadata.uid.unwrap_or_default();
        *self.known_uid() = Some(uid.clone());
        Ok(Some(ObservedNode { name: self.name.clone(), uid, labels: found.metadata.labels.unwrap_or_default() }))
    }

    fn read_error(&self, error: &kube::Error) -> String {
        format!("the node {} cannot be read: {}", self.name, error_chain(error))
    }

    /// Returns the node's uid once it was read.
    pub(crate) fn uid(&self) -> Option<String> {
        self.known_uid().clone()
    }

    fn known_uid(&self) -> MutexGuard<'_, Option<String>> {
        self.uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a volume on another node, or on an earlier node with this name and another root. A node that was deleted
    /// and registered again has another uid, but the same disk.
    pub(crate) fn check(&self, volume: &ProvisionedVolume, root: Option<&Root>) -> Result<(), WrongNode> {
        let (here, there) = (&self.name, volume.annotation(NODE));
        if let Some(there) = there.or_else(|| affinity(volume)).filter(|there| there != here) {
            return Err(WrongNode::OtherNode { here: here.clone(), there: there.to_owned() });
        }
        // Without its root, the volume's disk may only be unavailable.
        match (volume.annotation(NODE_UID), self.uid(), root) {
            (Some(there), Some(uid), Some(root))
                if there != uid && volume.annotation(ANNOTATIONS.root) != root.id() =>
            {
                Err(WrongNode::FormerNode { name: here.clone(), volume: volume.name.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl ObservedNode {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the label by which pods find a volume on this node, and the volume's annotations.
    pub(crate) fn place(&self, key: Option<&str>) -> Result<NodeTopology, NodeUnsuitable> {
        let label = key.unwrap_or(HOSTNAME_LABEL);
        let value = match self.labels.get(label) {
            Some(value) => value,
            // In some clouds the node's name differs from its label. Without the label, the name is the best guess.
            None if key.is_none() => &self.name,
            None => return Err(NodeUnsuitable::NoLabel { node: self.name.clone(), label: label.to_owned() }),
        };
        let annotations = vec![(NODE, self.name.clone()), (NODE_UID, self.uid.clone())];
        Ok(NodeTopology { label: label.to_owned(), value: value.clone(), annotations })
    }
}

/// Updates volumes after the node was deleted and registered again with another uid. If the root is the same, its
/// volumes still exist, and receive the node's new uid so that no administrator abandons them.
pub(crate) async fn update_node_uid(worker: &Worker, node: &Node, start: &StartContext) -> Result<(), StartError> {
    let Some(uid) = node.uid() else { return Ok(()) };
    let former: Option<String> = worker.run(|root| Ok::<_, StartError>(root.note(NOTE)?)).await?;
    if former.is_some_and(|former| former == uid) {
        return Ok(());
    }
    let volumes = Api::<PersistentVolume>::all(start.client.clone());
    let is_here = |volume: &&ProvisionedVolume| {
        volume.annotation(NODE) == Some(node.name()) && volume.annotation(ANNOTATIONS.root) == worker.root().id()
    };
    let mut patched = Ok(());
    for volume in start.volumes().await?.iter().filter(is_here) {
        if volume.annotation(NODE_UID) != Some(&uid) {
            let patch = json!({"metadata": {"uid": volume.object.metadata.uid,
                "annotations": {NODE_UID: uid, GONE_SINCE: null}}});
            let answer = volumes.patch(&volume.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched = patched.and(answer.map(drop));
        }
    }
    patched?;
    // A full disk must not prevent the deletion of volumes. The next start tries again.
    if let Err(error) = worker.run(move |root| Ok::<_, StartError>(root.put_note(NOTE, &uid)?)).await {
        tracing::warn!("{error}");
    }
    Ok(())
}

/// The error for a volume that is not on this node.
#[derive(Debug, Error)]
pub(crate) enum WrongNode {
    #[error("the volume is on the node {there}, but this node is {here}")]
    OtherNode { here: String, there: String },
    #[error(
        "the volume was on an earlier node named {name}, which no longer exists; if its data still exists here, run \
         the command `adopt --volume {volume}`, otherwise abandon the volume with the command `root replace`"
    )]
    FormerNode { name: String, volume: String },
}

impl WrongNode {
    pub(crate) fn for_deletion(self) -> DeleteError {
        match self {
            Self::OtherNode { .. } => DeleteError::ignored(self),
            Self::FormerNode { .. } => DeleteError::retry(self),
        }
    }

    pub(crate) fn for_expansion(self) -> ExpandError {
        match self {
            Self::OtherNode { .. } => ExpandError::ignored(self),
            Self::FormerNode { .. } => ExpandError::retry(self),
        }
    }
}

/// Returns the node in the affinity of a volume. Volumes created by earlier versions have no annotation with the node.
fn affinity(volume: &ProvisionedVolume) -> Option<&str> {
    expression(volume)?.values.as_ref()?.first().map(String::as_str)
}

fn affinity_key(volume: &ProvisionedVolume) -> Option<&str> {
    expression(volume).map(|expression| &*expression.key)
}

fn expression(volume: &ProvisionedVolume) -> Option<&NodeSelectorRequirement> {
    let affinity = volume.object.spec.as_ref()?.node_affinity.as_ref()?;
    affinity.required.as_ref()?.node_selector_terms.first()?.match_expressions.as_ref()?.first()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_root_does_not_indicate_a_former_node() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.put_marker().unwrap();
        let node = Node::new("node-a".to_owned());
        *node.known_uid() = Some("new".to_owned());
        let annotations = json!({NODE: "node-a", NODE_UID: "old", ANNOTATIONS.root: "another root"});
        let volume: PersistentVolume =
            serde_json::from_value(json!({"metadata": {"name": "pv-1", "annotations": annotations}})).unwrap();
        let volume = ProvisionedVolume::new(volume);
        assert!(node.check(&volume, None).is_ok());
        let error = node.check(&volume, Some(&root)).unwrap_err();
        assert!(matches!(error, WrongNode::FormerNode { .. }));
        assert!(error.to_string().contains("run the command `adopt --volume pv-1`"), "{error}");
    }
}
