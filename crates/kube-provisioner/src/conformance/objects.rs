//! Objects that the provisioner's classes and code need, such as Secrets and Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube_sim::{Cluster, object};
use serde_json::Value;

use super::verdict::Violation;
use crate::capabilities::SecretRole;
use crate::controller::shared::secret_names::{self, TemplateNames};
use crate::secrets::Secrets;

#[derive(Default)]
pub(super) struct Objects(pub(super) Vec<Value>);

impl Objects {
    pub(super) fn create_in(&self, cluster: &Cluster) -> Result<(), Violation> {
        self.0.iter().try_for_each(|object| match cluster.create(object) {
            Ok(_) => Ok(()),
            Err(refused) => {
                Err(Violation(format!("the API server rejects an object of `.objects(..)`: {}", refused.message)))
            }
        })
    }

    pub(super) fn node_labels(&self, name: &str) -> BTreeMap<String, String> {
        let labels = self.find("Node", "", name).map(|node| node["metadata"]["labels"].clone());
        labels.and_then(|labels| serde_json::from_value(labels).ok()).unwrap_or_default()
    }

    /// Removes the parameters that name Secrets from a class's parameters, and reads these Secrets.
    pub(super) fn take_secrets(
        &self,
        parameters: &mut BTreeMap<String, String>,
        roles: &[SecretRole],
        names: TemplateNames<'_>,
    ) -> Result<Secrets, String> {
        let mut secrets = Secrets::default();
        for named in secret_names::take(parameters, roles)? {
            let (namespace, name) = named.resolve(names)?;
            let found = self.find("Secret", &namespace, &name);
            let found = found.ok_or_else(|| format!("`.objects(..)` has no Secret {namespace}/{name}"))?;
            let secret: Secret = serde_json::from_value(found.clone()).map_err(|error| error.to_string())?;
            let texts = secret.string_data.unwrap_or_default().into_iter();
            let texts = texts.map(|(key, text)| (key, text.into_bytes()));
            let data = secret.data.unwrap_or_default().into_iter().map(|(key, data)| (key, data.0)).chain(texts);
            secrets.insert(named.role, data.collect());
        }
        Ok(secrets)
    }

    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let is = |found: &&Value| {
            found["kind"] == kind && object::namespace(found) == namespace && object::name(found) == name
        };
        self.0.iter().find(is)
    }
}
