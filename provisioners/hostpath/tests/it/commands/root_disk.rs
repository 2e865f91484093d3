//! `root replace` abandons volumes on another disk, and `root adopt` moves volumes from the node's former name.

use kube_sim::{DeleteOptions, Target};
use serde_json::{Value, json};

use super::world::*;

const NODE: &str = "node-1";

/// Returns a bound volume of a node, on the disk with this id.
fn volume(world: &World, name: &str, node: &str, disk: &str) -> Value {
    if world.cluster.get("", "namespaces", "", "shop").is_err() {
        world.cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    }
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
    world
        .cluster
        .create(&json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"kept": "yes"},
                "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"],
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER, "hostpath-provisioner/node": node,
                    "hostpath-provisioner/node-uid": "uid", "hostpath-provisioner/root": disk,
                    "kube-provisioner/cluster-id": HERE, "kube-provisioner/identity": node,
                    "hostpath-provisioner/node-gone-since": "2026-01-01T00:00:00Z"}},
            "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
                "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": affinity,
                "hostPath": {"path": world.path(name)},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop",
                    "name": name}}}))
        .unwrap();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "volumeName": name,
            "storageClassName": "class"}});
    world.cluster.create(&claim).unwrap();
    world.eventually("the claim is bound", |_| phase(world, name) == "Bound");
    world.cluster.get("", "persistentvolumes", "", name).unwrap()
}

fn node(world: &World, name: &str) {
    world.cluster.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).unwrap();
}

fn is_there(world: &World, name: &str) -> bool {
    world.cluster.get("", "persistentvolumes", "", name).is_ok()
}

fn phase(world: &World, claim: &str) -> String {
    let claim = world.cluster.get("", "persistentvolumeclaims", "shop", claim).unwrap();
    claim["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn abandons_volumes_of_a_former_disk() {
    let world = World::live();
    let here = world.root.id().unwrap().to_owned();
    node(&world, NODE);
    volume(&world, "pv-lost", NODE, "former");
    volume(&world, "pv-copied", NODE, "former");
    world.directory("pv-copied", &owner("pv-copied"), false);
    volume(&world, "pv-here", NODE, &here);
    volume(&world, "pv-elsewhere", "node-2", "former");
    let command = ["root", "replace", "--node-name", NODE];
    let (ok, text) = world.run(&command, "no\n");
    assert!(!ok && text.contains("missing disk (1 in total)?") && is_there(&world, "pv-lost"), "{text}");
    assert!(line(&text, "pv-lost").contains("shop/pv-lost"), "{text}");
    assert!(line(&text, "pv-copied").contains("not abandoned") && !text.contains("pv-here"), "{text}");
    assert!(line(&text, "pv-copied").contains("run `adopt --volume pv-copied`"), "{text}");
    let (ok, text) = world.run(&[&command[..], &["--yes"]].concat(), "");
    assert!(ok && text.contains("kubectl delete pvc -n shop pv-lost") && !is_there(&world, "pv-lost"), "{text}");
    for name in ["pv-copied", "pv-here", "pv-elsewhere"] {
        assert!(is_there(&world, name), "{name}");
    }
    world.eventually("the claim is lost", |_| phase(&world, "pv-lost") == "Lost");
    let (ok, text) = world.run(&command, "");
    assert!(ok && text.contains("no volume of this node"), "{text}");
    // Afterwards the node's replica manages the volume again.
    let (ok, text) = world.run(&["adopt", "--volume", "pv-copied", "--node-name", NODE], "");
    let annotations = &world.cluster.get("", "persistentvolumes", "", "pv-copied").unwrap()["metadata"]["annotations"];
    let uid = &world.cluster.get("", "nodes", "", NODE).unwrap()["metadata"]["uid"];
    assert!(ok && annotations["hostpath-provisioner/root"] == here, "{text}{annotations}");
    assert_eq!(&annotations["hostpath-provisioner/node-uid"], uid);
}

#[test]
fn abandons_all_volumes_of_a_dead_or_new_disk() {
    let world = World::live();
    let here = world.root.id().unwrap().to_owned();
    node(&world, NODE);
    volume(&world, "pv-1", NODE, &here);
    // A root that is refused because of its mode, or usable again, is on a disk that is neither dead nor new.
    for (mode, is_refused) in [(0o777, true), (0o700, false)] {
        std::fs::set_permissions(world.root.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let (ok, text) = world.run(&["root", "replace", "--node-name", NODE], "y\n");
        assert!(ok != is_refused && is_there(&world, "pv-1"), "{text}");
    }
    std::fs::remove_dir_all(world.path(".kube-provisioner")).unwrap();
    let (ok, text) = world.run(&["root", "replace", "--node-name", NODE], "y\n");
    assert!(ok && !is_there(&world, "pv-1"), "{text}");
    volume(&world, "pv-2", NODE, &here);
    std::fs::remove_dir_all(world.root.path()).unwrap();
    let (ok, text) = world.run(&["root", "replace", "--node-name", NODE], "y\n");
    assert!(ok && text.contains("cannot be used") && !is_there(&world, "pv-2"), "{text}");
}

#[test]
fn moves_volumes_to_the_new_name_of_their_node() {
    let world = World::live();
    let here = world.root.id().unwrap().to_owned();
    node(&world, "former");
    node(&world, NODE);
    for name in ["pv-1", "pv-2"] {
        let volume = volume(&world, name, "former", &here);
        let uid = volume["metadata"]["uid"].as_str().map(str::to_owned);
        world.directory(name, &directory_volumes::Owner { uid, ..owner(name) }, false);
    }
    volume(&world, "pv-3", "former", "another disk");
    let command = ["root", "adopt", "--node-name", NODE];
    let (ok, text) = world.run(&command, "y\n");
    assert!(!ok && text.contains("the node former, which volumes of this disk name, exists"), "{text}");
    world
        .cluster
        .delete(&Target { group: "", plural: "nodes", namespace: "", name: "former" }, DeleteOptions::default())
        .unwrap();
    let before = world.cluster.get("", "persistentvolumes", "", "pv-1").unwrap();
    // An earlier call was interrupted between the deletion of the second volume and its recreation.
    world.root.put_note("renamed", &delete_volume(&world, "pv-2").to_string()).unwrap();
    let (ok, text) = world.run(&command, "y\n");
    assert!(ok && text.contains("volumes of the node node-1 (1 in total)?"), "{text}");
    let after = world.cluster.get("", "persistentvolumes", "", "pv-1").unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    let annotations = &after["metadata"]["annotations"];
    assert_eq!(
        (&annotations["hostpath-provisioner/node"], &after["metadata"]["labels"]["kept"]),
        (&json!(NODE), &json!("yes"))
    );
    assert_eq!(annotations["kube-provisioner/identity"], NODE);
    assert!(annotations.get("hostpath-provisioner/node-gone-since").is_none(), "{annotations}");
    assert!(after["spec"]["nodeAffinity"].to_string().contains(NODE), "{after}");
    assert_eq!(before["spec"]["claimRef"]["uid"], after["spec"]["claimRef"]["uid"]);
    assert_eq!(world.mark("pv-1").unwrap().uid.as_deref(), after["metadata"]["uid"].as_str());
    // An earlier call was interrupted before it updated the mark.
    let mark = world.mark("pv-1").unwrap();
    let stale = directory_volumes::Owner { uid: Some("former".to_owned()), ..mark.clone() };
    world.root.transfer(&at("pv-1"), &mark, &stale, false).unwrap();
    world.root.put_note("renamed", &after.to_string()).unwrap();
    assert!(world.run(&command, "").0 && world.mark("pv-1") == Some(mark));
    assert_eq!(world.root.note("renamed").unwrap().as_deref(), Some(""));
    assert!(is_there(&world, "pv-2") && is_there(&world, "pv-3"));
    for claim in ["pv-1", "pv-2"] {
        // Kubernetes would notice the volume at its next resync, within 15 seconds.
        let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "shop", name: claim };
        let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
        world.cluster.patch(&target, None, kube_sim::PatchKind::Merge, &patch).unwrap();
        world.eventually("the claims have their volumes again", |_| phase(&world, claim) == "Bound");
    }
    let (ok, text) = world.run(&command, "");
    assert!(ok && text.contains("no volume of this disk names another node"), "{text}");
    // A volume that was deleted in the meantime is not restored.
    world.root.put_note("renamed", &delete_volume(&world, "pv-2").to_string()).unwrap();
    std::fs::remove_file(world.path(".kube-provisioner/volumes/pv-2")).unwrap();
    assert!(world.run(&command, "").0 && !is_there(&world, "pv-2"));
}

/// Deletes a volume, and returns its object for the new node.
fn delete_volume(world: &World, name: &str) -> Value {
    let mut object = world.cluster.get("", "persistentvolumes", "", name).unwrap();
    let target = Target { group: "", plural: "persistentvolumes", namespace: "", name };
    // Delete the object first, because finalizers cannot be added to an object that is being deleted.
    world.cluster.delete(&target, DeleteOptions::default()).unwrap();
    let patch = json!({"metadata": {"finalizers": null}});
    world.cluster.patch(&target, None, kube_sim::PatchKind::Merge, &patch).unwrap();
    world.eventually("the volume is deleted", |_| !is_there(world, name));
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    metadata["annotations"]["hostpath-provisioner/node"] = json!(NODE);
    object
}
