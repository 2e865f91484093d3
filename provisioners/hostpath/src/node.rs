//! The node that the root directory is on.

use std::sync::OnceLock;

use kube_provisioner::k8s_openapi::api::core::v1::Node as NodeObject;
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::HOSTNAME_LABEL;
use kube_provisioner::{DeleteError, ProvisionedVolume, StartError, Volume};

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
    /// The value of the label that volumes name. Some clouds give nodes another name.
    hostname: Option<String>,
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Self { name, seen: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the node's object, once.
    pub(crate) async fn look(&self, client: &Client) -> Result<(), StartError> {
        if self.seen.get().is_some() {
            return Ok(());
        }
        let found = Api::<NodeObject>::all(client.clone()).get_metadata(&self.name).await;
        let metadata =
            found.map_err(|error| StartError::new(format!("the node {} cannot be read: {error}", self.name)))?.metadata;
        let hostname = metadata.labels.and_then(|mut labels| labels.remove(HOSTNAME_LABEL));
        // Another term of this process may have been faster, with the same answer.
        let _ = self.seen.set(Seen { uid: metadata.uid.unwrap_or_default(), hostname });
        Ok(())
    }

    /// Binds a volume to this node.
    pub(crate) fn mark(&self, volume: Volume) -> Volume {
        let hostname = self.seen.get().and_then(|seen| seen.hostname.as_deref()).unwrap_or(&self.name);
        let volume = volume.on_node(hostname).annotation(NODE, &self.name);
        match self.seen.get() {
            Some(seen) => volume.annotation(NODE_UID, &seen.uid),
            None => volume,
        }
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
