//! Runs the conformance suite, and tests the classes of the former provisioner.

use std::sync::Arc;

use directory_volumes::hostile::{contract, entries, temp_dir};
use directory_volumes::{Root, TrashLimits};
use kube_provisioner::conformance::Conformance;
use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::{ProvisionRequest, Provisioner};

use super::provisioner::Subdir;
use super::share::RequiredMount;

/// The provisioner's name in the classes of the conformance suite.
const OWN: &str = "conformance.example.com/provisioner";

/// nfs-subdir-external-provisioner archived by default. The volume's annotations and an event show it.
#[tokio::test]
async fn archives_volumes_of_former_classes_without_a_policy() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open_shared(folder.path()).unwrap();
    root.put_marker().unwrap();
    let provisioner = Subdir::of_root("server:/exports=/x".parse().unwrap(), root);
    let provision = async |class: &str, parameters: &[(&str, &str)]| {
        let map = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut request = ProvisionRequest::new(kube_provisioner::parameters::from_map(&map).unwrap(), 1);
        let name = format!("pvc-{}-{}", class.len(), map.len());
        (request.name, request.class) = (
            name,
            Arc::new(StorageClass { provisioner: class.to_owned(), parameters: Some(map), ..StorageClass::default() }),
        );
        format!("{:?}", provisioner.provision(request).await.unwrap())
    };
    let former = "k8s-sigs.io/nfs-subdir-external-provisioner";
    let archived = provision(former, &[]).await;
    assert!(
        archived.contains("\"nfs-provisioner/on-delete\": \"trash\"") && !archived.contains("trash-ttl"),
        "{archived}"
    );
    assert!(archived.contains("neither onDelete nor archiveOnDelete"), "{archived}");
    let removed = provision(former, &[("archiveOnDelete", "false")]).await;
    assert!(!removed.contains("on-delete") && !removed.contains("neither"), "{removed}");
    let of_driver = provision("nfs.csi.k8s.io", &[]).await;
    assert!(!of_driver.contains("on-delete"), "{of_driver}");
}

#[test]
fn keeps_the_contract() {
    let folder = temp_dir();
    let (share, listed) = (format!("nfs.example.com:/exports={}", folder.path().display()), folder.path().to_owned());
    let start = move || {
        Subdir::new(OWN.to_owned(), vec![share.parse().unwrap()], RequiredMount::Any, TrashLimits::default()).unwrap()
    };
    let kit = Conformance::new(start, async move || entries(&listed));
    contract(kit.refuses([("path", "/etc")]), folder.path());
}
