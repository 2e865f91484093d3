//! The node that the root directory is on.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use directory_volumes::Root;
use kube_provisioner::k8s_openapi::api::core::v1::Node as NodeObject;
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::HOSTNAME_LABEL;
use kube_provisioner::{DeleteError, ExpandError, ProvisionedVolume, error_chain};
use thiserror::Error;

use crate::placement::{ANNOTATIONS, NodePlace};

/// On a volume: the node's name and uid. Another node may get the name later, with another disk.
pub(crate) const NODE: &str = "hostpath-provisioner/node";
pub(crate) const NODE_UID: &str = "hostpath-provisioner/node-uid";

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
        let metadata =
            found.map_err(|error| format!("the node {} cannot be read: {}", self.name, error_chain(&error)))?.metadata;
        let (uid, labels) = (metadata.uid.unwrap_or_default(), metadata.labels.unwrap_or_default());
        // Another term of this process may have been faster, with the same answer.
        let _ = self.seen.set(Seen { uid, labels });
        Ok(())
    }

    /// Its uid, once it was checked.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.seen.get().map(|seen| seen.uid.as_str())
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

    /// Refuses a volume that is on another node, or on an earlier one of this name with another root. A node that was deleted
    /// and registered again has another uid, and its disk is the same.
    pub(crate) fn check(&self, volume: &ProvisionedVolume, root: &Root) -> Result<(), Elsewhere> {
        let (here, there) = (&self.name, volume.annotation(NODE));
        if let Some(there) = there.or_else(|| affinity(volume)).filter(|there| there != here) {
            return Err(Elsewhere::OtherNode { here: here.clone(), there: there.to_owned() });
        }
        match (volume.annotation(NODE_UID), self.uid()) {
            (Some(there), Some(uid)) if there != uid && volume.annotation(ANNOTATIONS.root) != root.id() => {
                Err(Elsewhere::FormerNode { name: here.clone(), uid: uid.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// A volume is not on this node.
#[derive(Debug, Error)]
pub(crate) enum Elsewhere {
    #[error("the volume is on {there}, this is {here}")]
    OtherNode { here: String, there: String },
    #[error(
        "the volume was on an earlier node with the name {name}, which is gone with its data; if they are there all the same, \
         set the annotation {NODE_UID} of the volume to {uid}, otherwise remove the volume by hand"
    )]
    FormerNode { name: String, uid: String },
}

impl Elsewhere {
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

/// The node of a volume that an earlier version made.
fn affinity(volume: &ProvisionedVolume) -> Option<&str> {
    let affinity = volume.object.spec.as_ref()?.node_affinity.as_ref()?;
    let term = affinity.required.as_ref()?.node_selector_terms.first()?;
    let expression = term.match_expressions.as_ref()?.first()?;
    expression.values.as_ref()?.first().map(String::as_str)
}
