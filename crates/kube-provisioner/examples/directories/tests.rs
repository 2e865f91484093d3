use std::time::Duration;

use kube_provisioner::conformance::Conformance;
use kube_provisioner::{CancellationToken, Controller, Options};
use kube_sim::{Actors, Cluster, Target};

use crate::Directories;

const MANIFEST: &str = r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: directories}
provisioner: example.com/directories
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {storageClassName: directories, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

/// A simulated cluster inside the test. Its clock advances only while all tasks wait, so a simulated minute takes less
/// than a second.
#[tokio::test(start_paused = true)]
async fn creates_a_directory_for_a_claim_and_deletes_it() {
    let root = tempfile::tempdir().unwrap();
    let cluster = Cluster::new();
    let _actors = cluster.run(Actors::all());
    let directories = Directories { root: root.path().to_owned() };
    let controller = Controller::new(directories, Options::new("example.com/directories"));
    tokio::spawn(controller.run_with(cluster.client("provisioner"), CancellationToken::new()));

    cluster.create_yaml(MANIFEST).unwrap();
    let claim = Target { plural: "persistentvolumeclaims", namespace: "default", name: "data", ..Target::default() };
    let volumes = |cluster: &Cluster| cluster.list("", "persistentvolumes", None).unwrap();
    let minute = Duration::from_secs(60);
    cluster
        .wait(minute, |cluster| volumes(cluster).iter().any(|volume| volume["status"]["phase"] == "Bound"))
        .await
        .unwrap();
    let path = volumes(&cluster)[0]["spec"]["hostPath"]["path"].as_str().unwrap().to_owned();
    assert!(std::fs::metadata(&path).unwrap().is_dir());

    cluster.delete(&claim, Default::default()).unwrap();
    cluster.wait(minute, |cluster| volumes(cluster).is_empty()).await.unwrap();
    assert!(!std::fs::exists(&path).unwrap());
}

/// Checks the whole contract, including crashes, repeated calls, a hundred claims and a failing API server.
#[test]
fn keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let (path, listed) = (root.path().to_owned(), root.path().to_owned());
    let assets = async move || {
        std::fs::read_dir(&listed).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect::<Vec<_>>()
    };
    Conformance::new(move || Directories { root: path.clone() }, assets).refuses([("keepData", "maybe")]).check();
}
