use example_provisioner::Directories;
use kube_provisioner::conformance::Conformance;

/// The whole contract: crashes, repeated calls, a hundred claims, an API server that fails.
#[test]
fn keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let (path, listed) = (root.path().to_owned(), root.path().to_owned());
    let assets = async move || {
        std::fs::read_dir(&listed).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect::<Vec<_>>()
    };
    Conformance::new(move || Directories { root: path.clone() }, assets).refuses([("keepData", "maybe")]).check();
}
