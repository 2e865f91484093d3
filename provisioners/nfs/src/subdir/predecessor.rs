//! Classes of nfs-subdir-external-provisioner, which archives deleted volumes by default.

use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;

use crate::source::CSI_DRIVER;

/// Suffixes of the provisioner's names in its manifests and chart, and in its predecessor's.
const NAMES: [&str; 3] = ["nfs-subdir-external-provisioner", "nfs-client-provisioner", "fuseim.pri/ifs"];
/// The parameters with which a class chooses the action on deleted data.
const POLICY_PARAMETERS: [&str; 2] = ["onDelete", "archiveOnDelete"];

/// Returns true if classes with this name archive by default. The former provisioner can have any name, so an
/// additional name is assumed to be the former provisioner's. The CSI driver deletes by default.
pub(super) fn archives(provisioner: &str, own_name: Option<&str>) -> bool {
    let is_further = own_name.is_some_and(|own| own != provisioner) && provisioner != CSI_DRIVER;
    is_further || NAMES.iter().any(|name| provisioner.ends_with(name))
}

/// Returns a note for the users of a class that archives by default.
pub(super) fn class_warning(class: &StorageClass, own_name: Option<&str>) -> Option<String> {
    let has_parameter = |key: &&str| class.parameters.as_ref().is_some_and(|all| all.contains_key(*key));
    let has_no_policy = !POLICY_PARAMETERS.iter().any(has_parameter) && archives(&class.provisioner, own_name);
    has_no_policy.then(|| {
        format!(
            "the class sets neither onDelete nor archiveOnDelete, so the data of deleted volumes is archived, as \
             nfs-subdir-external-provisioner did for classes of {}: it stays in the trash until `trash purge`; a \
             class with archiveOnDelete: \"false\" removes it, and one with \"true\" archives it without this note",
            class.provisioner
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn advised(provisioner: &str, parameters: &[(&str, &str)], own_name: Option<&str>) -> bool {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let parameters: BTreeMap<_, _> = parameters.collect();
        let class = StorageClass {
            provisioner: provisioner.to_owned(),
            parameters: Some(parameters),
            ..StorageClass::default()
        };
        class_warning(&class, own_name).is_some()
    }

    #[test]
    fn classes_of_the_former_provisioner_archive_by_default() {
        let own = Some("example.com/nfs");
        for name in [
            "k8s-sigs.io/nfs-subdir-external-provisioner",
            "cluster.local/x-nfs-subdir-external-provisioner",
            "fuseim.pri/ifs",
        ] {
            assert!(advised(name, &[], None) && advised(name, &[("pathPattern", "x")], Some(name)), "{name}");
            assert!(!advised(name, &[("archiveOnDelete", "false")], own), "{name}");
            assert!(!advised(name, &[("onDelete", "retain")], own), "{name}");
        }
        assert!(advised("cluster.local/files", &[], own), "its chart allows any name");
        assert!(!advised("cluster.local/files", &[], None) && !advised("example.com/nfs", &[], own));
        assert!(!advised(CSI_DRIVER, &[], own));
    }
}
