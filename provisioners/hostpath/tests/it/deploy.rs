//! Compares the image's labels with the program's version. The crate that generates the manifests tests them.

use std::fs;
use std::path::Path;

#[test]
fn image_labels_match_the_version() {
    let dockerfile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap();
    assert!(dockerfile.contains(concat!("image.version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{dockerfile}");
    assert!(dockerfile.contains(concat!("localhost/hostpath-provisioner:", env!("CARGO_PKG_VERSION"))), "{dockerfile}");
}
