//! The node that the root directory is on.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use kube_provisioner::k8s_openapi::api::core::v1::Node as NodeObject;
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::HOSTNAME_LABEL;
use kube_provisioner::{DeleteError, ProvisionedVolume};

use crate::placement::NodePlace;

/// On a volume: the node's name and uid. Another node may get the name later, with another disk.
const NODE: &str = "hostpath-provisioner/node";
const NODE_UID: &str = "hostpath-provisioner/node-uid";

pub(crate) struct Node {
    name: String,
    seen: OnceLock<Seen>,
}

/// What the node's object says.
struct Seen {
    uid: String,
    labels: BTreeMap<String, String>,
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Self { name, seen: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the node's object, once.
    pub(crate) async fn look(&self, client: &Client) -> Result<(), String> {
        if self.seen.get().is_some() {
            return Ok(());
        }
        let found = Api::<NodeObject>::all(client.clone()).get_metadata(&self.name).await;
        let metadata = found.map_err(|error| format!("the node {} cannot be read: {error}", self.name))?.metadata;
        let (uid, labels) = (metadata.uid.unwrap_or_default(), metadata.labels.unwrap_or_default());
        // Another term of this process may have been faster, with the same answer.
        let _ = self.seen.set(Seen { uid, labels });
        Ok(())
    }

    /// What a volume says about this node, so that pods find it by a label.
    pub(crate) fn place(&self, key: Option<&str>) -> Result<NodePlace, String> {
        let seen = self.seen.get();
        let label = key.unwrap_or(HOSTNAME_LABEL);
        let value = match seen.and_then(|seen| seen.labels.get(label)) {
            Some(value) => value,
            // Some clouds give a node another name than its label has; without the label the name is the best guess.
            None if key.is_none() => &self.name,
            None => {
                return Err(format!(
                    "the node {} has no label {label}, which the class's nodeAffinityKey names; label the nodes, or choose \
                     another label",
                    self.name
                ));
            }
        };
        let mut annotations = vec![(NODE, self.name.clone())];
        annotations.extend(seen.map(|seen| (NODE_UID, seen.uid.clone())));
        Ok(NodePlace { label: label.to_owned(), value: value.clone(), annotations })
    }

    /// Refuses a volume that is on another node, or on an earlier one of this name.
    pub(crate) fn check(&self, volume: &ProvisionedVolume) -> Result<(), DeleteError> {
        let (here, there) = (&self.name, volume.annotation(NODE));
        if let Some(there) = there.or_else(|| affinity(volume)).filter(|there| there != here) {
            return Err(DeleteError::not_mine(format!("the volume is on {there}, this is {here}")));
        }
        let uid = self.seen.get().map(|seen| seen.uid.as_str());
        match (volume.annotation(NODE_UID), uid) {
            (Some(there), Some(here)) if there != here => Err(DeleteError::retry(format!(
                "the volume was on an earlier node with the name {}, which is gone with its data; if they are there all the \
                 same, set the annotation {NODE_UID} of the volume to {here}, otherwise remove the volume by hand",
                self.name
            ))),
            _ => Ok(()),
        }
    }
}

/// The node of a volume that an earlier version made.
fn affinity(volume: &ProvisionedVolume) -> Option<&str> {
    let affinity = volume.object().spec.as_ref()?.node_affinity.as_ref()?;
    let term = affinity.required.as_ref()?.node_selector_terms.first()?;
    let expression = term.match_expressions.as_ref()?.first()?;
    expression.values.as_ref()?.first().map(String::as_str)
}
