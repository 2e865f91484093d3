//! The names of a claim's Secret and ConfigMap: those that the claim requests, else those in its class, else the
//! claim's name.

use std::collections::BTreeMap;

use provisioner_runtime::is_dns_subdomain;
use serde::{Deserialize, Serialize};

use crate::controller::shared::secret_names::{TemplateNames, substitute};
use crate::protocol::{CONFIG_MAP_NAME, SECRET_NAME};

const KINDS: [&str; 2] = ["Secret", "ConfigMap"];

/// The names of a claim's Secret and ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveredNames {
    pub(crate) secret: String,
    pub(crate) config_map: String,
}

/// A name that no object can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadName {
    /// `Secret` or `ConfigMap`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

impl DeliveredNames {
    /// Returns the names for a claim that requests no others.
    pub(crate) fn of(claim: &str) -> Self {
        Self { secret: claim.to_owned(), config_map: claim.to_owned() }
    }

    /// Returns the names that a claim requests by its `additionalConfig`, and its class by its parameters.
    pub(crate) fn wanted(
        claim: TemplateNames<'_>,
        config: &BTreeMap<String, String>,
        class: Option<&BTreeMap<String, String>>,
    ) -> Result<Self, BadName> {
        let [secret, config_map] = KINDS.map(|kind| {
            let [key, parameter] = keys(kind);
            let of_class = || Some(substitute(class?.get(parameter)?, claim));
            let name = config.get(key).cloned().or_else(of_class).unwrap_or_else(|| claim.claim.to_owned());
            if is_dns_subdomain(&name) { Ok(name) } else { Err(BadName { kind, name }) }
        });
        Ok(Self { secret: secret?, config_map: config_map? })
    }

    /// Returns the name of the object of this kind.
    pub(crate) fn of_kind(&self, kind: &str) -> &str {
        if kind == "Secret" { &self.secret } else { &self.config_map }
    }

    /// Returns both as `namespace/name`.
    pub(crate) fn paths(&self, namespace: &str) -> [Box<str>; 2] {
        [&self.secret, &self.config_map].map(|name| format!("{namespace}/{name}").into())
    }
}

/// Returns the settings that name an object of this kind: the key of a claim's `additionalConfig`, and the parameter of
/// its class. A class of 2019 names the administrator's key by `secretName`.
pub(crate) fn keys(kind: &str) -> [&'static str; 2] {
    if kind == "Secret" { [SECRET_NAME, "claimSecretName"] } else { [CONFIG_MAP_NAME, "claimConfigMapName"] }
}

/// Removes the parameters that name them from a class's parameters.
pub(crate) fn take(parameters: &mut BTreeMap<String, String>) -> Result<(), String> {
    let mut problems = Vec::new();
    for kind in KINDS {
        let [_, key] = keys(kind);
        let Some(template) = parameters.remove(key) else { continue };
        let names = TemplateNames { claim: "claim", namespace: "namespace", volume: "" };
        if !is_dns_subdomain(&substitute(&template, names)) {
            problems.push(format!(
                "parameter \"{key}\": {template:?} does not name a {kind}: a name has lower case letters, digits, `-` and `.`, and the templates are ${{pvc.name}} and ${{pvc.namespace}}"
            ));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Returns a class's parameters for a bucket that another provisioner has created: its pods use the existing names of
/// Secret and ConfigMap.
pub(crate) fn without_names(parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_other = |key: &&String| !KINDS.iter().any(|kind| keys(kind)[1] == key.as_str());
    parameters.iter().filter(|(key, _)| is_other(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_name_templates_from_class_parameters() {
        let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut parameters = texts(&[("claimSecretName", "s3-${pvc.name}"), ("secretName", "admin")]);
        assert_eq!(take(&mut parameters), Ok(()));
        assert_eq!(parameters, texts(&[("secretName", "admin")]));
        for template in ["", "S3", "${pvc.uid}", "${pvc.name}-${pv.name}", "a/b"] {
            let problem = take(&mut texts(&[("claimConfigMapName", template)])).unwrap_err();
            assert!(problem.contains("does not name a ConfigMap"), "{problem}");
        }
    }
}
