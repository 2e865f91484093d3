//! The trash, and restoring volumes from it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kube_provisioner::FencingToken;
use kube_sim::{Before, Interceptor, Request, Status, Verb};
use serde_json::{Value, json};

use super::world::*;

fn discard(world: &World, name: &str, cluster: Option<&str>, object: &Value) {
    let owner = in_cluster(name, cluster);
    world.directory(name, &owner, false);
    world.root.move_to_trash(&at(name), &owner, None, object.clone(), &FencingToken::unlimited()).unwrap();
}

fn object(world: &World, name: &str, capacity: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": capacity}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": world.path(name)},
            "claimRef": {"namespace": "shop", "name": "data", "uid": "old"}}})
}

#[test]
fn keeps_a_volume_in_the_trash_if_its_object_is_refused() {
    let world = World::new();
    discard(&world, "pv-1", Some(HERE), &object(&world, "pv-1", "-1"));
    let (ok, text) = world.run(&["trash", "restore", "pv-1"], "");
    assert!(!ok && !world.is_there("pv-1") && world.mark("pv-1").is_none(), "{text}");
    assert_eq!(world.root.trash().unwrap().len(), 1, "{text}");
    discard(&world, "pv-2", Some(HERE), &object(&world, "pv-2", "1Mi"));
    let (ok, text) = world.run(&["trash", "restore", "pv-2"], "");
    assert!(ok && world.is_there("pv-2") && world.root.restoring().unwrap().is_empty(), "{text}");
    let volume = world.cluster.get("", "persistentvolumes", "", "pv-2").unwrap();
    assert_eq!(volume["metadata"]["annotations"]["kube-provisioner/cluster-id"], HERE);
    assert_eq!(world.mark("pv-2").unwrap().uid.as_deref(), volume["metadata"]["uid"].as_str());
}

/// Answers the second creation, which follows the dry run, without executing it.
struct Answers(Status, AtomicU32);

impl Interceptor for Answers {
    fn before<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Before> + Send + 'a>> {
        let is_answered = request.verb == Verb::Create
            && request.resource.plural == "persistentvolumes"
            && self.1.fetch_add(1, Ordering::Relaxed) == 1;
        let before = if is_answered { Before::Refuse(self.0.clone()) } else { Before::Handle };
        Box::pin(async move { before })
    }
}

/// After a timeout, the API server may still create the volume.
#[test]
fn undoes_a_restore_only_if_the_volume_was_refused() {
    for (status, is_undone) in [(Status::new(403, "Forbidden", "no"), true), (Status::timeout("later", 1), false)] {
        let world = World::behind(Arc::new(Answers(status, AtomicU32::new(0))));
        discard(&world, "pv-1", Some(HERE), &object(&world, "pv-1", "1Mi"));
        let (ok, text) = world.run(&["trash", "restore", "pv-1"], "");
        assert!(!ok && world.is_there("pv-1") != is_undone && world.mark("pv-1").is_none() == is_undone, "{text}");
        assert_eq!(world.root.trash().unwrap().len(), usize::from(is_undone), "{text}");
        let (ok, text) = world.run(&["trash", "restore", "pv-1"], "");
        assert!(ok && world.is_there("pv-1") && world.root.restoring().unwrap().is_empty(), "{text}");
    }
}

/// An earlier call ended after it had created the volume.
#[test]
fn finishes_an_interrupted_restore() {
    let world = World::new();
    discard(&world, "pv-1", Some(HERE), &object(&world, "pv-1", "1Mi"));
    world.root.restore("pv-1", Some(HERE)).unwrap();
    world.volume("pv-1", &world.source("pv-1"));
    let (ok, text) = world.run(&["trash", "list"], "");
    assert!(ok && line(&text, "pv-1").contains("restore it again"), "{text}");
    let (ok, text) = world.run(&["trash", "restore", "pv-1"], "");
    assert!(ok && world.is_there("pv-1") && world.root.restoring().unwrap().is_empty(), "{text}");
}

#[test]
fn purge_continues_an_interrupted_purge() {
    let world = World::new();
    for (name, cluster) in [("pv-1", HERE), ("pv-2", HERE), ("theirs", ELSEWHERE)] {
        discard(&world, name, Some(cluster), &Value::Null);
        let own = world.path(".kube-provisioner");
        std::fs::rename(own.join("trash").join(name), own.join("deleting").join(name)).unwrap();
    }
    let left = || world.root.survey().unwrap().deleting;
    let (ok, text) = world.run(&["trash", "purge", "pv-1"], "");
    assert!(ok && text.contains("pv-1 is removed") && left().len() == 2, "{text}");
    let (ok, text) = world.run(&["trash", "purge", "theirs"], "");
    assert!(!ok && text.contains("theirs is kept") && left().len() == 2, "{text}");
    let (ok, text) = world.run(&["trash", "purge", "--all"], "");
    assert!(ok && text.contains("pv-2 is removed") && left() == ["theirs"], "{text}");
    let (ok, text) = world.run(&["trash", "purge", "pv-1"], "");
    assert!(!ok && text.contains("there is no volume in the trash"), "{text}");
}

#[test]
fn does_not_purge_volumes_of_other_clusters() {
    let world = World::new();
    discard(&world, "ours", Some(HERE), &Value::Null);
    discard(&world, "theirs", Some(ELSEWHERE), &object(&world, "theirs", "1Mi"));
    discard(&world, "before", None, &Value::Null);
    let left = || world.root.trash().unwrap().into_iter().map(|entry| entry.unwrap().mark.owner.volume);
    let (ok, text) = world.run(&["trash", "purge", "--all"], "");
    assert!(ok && left().eq(["before", "theirs"]), "{text}");
    for name in ["before", "theirs"] {
        let (ok, text) = world.run(&["trash", "purge", name], "");
        assert!(!ok && text.contains("is kept"), "{text}");
    }
    let (ok, text) = world.run(&["trash", "restore", "theirs"], "");
    assert!(!ok && text.contains("cluster-2"), "{text}");
    let (ok, text) = world.run(&["trash", "purge", "before", "--of-unknown-cluster"], "");
    assert!(ok && left().eq(["theirs"]), "{text}");
    // An entry that cannot be read stays, and the others are removed.
    for name in ["damaged", "ours"] {
        discard(&world, name, Some(HERE), &Value::Null);
    }
    let entry = world.path(".kube-provisioner/trash/damaged");
    std::fs::write(entry.join("record"), "{").unwrap();
    let (ok, text) = world.run(&["trash", "purge", "--all"], "");
    assert!(!ok && entry.exists() && !world.path(".kube-provisioner/trash/ours").exists(), "{text}");
    let (ok, text) = world.run(&["trash", "list"], "");
    assert!(
        ok && text.contains("theirs") && text.contains("\"trash/damaged/record\" in .kube-provisioner cannot be read"),
        "{text}"
    );
}

/// The output is redirected to a full disk.
#[test]
fn reports_a_full_stdout_without_a_panic() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = World::new().command(&["trash", "list"]).stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("cannot write to stdout"), "{text}");
}
