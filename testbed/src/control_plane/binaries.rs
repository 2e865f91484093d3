//! Finds or builds the control plane's programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::versions::Versions;
use super::{go_build, other_version};
use crate::guard::Guard;
use crate::progress::SharedProgress;

/// The programs of one control plane.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub api_server: PathBuf,
    /// kube-controller-manager.
    pub controller_manager: PathBuf,
    /// kube-scheduler.
    pub scheduler: PathBuf,
    /// The folder of the kubelet and kube-proxy, if a node was requested.
    pub node: Option<PathBuf>,
    /// kubectl, which is only for users.
    pub kubectl: Option<PathBuf>,
    /// The version of Kubernetes, if one was requested.
    pub kubernetes: Option<String>,
}

impl Binaries {
    /// Uses the programs in `KUBEBUILDER_ASSETS` if all of them exist there, or else those in the user's cache; if
    /// necessary, builds them once from their Go modules into that cache. The programs of a requested `node`, and all
    /// programs of a `kubernetes` version other than this project's, always come from the cache.
    pub async fn find(
        kubernetes: Option<&str>,
        node: bool,
        guard: &Guard,
        progress: &SharedProgress,
    ) -> anyhow::Result<Self> {
        let mut binaries = Self::of_control_plane(guard, progress).await?;
        let mut versions = Versions::of_this_project()?;
        let mut cache = cache_dir()?.join(versions.cache_key());
        if let Some(kubernetes) = kubernetes {
            (cache, versions) = other_version::of(kubernetes, versions, guard, progress).await?;
            go_build::build(&go_build::WITHOUT_ETCD, &cache, &versions, guard, progress).await?;
            binaries = Self { kubernetes: Some(versions.kubernetes.clone()), ..binaries.with_kubernetes_of(&cache) };
        }
        if node {
            go_build::build(&go_build::NODE, &cache, &versions, guard, progress).await?;
            binaries.node = Some(cache.join(go_build::NODE.folder));
        }
        Ok(binaries)
    }

    async fn of_control_plane(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        if let Some(assets) = non_empty_var("KUBEBUILDER_ASSETS") {
            match Self::complete(Path::new(&assets)) {
                Ok(found) => return Ok(found),
                Err(missing) => progress.line(&format!(
                    "KUBEBUILDER_ASSETS={assets} lacks {}; using the cache instead",
                    missing.join(", ")
                )),
            }
        }
        let versions = Versions::of_this_project()?;
        let cache = cache_dir()?.join(versions.cache_key());
        let bin = cache.join("bin");
        if let Ok(found) = Self::complete(&bin) {
            return Ok(found);
        }
        go_build::build(&go_build::CONTROL_PLANE, &cache, &versions, guard, progress).await?;
        Self::complete(&bin)
            .map_err(|missing| anyhow::anyhow!("the build left out {} in {}", missing.join(", "), bin.display()))
    }

    /// The programs that exist already, in `KUBEBUILDER_ASSETS` or the user's cache.
    pub fn installed() -> anyhow::Result<Self> {
        if let Some(found) =
            non_empty_var("KUBEBUILDER_ASSETS").and_then(|assets| Self::complete(Path::new(&assets)).ok())
        {
            return Ok(found);
        }
        let cache = cache_dir()?.join(Versions::of_this_project()?.cache_key());
        Self::complete(&cache.join("bin")).map_err(|missing| anyhow::anyhow!("no {}", missing.join(", ")))
    }

    /// The reason why [`Binaries::find`] would find no programs and could not build them, if there is one.
    pub fn obstacle() -> Option<anyhow::Error> {
        if Self::installed().is_ok() {
            return None;
        }
        Versions::of_this_project().and_then(|versions| go_build::check_go(&versions)).err()
    }

    fn with_kubernetes_of(self, cache: &Path) -> Self {
        let bin = cache.join(go_build::WITHOUT_ETCD.folder);
        Self {
            api_server: bin.join("kube-apiserver"),
            controller_manager: bin.join("kube-controller-manager"),
            scheduler: bin.join("kube-scheduler"),
            kubectl: Some(bin.join("kubectl")),
            ..self
        }
    }

    /// The programs in `dir`, or the names of the missing ones.
    fn complete(dir: &Path) -> Result<Self, Vec<&'static str>> {
        let missing: Vec<_> = NEEDED.iter().copied().filter(|name| !is_program(&dir.join(name))).collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let kubectl = dir.join("kubectl");
        Ok(Self {
            etcd: dir.join("etcd"),
            api_server: dir.join("kube-apiserver"),
            controller_manager: dir.join("kube-controller-manager"),
            scheduler: dir.join("kube-scheduler"),
            node: None,
            kubectl: is_program(&kubectl).then_some(kubectl),
            kubernetes: None,
        })
    }
}

/// The directory of programs and running instances: `$XDG_CACHE_HOME/kube-provisioner/control-plane`.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    let base = match non_empty_var("XDG_CACHE_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => match non_empty_var("HOME") {
            Some(home) => PathBuf::from(home).join(".cache"),
            None => bail!("neither XDG_CACHE_HOME nor HOME is set, so there is no place for the control plane"),
        },
    };
    let dir = base.join("kube-provisioner").join("control-plane");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

const NEEDED: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn non_empty_var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_directory_returns_missing_programs() {
        let missing = Binaries::complete(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(missing, NEEDED);
    }
}
