//! The control groups that a node leaves behind. They are the only trace that outlives its namespaces.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The parent group of the kubelet's containers, which all instances of containerd share.
const PARENT: &str = "k8s.io";

/// Removes the groups of a node's containers, which have ended. `dir` is the node's directory. The kernel refuses to
/// remove a group that still contains processes.
pub(super) fn remove(dir: &Path) {
    let cri = dir.join("containerd/io.containerd.grpc.v1.cri");
    let ids: Vec<OsString> = ["containers", "sandboxes"].iter().flat_map(|kind| names(&cri.join(kind))).collect();
    // In version 1, every controller has a separate tree.
    let root = PathBuf::from("/sys/fs/cgroup");
    let trees = names(&root).into_iter().map(|name| root.join(name)).chain([root.clone()]);
    for parent in trees.map(|tree| tree.join(PARENT)).filter(|parent| parent.is_dir()) {
        for id in &ids {
            remove_below(&parent.join(id));
        }
        let _ = fs::remove_dir(parent);
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
