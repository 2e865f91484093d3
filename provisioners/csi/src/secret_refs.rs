//! The Secrets that a class names: two parameters per kind of call, with tokens such as `${pvc.namespace}`.

use std::collections::BTreeMap;

use kube_provisioner::k8s_openapi::api::core::v1::SecretReference;
use thiserror::Error;

use crate::parameters::{RESERVED, Texts};
use crate::template::expand;

/// The kinds of driver calls that can have their own Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Calls without their own Secret.
    Default,
    /// CreateVolume and DeleteVolume.
    Provisioner,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
    ControllerModify,
}

impl Role {
    pub(crate) const ALL: [Self; 8] = [
        Self::Default,
        Self::Provisioner,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
    ];

    /// Returns the parameter keys of the Secret's name and namespace, without their prefix.
    pub(crate) fn keys(self) -> [String; 2] {
        let role = match self {
            Self::Default => "",
            Self::Provisioner => "provisioner-",
            Self::ControllerPublish => "controller-publish-",
            Self::NodeStage => "node-stage-",
            Self::NodePublish => "node-publish-",
            Self::ControllerExpand => "controller-expand-",
            Self::NodeExpand => "node-expand-",
            Self::ControllerModify => "controller-modify-",
        };
        ["name", "namespace"].map(|part| format!("{role}secret-{part}"))
    }

    /// Returns the keys of earlier versions, if any.
    fn deprecated_keys(self) -> Option<[String; 2]> {
        let role = match self {
            Self::Provisioner => "Provisioner",
            Self::ControllerPublish => "ControllerPublish",
            Self::NodeStage => "NodeStage",
            Self::NodePublish => "NodePublish",
            _ => return None,
        };
        Some(["Name", "Namespace"].map(|part| format!("csi{role}Secret{part}")))
    }
}

/// Reasons why a Secret's name or namespace is invalid.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum SecretRefError {
    #[error("the class has the parameter {RESERVED}{0} and its deprecated form; remove one of them")]
    Twice(String),
    #[error("the class needs the parameters {RESERVED}{} and {RESERVED}{}, or neither", .0[0], .0[1])]
    Half([String; 2]),
    #[error("the class's parameter {RESERVED}{0} is empty")]
    Empty(String),
    #[error("{template:?} in the class has tokens without a value: {}", tokens.join(", "))]
    Tokens { template: String, tokens: Vec<String> },
    #[error("{name:?} is not a valid {kind} name")]
    Name { name: String, kind: &'static str },
}

/// The values of the tokens.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    pub(crate) volume: &'a str,
    pub(crate) claim: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) annotations: Option<&'a BTreeMap<String, String>>,
}

/// Returns the Secret that a class names for a kind of call.
pub(crate) fn secret_ref(
    role: Role,
    class: &Texts,
    tokens: &Tokens<'_>,
) -> Result<Option<SecretReference>, SecretRefError> {
    let named = match templates(role, class)? {
        None => templates(Role::Default, class)?,
        named => named,
    };
    let Some([name, namespace]) = named else { return Ok(None) };
    // The namespace only accepts the two tokens whose values tenants cannot choose.
    let namespace = resolved(namespace, |token| match token {
        "pv.name" => Some(tokens.volume.to_owned()),
        "pvc.namespace" => Some(tokens.namespace.to_owned()),
        _ => None,
    })?;
    let name = resolved(name, |token| match token {
        "pv.name" => Some(tokens.volume.to_owned()),
        "pvc.namespace" => Some(tokens.namespace.to_owned()),
        "pvc.name" => Some(tokens.claim.to_owned()),
        token => {
            let key = token.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
            tokens.annotations?.get(key).cloned()
        }
    })?;
    if !is_label(&namespace) || namespace.len() > 63 {
        return Err(SecretRefError::Name { name: namespace, kind: "namespace" });
    }
    if !name.split('.').all(is_label) || name.len() > 253 {
        return Err(SecretRefError::Name { name, kind: "Secret" });
    }
    Ok(Some(SecretReference { name: Some(name), namespace: Some(namespace) }))
}

fn resolved(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, SecretRefError> {
    expand(template, value).map_err(|tokens| SecretRefError::Tokens { template: template.to_owned(), tokens })
}

/// Returns the templates for the Secret's name and namespace.
pub(crate) fn templates(role: Role, class: &Texts) -> Result<Option<[&str; 2]>, SecretRefError> {
    let keys = role.keys();
    let mut found = [None, None];
    for (part, key) in keys.iter().enumerate() {
        let deprecated = role.deprecated_keys().and_then(|keys| class.get(&keys[part]));
        found[part] = match (class.get(&format!("{RESERVED}{key}")), deprecated) {
            (Some(_), Some(_)) => return Err(SecretRefError::Twice(key.clone())),
            (one, None) => one,
            (None, other) => other,
        };
    }
    match found {
        [None, None] => Ok(None),
        [Some(name), Some(namespace)] => match [name, namespace].iter().position(|text| text.is_empty()) {
            Some(part) => Err(SecretRefError::Empty(keys[part].clone())),
            None => Ok(Some([name, namespace])),
        },
        _ => Err(SecretRefError::Half(keys)),
    }
}

fn is_label(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(role: Role, class: &[(&str, &str)]) -> Result<Option<String>, SecretRefError> {
        let class = class.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let annotations = [("akey".to_owned(), "avalue".to_owned()), ("bad".to_owned(), "a/b".to_owned())].into();
        let tokens = Tokens { volume: "pvname", claim: "pvcname", namespace: "pvcns", annotations: Some(&annotations) };
        let reference = secret_ref(role, &class, &tokens)?;
        Ok(reference.map(|secret| format!("{}/{}", secret.namespace.unwrap(), secret.name.unwrap())))
    }

    const NAME: &str = "csi.storage.k8s.io/node-publish-secret-name";
    const NAMESPACE: &str = "csi.storage.k8s.io/node-publish-secret-namespace";
    const OLD_NAME: &str = "csiNodePublishSecretName";
    const OLD_NAMESPACE: &str = "csiNodePublishSecretNamespace";
    const DEFAULT: [(&str, &str); 2] =
        [("csi.storage.k8s.io/secret-name", "default"), ("csi.storage.k8s.io/secret-namespace", "ns")];

    #[test]
    fn reads_the_secret_references_of_a_class() {
        for (class, expected) in [
            (vec![], None),
            (vec![(NAME, "name"), (NAMESPACE, "ns")], Some("ns/name")),
            (vec![(OLD_NAME, "name"), (OLD_NAMESPACE, "ns")], Some("ns/name")),
            (vec![(OLD_NAME, "name"), (NAMESPACE, "ns")], Some("ns/name")),
            (vec![(NAME, "a.b-c"), (NAMESPACE, "ns")], Some("ns/a.b-c")),
            (DEFAULT.to_vec(), Some("ns/default")),
            (vec![DEFAULT[0], DEFAULT[1], (NAME, "own"), (NAMESPACE, "ns")], Some("ns/own")),
            (
                vec![
                    (NAME, "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}"),
                    (NAMESPACE, "static-${pv.name}-${pvc.namespace}"),
                ],
                Some("static-pvname-pvcns/static-pvname-pvcns-pvcname-avalue"),
            ),
        ] {
            assert_eq!(found(Role::NodePublish, &class), Ok(expected.map(str::to_owned)), "{class:?}");
        }
    }

    #[test]
    fn rejects_ambiguous_or_invalid_references() {
        for class in [
            vec![(NAME, "foo")],
            vec![(NAMESPACE, "foo")],
            vec![(OLD_NAME, "foo")],
            vec![(OLD_NAMESPACE, "foo")],
            vec![(OLD_NAME, ""), (OLD_NAMESPACE, "")],
            vec![(NAME, "a"), (NAMESPACE, "")],
            vec![(NAME, "a"), (NAMESPACE, "b"), (OLD_NAME, "a")],
            vec![(NAME, "a"), (NAMESPACE, "b"), (OLD_NAMESPACE, "b")],
            vec![DEFAULT[0], DEFAULT[1], (NAME, "own")],
            vec![DEFAULT[0]],
            vec![(NAME, "bad name"), (NAMESPACE, "ns")],
            vec![(NAME, "Name"), (NAMESPACE, "ns")],
            vec![(NAME, "a..b"), (NAMESPACE, "ns")],
            vec![(NAME, "name"), (NAMESPACE, "a.b")],
            vec![(NAME, "name"), (NAMESPACE, "-")],
            vec![(NAME, "name"), (NAMESPACE, "${pvc.name}")],
            vec![(NAME, "name"), (NAMESPACE, "${pvc.annotations['akey']}")],
            vec![(NAME, "${pvc.annotations['none']}"), (NAMESPACE, "ns")],
            vec![(NAME, "${pvc.annotations['bad']}"), (NAMESPACE, "ns")],
            vec![(NAME, "my${foo}"), (NAMESPACE, "ns")],
        ] {
            assert!(found(Role::NodePublish, &class).is_err(), "{class:?}");
        }
        let error = found(Role::NodePublish, &[(NAME, "a${pvc.uid}"), (NAMESPACE, "ns")]).unwrap_err();
        assert_eq!(error.to_string(), r#""a${pvc.uid}" in the class has tokens without a value: pvc.uid"#);
    }

    #[test]
    fn each_role_uses_its_own_keys() {
        let class: Vec<_> =
            Role::ALL.iter().flat_map(|role| role.keys()).map(|key| format!("{RESERVED}{key}")).collect();
        for role in Role::ALL {
            let own: Vec<String> = role.keys().map(|key| format!("{RESERVED}{key}")).into();
            let class: Vec<_> =
                class.iter().map(|key| (key.as_str(), if own.contains(key) { "own" } else { "other" })).collect();
            assert_eq!(found(role, &class), Ok(Some("own/own".to_owned())), "{role:?}");
        }
    }
}
