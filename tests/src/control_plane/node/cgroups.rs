//! The control groups that a node leaves behind.

use std::fs;
use std::path::Path;

/// The group below which the kubelet puts its pods.
pub(super) const ROOT: &str = "/kube-provisioner-node";

/// Removes the groups of pods that are gone. The kernel refuses to remove one that has processes in it.
pub(super) fn remove_empty() {
    // With version 1 every controller has a tree of its own.
    let trees = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    for tree in trees.chain([Path::new("/sys/fs/cgroup").to_owned()]) {
        remove_below(&tree.join(&ROOT[1..]));
    }
}

fn remove_below(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
