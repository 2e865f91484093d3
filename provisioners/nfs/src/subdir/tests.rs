//! The contract, and shares that cannot be used.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use directory_volumes::{Root, Worker};
use kube_provisioner::StartError;
use kube_provisioner::conformance::Conformance;

use super::provisioner::Subdir;
use super::share::Mounted;

#[test]
fn keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let (share, listed) = (format!("nfs.example.com:/exports={}", folder.path().display()), folder.path().to_owned());
    let start = move || Subdir::new(vec![share.parse().unwrap()], Mounted::Anyhow).unwrap();
    Conformance::new(start, async move || entries(&listed)).refuses([("path", "/etc")]).check();
}

/// As many calls hang as threads may: the next one is told, another share goes on, and so does this one when it is back.
#[tokio::test(start_paused = true)]
async fn a_share_that_hangs_costs_its_own_threads_alone() {
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
    let late = tokio::spawn(async move { (hanging.probe().await, hanging) });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(11)).await;
    let (told, hanging) = late.await.unwrap();
    assert!(told.unwrap_err().to_string().contains("does not answer"));
    other.probe().await.unwrap();
    drop(release);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    hanging.probe().await.unwrap();
}

/// The volumes, and what is kept of them.
fn entries(root: &Path) -> Vec<String> {
    let own = root.join(".kube-provisioner");
    let places = [root.to_owned(), own.join("volumes"), own.join("deleting")];
    let names = places.iter().filter_map(|place| place.read_dir().ok()).flatten();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".kube-provisioner");
    names.sort();
    names.dedup();
    names
}
