//! Versions of Kubernetes other than this project's, each with a wrapper module in the user's cache.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::binaries::cache_dir;
use super::go_build::check_go;
use super::versions::Versions;
use crate::go_module;
use crate::guard::Guard;
use crate::progress::SharedProgress;

const KUBERNETES: &str = "k8s.io/kubernetes";

/// The folder of this version in the cache, and the versions that are built into it. `own` are this project's versions.
pub(super) async fn of(
    asked: &str,
    own: Versions,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<(PathBuf, Versions)> {
    check_go(&own)?;
    // Go resolves `v1.35` to its newest patch release.
    let module = format!("{KUBERNETES}@v{}", asked.trim_start_matches('v'));
    let found = go_module::download(&module, guard, progress).await;
    let found = found.with_context(|| {
        format!("Kubernetes {asked} does not exist; `go list -m -versions {KUBERNETES}` lists the versions")
    })?;
    let version = found.version.trim_start_matches('v');
    let cache = cache_dir()?.join(format!("kubernetes-{version}"));
    let module = cache.join("module");
    fs::create_dir_all(&module).with_context(|| format!("cannot create {}", module.display()))?;
    let its_own =
        fs::read_to_string(&found.go_mod).with_context(|| format!("cannot read {}", found.go_mod.display()))?;
    let wrapper = wrapper(version, &its_own).with_context(|| format!("{KUBERNETES} {version} cannot be built so"))?;
    let file = module.join("go.mod");
    if !file.exists() {
        fs::write(&file, &wrapper.go_mod).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok((cache, own.with_kubernetes(version, &module, &wrapper.go)))
}

struct Wrapper {
    go_mod: String,
    go: String,
}

/// Kubernetes reads its staging modules from folders that are not part of its module. They are also published as
/// modules, as version 0.35.4 for Kubernetes 1.35.4.
fn wrapper(version: &str, its_own: &str) -> Option<Wrapper> {
    let staging = format!("v0.{}", version.strip_prefix("1.")?);
    let go = its_own.lines().find_map(|line| line.strip_prefix("go "))?.trim();
    let modules = its_own.lines().filter_map(|line| line.split_once(" => ./staging/"));
    let replaced = modules.map(|(module, _)| module.trim().trim_start_matches("replace ").to_owned());
    let replaced: String = replaced.map(|module| format!("\t{module} => {module} {staging}\n")).collect();
    let go_mod = format!(
        "module kube-provisioner/control-plane\n\ngo {go}\n\nrequire {KUBERNETES} v{version}\n\nreplace (\n{replaced})\n"
    );
    Some(Wrapper { go_mod, go: go.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requires_staging_modules_of_the_same_release() {
        let its_own = "module k8s.io/kubernetes\n\ngo 1.25.0\n\nrequire (\n\tk8s.io/api v0.0.0\n)\n\nreplace (\n\
                       \tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/client-go => ./staging/src/k8s.io/client-go\n)\n";
        let wrapper = wrapper("1.35.4", its_own).unwrap();
        assert_eq!(wrapper.go, "1.25.0");
        assert!(wrapper.go_mod.contains("\ngo 1.25.0\n\nrequire k8s.io/kubernetes v1.35.4\n"), "{}", wrapper.go_mod);
        let replaced =
            "replace (\n\tk8s.io/api => k8s.io/api v0.35.4\n\tk8s.io/client-go => k8s.io/client-go v0.35.4\n)";
        assert!(wrapper.go_mod.contains(replaced), "{}", wrapper.go_mod);
    }
}
