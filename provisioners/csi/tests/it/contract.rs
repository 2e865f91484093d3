//! Runs the conformance rules of provisioners with an in-memory driver as the backend.

use csi_provisioner::{CsiProvisioner, DriverInfo, Settings};
use csi_sim::{Driver, Faults};
use kube_provisioner::conformance::Conformance;

/// The rules that a provisioner for a CSI driver cannot keep. A driver deletes a volume by its id, and a recreated
/// volume has a new id. Therefore `delete` cannot find a volume by its name, and it trusts an object that names another
/// object's volume. The journal and fencing prevent a volume from being recreated, and the controller deletes nothing
/// for an object that it did not create.
const OF_DRIVERS: [&str; 2] = ["cancel-provision", "foreign-volume"];

async fn conformance(faults: Faults) -> Conformance {
    let driver = Driver::new(csi_sim::Settings::default());
    let info = DriverInfo::query(&driver).await.unwrap();
    driver.set_faults(faults, 1);
    let backend = driver.clone();
    let start = move || CsiProvisioner::new(backend.clone(), info.clone(), Settings::default(), "test");
    let volumes = async move || driver.volumes().into_iter().map(|volume| volume.volume_id).collect::<Vec<_>>();
    Conformance::new(start, volumes)
        .parameters([("csi.storage.k8s.io/fstype", "xfs")])
        .refuses([("csi.storage.k8s.io/unknown", "x")])
        .refuses([("fstype", "ext4"), ("csi.storage.k8s.io/fstype", "ext4")])
}

#[tokio::test(start_paused = true)]
async fn breaks_only_rules_that_no_driver_can_keep() {
    let report = conformance(Faults::default()).await.run().await;
    assert_eq!(report.broken().collect::<Vec<_>>(), OF_DRIVERS, "{report}");
}

#[tokio::test(start_paused = true)]
async fn keeps_conformance_rules_although_the_driver_fails() {
    let rules = [
        "provision",
        "idempotent",
        "cancel-delete",
        "abandoned",
        "clean-up",
        "restart",
        "two-replicas",
        "hundred-claims",
        "storm",
    ];
    let conformance = conformance(Faults { lost: 60, refused: 60, ..Faults::default() }).await;
    let report = rules.iter().fold(conformance, |conformance, rule| conformance.only(rule)).run().await;
    assert!(report.is_kept(), "{report}");
}
