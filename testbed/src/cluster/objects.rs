//! Kubernetes objects that tests use as templates.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A class with reclaim policy `Delete` and immediate binding.
pub fn class(name: &str, provisioner: &str) -> StorageClass {
    StorageClass {
        metadata: named(name),
        provisioner: provisioner.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("Immediate".to_owned()),
        ..StorageClass::default()
    }
}

/// A claim for 1 MiB with `ReadWriteOnce`.
pub fn claim(name: &str, class: &str) -> PersistentVolumeClaim {
    let size = BTreeMap::from([("storage".to_owned(), Quantity("1Mi".to_owned()))]);
    PersistentVolumeClaim {
        metadata: named(name),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class.to_owned()),
            resources: Some(VolumeResourceRequirements { requests: Some(size), limits: None }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// True if the claim is bound to a volume.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

/// Five random letters and digits.
pub fn random_suffix() -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    // The standard library seeds each state at random.
    let random = RandomState::new().hash_one(std::process::id());
    (0..5).map(|place| char::from(DIGITS[(random >> (5 * place)) as usize % 32])).collect()
}

pub(crate) fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_differ() {
        assert_ne!(random_suffix(), random_suffix());
        assert_eq!(random_suffix().len(), 5);
    }
}
