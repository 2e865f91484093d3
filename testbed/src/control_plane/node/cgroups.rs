//! The control groups of a node's containers. They are the only trace that outlives its namespaces.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// The parent group of the kubelet's containers, which all instances of containerd share. It is never removed, since
/// another node may be about to start its first container.
const PARENT: &str = "k8s.io";

/// Gives the parent group the CPU weight of eight processes. By default, all pods of all nodes together would get as
/// much of a busy CPU as one process of the tests.
pub(super) fn set_weight() {
    // In version 1, every controller has a separate tree.
    let version_1 = Path::new(ROOT).join("cpu");
    let (tree, file, weight) = if version_1.is_dir() {
        (version_1, "cpu.shares", "8192")
    } else {
        let root = PathBuf::from(ROOT);
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        (root, "cpu.weight", "800")
    };
    let parent = tree.join(PARENT);
    // If this fails, pods are only slower.
    let _ = fs::create_dir_all(&parent).and_then(|()| fs::write(parent.join(file), weight));
}

/// Removes the groups of a node's containers, which have ended. `dir` is the node's directory. The kernel refuses to
/// remove a group that still contains processes.
pub(super) fn remove(dir: &Path) {
    let cri = dir.join("containerd/io.containerd.grpc.v1.cri");
    let ids: Vec<OsString> = ["containers", "sandboxes"].iter().flat_map(|kind| names(&cri.join(kind))).collect();
    let root = PathBuf::from(ROOT);
    let trees = names(&root).into_iter().map(|name| root.join(name)).chain([root.clone()]);
    for parent in trees.map(|tree| tree.join(PARENT)).filter(|parent| parent.is_dir()) {
        for id in &ids {
            remove_below(&parent.join(id));
        }
    }
}

fn names(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

fn remove_below(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
