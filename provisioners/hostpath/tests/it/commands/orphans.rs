//! `orphans --delete` moves only directories that certainly have no volume.

use serde_json::json;

use super::world::*;

#[test]
fn keeps_directories_that_may_belong_to_a_volume() {
    let world = World::new();
    let link = world.folder().join("link");
    std::os::unix::fs::symlink(world.root.path(), &link).unwrap();
    let top = world.root.path().display().to_string();
    let csi = json!({"server": "nfs.example.com", "share": top, "subDir": "csi"});
    // Each directory was created for a volume that no longer exists, and another volume refers to it.
    for (path, source) in [
        ("rebound", json!({"hostPath": {"path": format!("{top}/rebound")}})),
        (
            "local",
            json!({"local": {"path": format!("{top}//local/")}, "nodeAffinity": {"required": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}}}),
        ),
        ("linked", json!({"hostPath": {"path": link.join("linked")}})),
        ("nfs", json!({"nfs": {"server": "nfs.example.com", "path": format!("{top}/nfs")}})),
        ("csi", json!({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "h", "volumeAttributes": csi}})),
        ("elsewhere", json!({"nfs": {"server": "nfs.example.com", "path": "/exports/elsewhere"}})),
        ("shop/below", json!({"hostPath": {"path": format!("{top}/shop")}})),
        ("above", json!({"hostPath": {"path": format!("{top}/above/inner")}})),
    ] {
        world.directory(path, &owner(&format!("old-{}", path.replace('/', "-"))), false);
        world.volume(&format!("new-{}", path.replace('/', "-")), &source);
    }
    let others = [
        ("retained", owner("pv-retained"), true, "reclaim policy was Retain"),
        ("other-cluster", in_cluster("pv-other", Some(ELSEWHERE)), false, "another cluster's (cluster-2)"),
        ("before", in_cluster("pv-before", None), false, "names no cluster"),
        ("orphan", owner("pv-orphan"), false, "no volume"),
        ("orphan-2", owner("pv-orphan-2"), false, "no volume"),
    ];
    for (path, owner, retain, _) in &others {
        world.directory(path, owner, *retain);
    }
    world.directory("kept", &owner("pv-kept"), false);
    world.root.keep(&at("kept"), &owner("pv-kept")).unwrap();
    world.unmarked("stranger");
    let (ok, text) = world.run(&["orphans"], "");
    assert!(ok && text.contains("0 in use, 2 orphans, 0 in the trash"), "{text}");
    for (path, _, _, says) in &others {
        assert!(line(&text, &format!("{path} ")).contains(says), "{path}: {text}");
    }
    for name in ["rebound", "local", "linked", "nfs", "csi", "elsewhere", "shop-below", "above"] {
        assert!(
            line(&text, &format!("old-{name} ")).contains(&format!("kept: the volume new-{name}")),
            "{name}: {text}"
        );
    }
    // The command asks about each directory, and an empty answer means no.
    let (ok, text) = world.run(&["orphans", "--delete"], "");
    assert!(ok && world.is_there("orphan") && world.is_there("orphan-2"), "{text}");
    let (ok, text) = world.run(&["orphans", "--delete"], "n\nyes\n");
    assert!(ok && world.is_there("orphan") && !world.is_there("orphan-2"), "{text}");
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(ok && !world.is_there("orphan"), "{text}");
    for path in [
        "rebound",
        "local",
        "linked",
        "nfs",
        "csi",
        "elsewhere",
        "shop/below",
        "above",
        "retained",
        "other-cluster",
        "before",
        "kept",
        "stranger",
    ] {
        assert!(world.is_there(path), "{path}");
    }
    // Orphans in the trash do not expire.
    let (ok, text) = world.run(&["trash", "list"], "");
    assert!(
        ok && line(&text, "pv-orphan ").contains("never") && line(&text, "pv-orphan-2").contains("never"),
        "{text}"
    );
    let (ok, text) = world.run(&["trash", "restore", "pv-orphan"], "");
    assert!(ok && text.contains("adopt orphan --claim") && world.is_there("orphan"), "{text}");
}

#[test]
fn removes_only_the_mark_of_a_missing_directory() {
    let world = World::new();
    world.directory("orphan", &owner("pv-1"), false);
    std::fs::remove_dir_all(world.path("orphan")).unwrap();
    let (ok, text) = world.run(&["orphans", "--delete"], "n\n");
    assert!(ok && text.contains("remove the mark of") && text.contains("1 orphan,"), "{text}");
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(ok && text.contains("orphan: its mark is removed") && !text.contains("trash restore"), "{text}");
    assert!(world.mark("orphan").is_none() && world.root.trash().unwrap().is_empty());
}

/// The volumes of other nodes have the same root path until they are adopted.
#[test]
fn does_not_report_missing_directories_of_other_nodes() {
    let world = World::new();
    for (name, node) in [("pv-here", "node-1"), ("pv-there", "node-2")] {
        let mut source = world.source(name);
        source["nodeAffinity"] = json!({"required": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
        let mut volume = world.volume(name, &source);
        volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(RANCHER);
        world.cluster.update(&volume).unwrap();
    }
    let arguments = ["orphans", "--node-name", "node-1", "--additional-provisioner-names", RANCHER];
    let (ok, text) = world.run(&arguments, "");
    assert!(ok && line(&text, "pv-here").contains("its directory does not exist"), "{text}");
    assert!(!text.contains("pv-there"), "{text}");
}

#[test]
fn moves_the_others_if_a_directory_cannot_be_moved() {
    let world = World::new();
    let token = kube_provisioner::FencingToken::unlimited();
    world.directory("former", &owner("pv-1"), false);
    world.root.move_to_trash(&at("former"), &owner("pv-1"), None, json!(null), &token).unwrap();
    for (path, volume) in [("a", "pv-1"), ("b", "pv-2")] {
        world.directory(path, &owner(volume), false);
    }
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(!ok && line(&text, "a is not moved").contains("an earlier volume of this name is in the trash"), "{text}");
    assert!(world.is_there("a") && !world.is_there("b"), "{text}");
}

#[test]
fn keeps_orphans_while_a_volume_cannot_be_read() {
    let world = World::new();
    world.directory("orphan", &owner("pv-orphan"), false);
    // Only the volume's driver knows its directory.
    let mut volume = world.volume("pv-odd", &json!({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "h"}}));
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(!ok && text.contains("pv-odd") && text.contains("cannot be read"), "{text}");
    assert!(world.is_there("orphan"));
    volume["metadata"]["finalizers"] = json!([]);
    world.cluster.update(&volume).unwrap();
    let target = kube_sim::Target { group: "", plural: "persistentvolumes", namespace: "", name: "pv-odd" };
    world.cluster.delete(&target, kube_sim::DeleteOptions::default()).unwrap();
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(ok && !world.is_there("orphan"), "{text}");
}

#[test]
fn keeps_directories_of_another_cluster() {
    let world = World::new();
    // A backup of the other cluster contains a volume with this name.
    world.directory("pv-1", &in_cluster("pv-1", Some(ELSEWHERE)), false);
    world.volume_for("pv-1", &world.source("pv-1"), Some("uid-of-pv-1"));
    let (ok, text) = world.run(&["orphans", "--delete", "--yes"], "");
    assert!(ok && line(&text, "pv-1").contains("another cluster's") && world.is_there("pv-1"), "{text}");
}

#[test]
fn recognizes_directories_of_additional_provisioner_names() {
    let world = World::new();
    world.directory("orphan", &owner("pv-1"), false);
    for (names, says) in [("example.com/a", "another provisioner's"), (PROVISIONER, "no volume")] {
        let arguments = ["orphans", "--provisioner-name=example.com/b", "--additional-provisioner-names", names];
        let (ok, text) = world.run(&arguments, "");
        assert!(ok && line(&text, "orphan ").contains(says), "{names}: {text}");
    }
}
