//! What the author's code needs beside claim and class: Secrets, and the labels of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::Api;
use provisioner_runtime::call::CallError;

use super::Actions;
use crate::controller::secret_names::{self, SecretName, TemplateNames};
use crate::controller::secret_reading::{Unread, read_secret};
use crate::controller::volume::decide::{Decision, Refusal};
use crate::controller::volume::facts::ClaimFacts;
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{MissingInput, Outcome};
use crate::secrets::Secrets;

/// How long the replica of its node has to delete a released volume.
const NODE_GRACE: Duration = Duration::from_secs(300);

impl Actions {
    /// The Secrets that the class names for this claim.
    pub(super) async fn secrets_for(
        &self,
        named: &[SecretName],
        claim: &ClaimFacts,
        key: &Key,
    ) -> Result<Secrets, Outcome> {
        let mut secrets = Secrets::default();
        for secret in named {
            let reference = self.secret_reference(secret, claim, key)?;
            self.read_secret(&mut secrets, &secret.role, &reference).await?;
        }
        Ok(secrets)
    }

    /// The annotations that name these Secrets on the volume: its deletion needs them too.
    pub(super) fn secret_annotations(
        &self,
        named: &[SecretName],
        claim: &ClaimFacts,
        key: &Key,
    ) -> Result<BTreeMap<String, String>, Outcome> {
        let annotation = |secret: &SecretName| {
            Ok(secret_names::annotation(&secret.role, &self.secret_reference(secret, claim, key)?))
        };
        named.iter().map(annotation).collect()
    }

    /// The Secrets that the class named when the volume was made.
    pub(super) async fn secrets_of(&self, volume: &PersistentVolume) -> Result<Secrets, Outcome> {
        let mut secrets = Secrets::default();
        for role in &self.rules.capabilities.secrets {
            if let Some(reference) = secret_names::of_volume(volume.metadata.annotations.as_ref(), &role.role) {
                self.read_secret(&mut secrets, &role.role, &reference).await?;
            }
        }
        Ok(secrets)
    }

    /// The labels of the selected node, where the author reads them. A missing node ends provisioning, but not cleaning
    /// up.
    pub(super) async fn node_labels(
        &self,
        node: Option<&str>,
        decision: &Decision,
    ) -> Result<BTreeMap<String, String>, Outcome> {
        let Some(name) = node.filter(|_| self.rules.capabilities.node_labels) else { return Ok(BTreeMap::new()) };
        let api: Api<Node> = Api::all(self.client().clone());
        match self.request(api.get_metadata(name)).await {
            Ok(node) => Ok(node.metadata.labels.unwrap_or_default()),
            Err(CallError::NotFound) if *decision == Decision::CleanUp => Ok(BTreeMap::new()),
            Err(CallError::NotFound) => Err(Outcome::NotReady(MissingInput::Node(name.to_owned()))),
            Err(error) => Err(Outcome::CallFailed { doing: "reading the selected node", error }),
        }
    }

    /// Waits for the node's own replica to delete the volume. Refuses the volume where the node does not exist.
    pub(super) async fn look_for_node(&self, name: String, looks: u32) -> Outcome {
        if looks == 0 {
            return Outcome::LooksAgain { after: NODE_GRACE };
        }
        let api: Api<Node> = Api::all(self.client().clone());
        match self.request(api.get_metadata(&name)).await {
            Ok(_) => Outcome::LooksAgain { after: NODE_GRACE },
            Err(CallError::NotFound) => Outcome::Refused(Refusal::NodeGone { node: name }),
            Err(error) => Outcome::CallFailed { doing: "looking for the volume's node", error },
        }
    }

    fn secret_reference(
        &self,
        secret: &SecretName,
        claim: &ClaimFacts,
        key: &Key,
    ) -> Result<(String, String), Outcome> {
        let volume = key.to_string();
        let names = TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume: &volume };
        secret.resolve(names).map_err(|problem| Outcome::NotReady(MissingInput::SecretName(problem)))
    }

    async fn read_secret(
        &self,
        secrets: &mut Secrets,
        role: &str,
        reference: &(String, String),
    ) -> Result<(), Outcome> {
        read_secret(&self.context, secrets, role, reference).await.map_err(|unread| match unread {
            Unread::Missing { namespace, name } => Outcome::NotReady(MissingInput::Secret { namespace, name }),
            Unread::Failed(error) => Outcome::CallFailed { doing: "reading a Secret that the class names", error },
        })
    }
}
