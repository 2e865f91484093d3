//! Helpers to start the provisioner and to create many claims.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::rbac::{AccessRule, rules};
use kube_provisioner::{Capabilities, Coordination, Options};
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace, provisioner_program};

pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const ACCOUNT: &str = "provisioner";

/// The account that the project's own manifests create.
pub(crate) async fn account(space: &TestSpace) -> anyhow::Result<Access> {
    space.account(ACCOUNT, &account_rules(space)).await
}

/// The permissions for one shard or two, and for a provisioner with another name.
pub(crate) fn account_rules(space: &TestSpace) -> Vec<AccessRule> {
    let of = |name: String| {
        let mut options = Options::new(name);
        options.shards = 2;
        rules(&options, &capabilities(), &[])
    };
    [space.provisioner().to_owned(), other_name(space)].map(of).concat()
}

/// The account of a provisioner with a replica on each node.
pub(crate) async fn account_per_node(space: &TestSpace) -> anyhow::Result<Access> {
    let mut options = Options::new(space.provisioner());
    options.coordination = Coordination::PerNode;
    space.account(ACCOUNT, &rules(&options, &capabilities(), &[])).await
}

/// The provisioner's capabilities.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default().expansion()
}

pub(crate) fn other_name(space: &TestSpace) -> String {
    format!("toy-{}", space.provisioner())
}

pub(crate) fn start(space: &TestSpace, access: &Access, root: &Path, more: &[&str]) -> anyhow::Result<Program> {
    let mut arguments = vec![
        "--root".to_owned(),
        root.display().to_string(),
        "--provisioner-name".to_owned(),
        space.provisioner().to_owned(),
        "--kubeconfig".to_owned(),
        access.kubeconfig.display().to_string(),
        "--namespace".to_owned(),
        space.namespace().to_owned(),
    ];
    // A short lease, so that another process soon takes over from a killed one.
    let times = ["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "500ms"];
    arguments.extend(times.map(str::to_owned));
    arguments.extend(more.iter().map(ToString::to_string));
    space.spawn("hostpath", provisioner_program("hostpath-provisioner")?, arguments)
}

pub(crate) async fn started(space: &TestSpace, access: &Access, root: &Path, more: &[&str]) -> anyhow::Result<Program> {
    let program = start(space, access, root, more)?;
    program.wait_for_output("ready", SOON).await?;
    Ok(program)
}

/// A namespace with a root, and a provisioner that is ready.
pub(crate) async fn serving(test: &str) -> anyhow::Result<(TestSpace, TempDir, Access, Program)> {
    let (space, root) = (TestSpace::new(test).await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let program = started(&space, &access, root.path(), &[]).await?;
    Ok((space, root, access, program))
}

pub(crate) fn directories(root: &TempDir) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".kube-provisioner").collect()
}

/// Runs one of the provisioner's commands as an administrator; returns true if it succeeded, and its output.
pub(crate) fn command(space: &TestSpace, root: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    space.command("hostpath-provisioner", |command| command.args(arguments).env("HOSTPATH_ROOT", root))
}

/// The directory of a volume.
pub(crate) fn path_of(volume: &PersistentVolume) -> PathBuf {
    let spec = volume.spec.as_ref().unwrap();
    let path = spec.host_path.as_ref().map(|source| &source.path).or(spec.local.as_ref().map(|source| &source.path));
    PathBuf::from(path.unwrap())
}
