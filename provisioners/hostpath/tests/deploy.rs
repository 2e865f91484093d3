//! The manifests in `deploy/hostpath` fit the program. That their rights are those of the program is tested where they are made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIANTS: [&str; 3] = ["per-node", "per-node-sizes", "single"];

#[test]
fn the_classes_have_parameters_that_the_program_takes() {
    for variant in VARIANTS {
        let file = path(variant, "storageclasses.yaml");
        output(&["check-class", "--provisioner-name", "example.com/hostpath", file.to_str().unwrap()]);
    }
}

#[test]
fn the_image_is_of_this_version() {
    for variant in ["per-node", "single", "gone-nodes"] {
        let file = read(variant, "kustomization.yaml");
        assert!(file.contains(concat!("newTag: ", env!("CARGO_PKG_VERSION"), "\n")), "{file}");
    }
    let dockerfile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap();
    assert!(dockerfile.contains(concat!("image.version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{dockerfile}");
    assert!(dockerfile.contains(concat!("localhost/hostpath-provisioner:", env!("CARGO_PKG_VERSION"))), "{dockerfile}");
}

fn output(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner")).args(arguments).env_clear().output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(output.stdout), text(output.stderr));
    text(output.stdout)
}

fn read(variant: &str, file: &str) -> String {
    let path = path(variant, file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path(variant: &str, file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/hostpath").join(variant).join(file)
}
