//! The contract, and shares that cannot be used.

use std::path::Path;

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
