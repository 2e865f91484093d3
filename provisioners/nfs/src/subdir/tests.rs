//! Runs the contract, and tests unusable shares.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use directory_volumes::hostile::{contract, entries};
use directory_volumes::{Root, TrashLimits, Worker};
use kube_provisioner::conformance::Conformance;
use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::{ProvisionRequest, Provisioner, StartError};

use super::provisioner::Subdir;
use super::share::Mounted;

/// The provisioner's name in the contract's classes.
const OWN: &str = "conformance.example.com/provisioner";

/// nfs-subdir-external-provisioner archived by default. The volume's annotations and an event show it.
#[tokio::test]
async fn a_class_of_the_former_provisioner_that_says_nothing_archives() {
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
    let folder = tempfile::tempdir().unwrap();
    let (share, listed) = (format!("nfs.example.com:/exports={}", folder.path().display()), folder.path().to_owned());
    let start = move || {
        Subdir::new(OWN.to_owned(), vec![share.parse().unwrap()], Mounted::Anyhow, TrashLimits::default()).unwrap()
    };
    let kit = Conformance::new(start, async move || entries(&listed));
    contract(kit.refuses([("path", "/etc")]), folder.path());
}

/// When all threads of a share are busy, its next call fails with the reason, and other shares continue. The share
/// works again when its threads are free. The probe has a separate thread.
#[tokio::test(start_paused = true)]
async fn a_share_whose_calls_do_not_end_costs_its_own_threads_alone() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let worker = |folder: &tempfile::TempDir| {
        let root = Root::open_shared(folder.path()).unwrap();
        root.put_marker().unwrap();
        Worker::new(root)
    };
    let (hanging, other) = (worker(&one), worker(&two));
    let (release, gate) = mpsc::channel::<()>();
    let (gate, (begins, begun)) = (Arc::new(Mutex::new(gate)), mpsc::channel());
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let (worker, gate, begins) = (hanging.clone(), gate.clone(), begins.clone());
            tokio::spawn(async move {
                let work = move |_: &Root| {
                    begins.send(()).unwrap();
                    let _ = gate.lock().unwrap().recv();
                    Ok::<_, StartError>(())
                };
                worker.run(work).await
            })
        })
        .collect();
    let mut count = 0;
    while count < 16 {
        tokio::task::yield_now().await;
        count += begun.try_iter().count();
    }
    let late = tokio::spawn(async move { (hanging.run(|_| Ok::<_, StartError>(())).await, hanging) });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(11)).await;
    let (told, hanging) = late.await.unwrap();
    assert!(told.unwrap_err().to_string().contains("busy with 0 deletions and 16 other calls"));
    hanging.probe().await.unwrap();
    other.probe().await.unwrap();
    drop(release);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    hanging.probe().await.unwrap();
}
