//! Two clusters whose provisioners have the same name and the same root, such as a network file system.

use kube_sim::{Cluster, DeleteOptions, Target};
use serde_json::{Value, json};

use super::world::*;

const COUNT: usize = 20;

fn name(number: usize) -> String {
    format!("claim-{number}")
}

/// Creates claims with the same names in each cluster, and a class that names directories after them.
fn create_claims(cluster: &Cluster) {
    cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "class"},
        "provisioner": PROVISIONER, "parameters": {"pathPattern": "${pvc.metadata.namespace}/${pvc.metadata.name}"}});
    cluster.create(&class).unwrap();
    for number in 0..COUNT {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name(number)},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "class",
                "resources": {"requests": {"storage": "1Mi"}}}});
        cluster.create(&claim).unwrap();
    }
}

fn volumes(cluster: &Cluster) -> Vec<Value> {
    cluster.list("", "persistentvolumes", None).unwrap()
}

fn delete_claims(cluster: &Cluster) {
    for number in 0..COUNT {
        let (plural, name) = ("persistentvolumeclaims", name(number));
        let target = Target { group: "", plural, namespace: "shop", name: &name };
        cluster.delete(&target, DeleteOptions::default()).unwrap();
    }
}

#[test]
fn does_not_touch_volumes_of_the_other_cluster() {
    let ours = World::live();
    let theirs = ours.another();
    create_claims(&ours.cluster);
    let _our_program = ours.start(&[]);
    let all_bound = |cluster: &Cluster| {
        let phases = volumes(cluster).into_iter().filter(|volume| volume["status"]["phase"] == "Bound");
        phases.count() == COUNT
    };
    ours.eventually("all are bound", all_bound);
    let path = |number: usize| format!("shop/{}", name(number));
    for number in 0..COUNT {
        std::fs::write(ours.path(&path(number)).join("data"), "ours").unwrap();
    }
    let marks: Vec<_> = (0..COUNT).map(|number| ours.mark(&path(number))).collect();
    let unchanged = |what: &str| {
        for (number, mark) in marks.iter().enumerate() {
            assert!(ours.is_there(&path(number)) && ours.mark(&path(number)) == *mark, "{what}: {number}");
        }
    };
    // Claims with the same names wait, and their events do not name the owner of the directories.
    create_claims(&theirs.cluster);
    let their_program = theirs.start(&[]);
    theirs.eventually("all claims have an event", |cluster| {
        let events = cluster.list("", "events", None).unwrap();
        let told = |number: usize| {
            events.iter().any(|event| {
                event["involvedObject"]["name"] == name(number)
                    && event["message"].as_str().is_some_and(|text| text.contains("belongs to another volume"))
            })
        };
        (0..COUNT).all(told)
    });
    assert!(volumes(&theirs.cluster).is_empty());
    unchanged("claims of the same names");
    delete_claims(&theirs.cluster);
    theirs.eventually("all deleted", |cluster| cluster.list("", "persistentvolumeclaims", None).unwrap().is_empty());
    unchanged("their deletion");
    // The other cluster restores a backup of our volumes, but not of the claims. Half of the volumes do not contain
    // their cluster's id, as in earlier versions.
    for (number, mut volume) in volumes(&ours.cluster).into_iter().enumerate() {
        let metadata = volume["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| ["name", "annotations", "finalizers"].contains(&key.as_str()));
        if number % 2 == 0 {
            metadata["annotations"].as_object_mut().unwrap().remove("kube-provisioner/cluster-id");
        }
        volume["status"] = Value::Null;
        theirs.cluster.create(&volume).unwrap();
    }
    theirs.eventually("volumes without a cluster id are refused", |cluster| {
        let events = cluster.list("", "events", None).unwrap();
        events.iter().filter(|event| event["involvedObject"]["kind"] == "PersistentVolume").count() >= COUNT / 2
    });
    unchanged("a restored backup");
    drop(their_program);
    let (ok, text) = theirs.run(&["orphans", "--delete", "--yes"], "");
    assert!(ok && text.contains("0 orphans") && text.contains("another cluster's (cluster-1)"), "{text}");
    unchanged("orphans");
    // Our volumes are deleted as usual.
    delete_claims(&ours.cluster);
    ours.eventually("all volumes are deleted", |cluster| volumes(cluster).is_empty());
    assert!(!ours.path("shop").exists());
}
