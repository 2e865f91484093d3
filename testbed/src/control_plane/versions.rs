//! The versions of the control plane's programs, from the wrapper module's `go.mod`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The versions that the wrapper module requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The wrapper module's directory.
    pub module: PathBuf,
    /// The version of Kubernetes, such as `1.37.1`.
    pub kubernetes: String,
    /// The version of etcd, such as `3.7.0`.
    pub etcd: String,
    /// The oldest Go toolchain that builds them, such as `1.26.0`.
    pub go: String,
    /// True if the wrapper module already contains all checksums, as this project's does.
    pub(super) pinned: bool,
    /// A hash of `go.mod` and `go.sum`.
    fingerprint: u64,
}

impl Versions {
    /// Reads this project's wrapper module.
    pub fn of_this_project() -> anyhow::Result<Self> {
        Self::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane")))
    }

    /// The name of the cache directory that contains these programs.
    pub fn cache_key(&self) -> String {
        let Self { kubernetes, etcd, fingerprint, .. } = self;
        format!("kubernetes-{kubernetes}-etcd-{etcd}-{:08x}", *fingerprint as u32)
    }

    /// Kubernetes' version as major and minor number.
    pub fn kubernetes_minor(&self) -> (&str, &str) {
        let mut parts = self.kubernetes.split('.');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// The versions with Kubernetes from a wrapper module whose checksums are not known yet.
    pub(super) fn with_kubernetes(self, kubernetes: &str, module: &Path, go: &str) -> Self {
        let (kubernetes, module, go) = (kubernetes.to_owned(), module.to_owned(), go.to_owned());
        Self { kubernetes, module, go, pinned: false, ..self }
    }

    fn read(module: &Path) -> anyhow::Result<Self> {
        let file = module.join("go.mod");
        let go_mod = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let go_sum = fs::read_to_string(module.join("go.sum")).context("cannot read go.sum")?;
        Self::parse(module, &go_mod, &go_sum)
            .with_context(|| format!("{} names no Go, Kubernetes or etcd version", file.display()))
    }

    fn parse(module: &Path, go_mod: &str, go_sum: &str) -> Option<Self> {
        Some(Self {
            module: module.to_owned(),
            kubernetes: required(go_mod, "k8s.io/kubernetes")?,
            etcd: required(go_mod, "go.etcd.io/etcd/server/v3")?,
            go: go_mod.lines().find_map(|line| line.strip_prefix("go "))?.trim().to_owned(),
            pinned: true,
            fingerprint: fnv1a([go_mod, go_sum]),
        })
    }
}

/// The version in the line `[require] <module> v<version>`.
fn required(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("require ").unwrap_or(line);
        let version = line.strip_prefix(module)?.strip_prefix(" v")?;
        Some(version.split_whitespace().next()?.to_owned())
    })
}

/// FNV-1a, which does not change with the version of Rust, unlike the standard library's hasher.
pub(crate) fn fnv1a<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    texts
        .into_iter()
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_wrapper_module() {
        let go_mod = "module m\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.1\n\nrequire (\n\
                      \tgo.etcd.io/etcd/server/v3 v3.7.0 // indirect\n)\n";
        let versions = Versions::parse(Path::new("/m"), go_mod, "").unwrap();
        assert_eq!(versions.kubernetes, "1.37.1");
        assert_eq!(versions.kubernetes_minor(), ("1", "37"));
        assert_eq!(versions.etcd, "3.7.0");
        assert_eq!(versions.go, "1.26.0");
        assert!(versions.cache_key().starts_with("kubernetes-1.37.1-etcd-3.7.0-"));
    }

    #[test]
    fn changed_checksums_change_the_cache_key() {
        let go_mod = "go 1.26.0\nrequire k8s.io/kubernetes v1.37.1\nrequire go.etcd.io/etcd/server/v3 v3.7.0\n";
        let one = Versions::parse(Path::new("/m"), go_mod, "a").unwrap();
        let two = Versions::parse(Path::new("/m"), go_mod, "b").unwrap();
        assert_ne!(one.cache_key(), two.cache_key());
    }

    #[test]
    fn reads_versions_of_this_project() {
        Versions::of_this_project().unwrap();
    }
}
