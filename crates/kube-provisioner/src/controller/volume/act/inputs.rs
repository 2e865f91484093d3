//! Additional inputs of the provisioner's calls: Secrets, and the labels of a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::Api;
use provisioner_runtime::call::CallError;

use super::Actions;
use crate::controller::shared::secret_names::{self, SecretName, TemplateNames};
use crate::controller::shared::secret_reading::{READING, SecretReadError, read_secret, read_secrets};
use crate::controller::volume::decision::Decision;
use crate::controller::volume::facts::ClaimFacts;
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{MissingInput, Stopped};
use crate::secrets::Secrets;

impl Actions {
    /// Reads the Secrets that the class names for this claim.
    pub(super) async fn secrets_for(
        &self,
        named: &[SecretName],
        claim: &ClaimFacts,
        key: &Key,
    ) -> Result<Secrets, Stopped> {
        let volume = key.to_string();
        read_secrets(&self.runtime, named, template_names(claim, &volume)).await.map_err(not_read)
    }

    /// Returns the Secrets that the class named when the volume was created.
    pub(super) async fn secrets_of(&self, volume: &PersistentVolume) -> Result<Secrets, Stopped> {
        let mut secrets = Secrets::default();
        for role in &self.rules.capabilities.secrets {
            if let Some(reference) = secret_names::of_volume(volume.metadata.annotations.as_ref(), &role.role) {
                read_secret(&self.runtime, &mut secrets, &role.role, &reference).await.map_err(not_read)?;
            }
        }
        Ok(secrets)
    }

    /// Returns the annotations that name these Secrets on the volume, since its deletion also needs them.
    pub(super) fn secret_annotations(
        named: &[SecretName],
        claim: &ClaimFacts,
        key: &Key,
    ) -> Result<BTreeMap<String, String>, Stopped> {
        let volume = key.to_string();
        let annotation = |secret: &SecretName| {
            let reference = secret.resolve(template_names(claim, &volume)).map_err(SecretReadError::Unnamed);
            Ok(secret_names::annotation(&secret.role, &reference.map_err(not_read)?))
        };
        named.iter().map(annotation).collect()
    }

    /// Returns the labels of the selected node, if the provisioner reads them. A missing node stops provisioning, but
    /// not clean-up.
    pub(super) async fn node_labels(
        &self,
        node: Option<&str>,
        decision: &Decision,
    ) -> Result<BTreeMap<String, String>, Stopped> {
        let Some(name) = node.filter(|_| self.rules.capabilities.node_labels) else {
            return Ok(BTreeMap::new());
        };
        let api: Api<Node> = Api::all(self.client().clone());
        match self.request(api.get_metadata(name)).await {
            Ok(node) => Ok(node.metadata.labels.unwrap_or_default()),
            Err(CallError::NotFound) if *decision == Decision::CleanUp => Ok(BTreeMap::new()),
            Err(CallError::NotFound) => Err(Stopped::NotReady(MissingInput::Node(name.to_owned()))),
            Err(error) => Err(Stopped::CallFailed { doing: "reading the selected node", error }),
        }
    }
}

fn template_names<'a>(claim: &'a ClaimFacts, volume: &'a str) -> TemplateNames<'a> {
    TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume }
}

fn not_read(unread: SecretReadError) -> Stopped {
    match unread {
        SecretReadError::Unnamed(problem) => Stopped::NotReady(MissingInput::SecretName(problem)),
        SecretReadError::Missing { namespace, name } => Stopped::NotReady(MissingInput::Secret { namespace, name }),
        SecretReadError::Failed(error) => Stopped::CallFailed { doing: READING, error },
    }
}
