//! A class's parameters. Keys with the prefix `csi.storage.k8s.io/` are for the provisioner, all others for the driver.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::secret_refs::Role;

/// The prefix of keys that are not sent to drivers.
pub(crate) const RESERVED: &str = "csi.storage.k8s.io/";

pub(crate) type Texts = BTreeMap<String, String>;

/// Reasons why a class's parameters are invalid.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum ParameterError {
    #[error("the class has the unknown parameter {0}; the prefix {RESERVED} is reserved for the provisioner")]
    Unknown(String),
    #[error("the class names the file system twice; use only {RESERVED}fstype")]
    TwoFileSystems,
}

/// Returns the driver's parameters. They include deprecated keys of the provisioner, which drivers have always
/// received.
pub(crate) fn of_driver(class: &Texts) -> Result<Texts, ParameterError> {
    let (ours, theirs): (Texts, Texts) = class.clone().into_iter().partition(|(key, _)| key.starts_with(RESERVED));
    let is_known = |key: &str| {
        let key = &key[RESERVED.len()..];
        key == "fstype" || Role::ALL.into_iter().any(|role| role.keys().iter().any(|known| known == key))
    };
    match ours.into_keys().find(|key| !is_known(key)) {
        Some(unknown) => Err(ParameterError::Unknown(unknown)),
        None => Ok(theirs),
    }
}

/// Returns the file system that the class names. The deprecated key has no prefix, and its case does not matter.
pub(crate) fn file_system(class: &Texts) -> Result<Option<&str>, ParameterError> {
    let names = |key: &str| key.eq_ignore_ascii_case("fstype") || key.strip_prefix(RESERVED) == Some("fstype");
    let mut named = class.iter().filter(|(key, _)| names(key)).map(|(_, value)| value.as_str());
    match (named.next(), named.next()) {
        (_, Some(_)) => Err(ParameterError::TwoFileSystems),
        (named, None) => Ok(named.filter(|name| !name.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<const N: usize>(texts: [(&str, &str); N]) -> Texts {
        texts.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn driver_receives_no_reserved_parameters() {
        let class = texts([
            ("csi.storage.k8s.io/fstype", "xfs"),
            ("csi.storage.k8s.io/secret-name", "a"),
            ("csi.storage.k8s.io/node-expand-secret-namespace", "a"),
            ("csiProvisionerSecretName", "a"),
            ("fstype", "xfs"),
            ("pool", "a"),
        ]);
        let driver = texts([("csiProvisionerSecretName", "a"), ("fstype", "xfs"), ("pool", "a")]);
        assert_eq!(of_driver(&class), Ok(driver));
        for key in ["csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/", "csi.storage.k8s.io/FSType"] {
            assert_eq!(of_driver(&texts([(key, "")])), Err(ParameterError::Unknown(key.to_owned())));
        }
    }

    #[test]
    fn file_system_may_be_named_only_once() {
        for (class, name) in [
            (texts([]), Ok(None)),
            (texts([("FSType", "xfs")]), Ok(Some("xfs"))),
            (texts([("csi.storage.k8s.io/fstype", "xfs")]), Ok(Some("xfs"))),
            (texts([("fstype", "")]), Ok(None)),
            (texts([("fstype", "xfs"), ("FSTYPE", "xfs")]), Err(ParameterError::TwoFileSystems)),
            (texts([("fstype", "xfs"), ("csi.storage.k8s.io/fstype", "xfs")]), Err(ParameterError::TwoFileSystems)),
        ] {
            assert_eq!(file_system(&class), name, "{class:?}");
        }
    }
}
