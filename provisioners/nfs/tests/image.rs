//! The image's description fits the program and what is said of it.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_image_is_of_this_version_and_has_the_packages_that_the_page_names() {
    let file = read("Containerfile");
    for text in [
        concat!("image.version=\"", env!("CARGO_PKG_VERSION"), "\""),
        concat!("localhost/nfs-server-provisioner:", env!("CARGO_PKG_VERSION"), " "),
        "ENTRYPOINT [\"/nfs-provisioner\"]",
    ] {
        assert!(file.contains(text), "{text} is not in {file}");
    }
    let installed = file.lines().find_map(|line| line.split_once("--no-install-recommends ")).expect("no packages").1;
    let page = read("../../docs/nfs.md");
    let (_, named) = page.split_once("Debian's packages ").expect("the page names no packages");
    let named: Vec<_> = named.split(" in its image").next().unwrap_or_default().split('`').skip(1).step_by(2).collect();
    assert_eq!(installed.trim_end_matches([' ', '\\']).split(' ').collect::<Vec<_>>(), named);
}
