//! Provisioners scaffolded by `cargo xtask new` build as independent projects, and fulfill the contract.

use std::process::Command;

use super::*;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Scaffolds a provisioner in the target folder, which shares the build cache.
fn scaffold(name: &str, bucket: bool) -> PathBuf {
    let folder = project().join("target/tmp/new").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    create(name, bucket, &folder).unwrap();
    folder
}

/// Builds with the features and optimizations of this workspace, so that third-party crates are not compiled again.
fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let hack =
        format!("[dev-dependencies]\nworkspace-hack = {{ path = \"{}/workspace-hack\" }}\n", project().display());
    fs::write(folder.join("Cargo.toml"), manifest.replacen("[dev-dependencies]\n", &hack, 1)).unwrap();
    let workspace = fs::read_to_string(project().join("Cargo.toml")).unwrap();
    let profile = |name: &str| -> Vec<String> {
        let lines = workspace.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
        let settings = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with('#'));
        settings.flat_map(|line| ["--config".to_owned(), format!("{name}.{line}")]).collect()
    };
    let mut command = crate::build::plain_cargo();
    command.args(profile("profile.dev")).args(profile("profile.dev.package"));
    command.current_dir(folder).args(arguments).arg("--offline").env("CARGO_TARGET_DIR", project().join("target"));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo {arguments:?}:\n{out}\n{err}");
    out.into_owned()
}

fn check_scaffolded(name: &str, bucket: bool) {
    let folder = scaffold(name, bucket);
    let tested = cargo(&folder, &["test", "--lib", "--test", "conformance"]);
    assert_eq!(tested.matches("1 passed").count(), 2, "{tested}");
    let program = project().join("target/debug").join(name);
    let provisioner = format!("example.com/{name}");
    let ask = |arguments: &[&str]| {
        let output =
            Command::new(&program).args(arguments).args(["--provisioner-name", &provisioner]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    ask(&["check-class", folder.join("deploy/storageclass.yaml").to_str().unwrap()]);
    let rights = ask(&["rbac", "--namespace", name, "--service-account", name]);
    assert_eq!(fs::read_to_string(folder.join("deploy/rbac.yaml")).unwrap(), rights);
    let kustomization = fs::read_to_string(folder.join("deploy/kustomization.yaml")).unwrap();
    for file in kustomization.lines().filter_map(|line| line.strip_prefix("  - ")) {
        assert!(folder.join("deploy").join(file).exists(), "deploy/kustomization.yaml names {file}");
    }
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let applied: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("kubectl apply -k ")).collect();
    // Bucket provisioners also need the CRDs.
    assert_eq!(applied.len(), if bucket { 2 } else { 1 }, "{applied:?}");
    for applied in applied {
        assert!(folder.join(applied).join("kustomization.yaml").exists(), "README.md applies {applied}");
    }
    // The RBAC rules must refer to the Deployment's service account.
    let deployment = fs::read_to_string(folder.join("deploy/deployment.yaml")).unwrap();
    assert!(
        deployment.contains(&format!("serviceAccountName: {name}\n")) && rights.contains(&format!("name: {name}\n"))
    );
    let cluster = kube_sim::Cluster::new();
    for manifest in ["deploy/namespace.yaml", "deploy/deployment.yaml", "deploy/storageclass.yaml"] {
        cluster.create_yaml(&fs::read_to_string(folder.join(manifest)).unwrap()).unwrap();
    }
}

#[test]
fn new_volume_provisioner_fulfills_the_contract() {
    check_scaffolded("directories-of-mine", false);
}

#[test]
fn new_bucket_provisioner_fulfills_the_contract() {
    check_scaffolded("buckets-of-mine", true);
}

#[test]
fn refuses_existing_folders_and_invalid_names() {
    let folder = scaffold("twice", false);
    assert!(create("twice", false, &folder).unwrap_err().to_string().contains("already exists"));
    assert!(is_name("nfs-4") && !is_name("Nfs") && !is_name("4-nfs") && !is_name("nfs/..") && !is_name("nfs-"));
    let error = create("../nfs", false, Path::new("../nfs")).unwrap_err().to_string();
    assert!(error.contains("--into DIR"), "{error}");
    // The folder can be moved or cloned together with the library.
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("path = \"../../../../crates/kube-provisioner\""), "{manifest}");
    // No placeholder may remain.
    for file in ["Cargo.toml", "src/main.rs", "README.md", "deploy/deployment.yaml", "Dockerfile"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(
            !text.contains(EXAMPLE) && !text.contains(&snake(EXAMPLE)) && !text.contains(LIBRARY),
            "{file}: {text}"
        );
    }
}

/// The guide's first provisioner is identical to the template.
#[test]
fn guide_shows_the_scaffolded_files() {
    let page = fs::read_to_string(project().join("docs/book/pages/write/first.md")).unwrap();
    for file in ["Cargo.toml.in", "src/lib.rs", "src/main.rs", "tests/conformance.rs"] {
        let text = fs::read_to_string(project().join("xtask/template/volume").join(file)).unwrap();
        let shown = text.replace(LIBRARY, "../kube-provisioner/crates").replace(EXAMPLE, "directories");
        let shown = shown.replace(&snake(EXAMPLE), "directories");
        assert!(page.contains(shown.trim_end()), "write/first.md does not contain {file} verbatim:\n{shown}");
    }
}
