//! Starting the provisioner, and many claims.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::cluster::{Access, Program, TestSpace, eventually, provisioner_program};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams};
use kube_provisioner::rbac::{Account, manifests, rules};
use kube_provisioner::{Capabilities, Options};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The account that the project's own manifests make.
pub(crate) async fn account(space: &TestSpace) -> anyhow::Result<Access> {
    space.apply(&account_manifests(space)).await?;
    space.access_of("provisioner").await
}

/// For one shard or two, and for a provisioner of another name.
pub(crate) fn account_manifests(space: &TestSpace) -> Vec<Value> {
    let of = |name: String| {
        let mut options = Options::new(name);
        options.shards = 2;
        rules(&options, &capabilities(), &[])
    };
    let rules = [space.provisioner().to_owned(), other_name(space)].map(of).concat();
    manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)
}

/// Those of the provisioner.
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
    // Who was killed is not waited for as long as usual.
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

pub(crate) fn directories(root: &TempDir) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".kube-provisioner").collect()
}

/// Carries out one of the provisioner's own commands as an administrator; its output, and whether it succeeded.
pub(crate) fn command(space: &TestSpace, root: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let output = std::process::Command::new(provisioner_program("hostpath-provisioner")?)
        .args(arguments)
        .env("HOSTPATH_ROOT", root)
        .env("PROVISIONER_NAME", space.provisioner())
        .env("POD_NAMESPACE", space.namespace())
        .env("KUBECONFIG", &space.cluster().state().kubeconfig)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text))
}

/// Deletes a claim and waits until its volume is gone.
pub(crate) async fn delete_claim(space: &TestSpace, name: &str) -> anyhow::Result<()> {
    let (claim, _) = space.wait_bound(name).await?;
    space.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await?;
    let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume).await
}

/// A class of this provisioner with parameters.
pub(crate) async fn class_with<const N: usize>(
    space: &TestSpace,
    suffix: &str,
    pairs: [(&str, &str); N],
) -> anyhow::Result<StorageClass> {
    let mut class = space.class(suffix);
    class.parameters = Some(parameters(pairs));
    space.create_class(class).await
}

/// The directory of a volume.
pub(crate) fn path_of(volume: &PersistentVolume) -> PathBuf {
    let spec = volume.spec.as_ref().unwrap();
    let path = spec.host_path.as_ref().map(|source| &source.path).or(spec.local.as_ref().map(|source| &source.path));
    PathBuf::from(path.unwrap())
}

pub(crate) fn parameters<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(crate) async fn create_claims(
    space: &TestSpace,
    class: &k8s_openapi::api::storage::v1::StorageClass,
    count: usize,
) -> anyhow::Result<()> {
    for batch in (0..count).collect::<Vec<_>>().chunks(20) {
        let claims = batch.iter().map(|at| space.create_claim(space.claim(&format!("claim-{at}"), class)));
        futures::future::try_join_all(claims).await?;
    }
    Ok(())
}

pub(crate) async fn wait_all_bound(space: &TestSpace, count: usize) -> anyhow::Result<()> {
    let claims = space.api::<PersistentVolumeClaim>();
    let mut bound = 0;
    let all = eventually(4 * SOON, async || {
        bound = claims.list(&ListParams::default()).await?.iter().filter(|claim| e2e::cluster::is_bound(claim)).count();
        Ok((bound == count).then_some(()))
    });
    anyhow::ensure!(all.await?.is_some(), "only {bound} of {count} claims are bound");
    Ok(())
}
