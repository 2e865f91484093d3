//! One directory, as the root of hostPath provisioners or as a mounted NFS share.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace};

use super::backend::{Backend, EAST};
use super::backup::list;
use super::inventory::Inventory;
use super::second::Second;
use crate::hostpath::fixture as hostpath;
use crate::nfs::fixture::{self as nfs, SHARE};

const PATTERN: &str = "${pvc.metadata.namespace}/${pvc.metadata.name}";
/// The provisioner's own files, next to the volumes.
const OWN: &str = ".kube-provisioner";
const MARKS: &str = ".kube-provisioner/volumes";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    HostPath,
    Share,
}

pub(crate) struct Directories {
    kind: Kind,
    spaces: [TestSpace; 2],
    accesses: [Access; 2],
    root: TempDir,
    second: Second,
}

impl Directories {
    pub(crate) async fn new(kind: Kind) -> anyhow::Result<Self> {
        let second = Second::start().await?;
        let east = TestSpace::new(if kind == Kind::HostPath { "two-hostpath" } else { "two-nfs" }).await?;
        let west = east.counterpart_in(second.cluster().await?).await?;
        let accesses = [nfs::account(&east).await?, nfs::account(&west).await?];
        for space in [&east, &west] {
            space.class_with("class", [("enforceSize", "false")]).await?;
            space.class_with("named", [("enforceSize", "false"), ("pathPattern", PATTERN)]).await?;
        }
        Ok(Self { kind, spaces: [east, west], accesses, root: tempfile::tempdir()?, second })
    }

    fn root(&self) -> anyhow::Result<PathBuf> {
        Ok(self.root.path().canonicalize()?)
    }

    fn package(&self) -> &'static str {
        if self.kind == Kind::HostPath { "hostpath-provisioner" } else { "nfs-provisioner" }
    }

    fn place(&self) -> anyhow::Result<Vec<String>> {
        let root = self.root()?;
        Ok(match self.kind {
            Kind::HostPath => vec![format!("--root={}", root.display())],
            Kind::Share => vec![format!("--share={}", nfs::share(&root)), "--allow-local-directory".to_owned()],
        })
    }

    /// Runs a command as a cluster's administrator; returns true if it succeeded, and its output.
    fn command(&self, side: usize, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let (mode, place) = ((self.kind == Kind::Share).then_some("subdir"), self.place()?);
        self.spaces[side].command(self.package(), |command| command.args(mode).args(arguments).args(place))
    }

    fn path_of(&self, record: &Value) -> Option<String> {
        let spec = &record["spec"];
        let path = [&spec["hostPath"]["path"], &spec["local"]["path"], &spec["nfs"]["path"]];
        let path = path.into_iter().find_map(Value::as_str)?;
        let root = self.root().ok()?;
        let above = if self.kind == Kind::HostPath { root.as_path() } else { Path::new(SHARE) };
        Some(Path::new(path).strip_prefix(above).ok()?.display().to_string())
    }
}

impl Backend for Directories {
    fn name(&self) -> &'static str {
        if self.kind == Kind::HostPath { "hostPath" } else { "NFS" }
    }

    fn claims() -> ApiResource {
        ApiResource::erase::<PersistentVolumeClaim>(&())
    }

    fn records() -> ApiResource {
        ApiResource::erase::<PersistentVolume>(&())
    }

    fn space(&self, side: usize) -> &TestSpace {
        &self.spaces[side]
    }

    fn spawn(&self, side: usize) -> anyhow::Result<Program> {
        const RETRIES: [&str; 4] = ["--retry-interval-start", "300ms", "--retry-interval-max", "3s"];
        // As short as hostPath's.
        const LEASE: [&str; 6] =
            ["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "500ms"];
        let (space, access, root) = (&self.spaces[side], &self.accesses[side], self.root()?);
        match self.kind {
            Kind::HostPath => hostpath::start(space, access, &root, &RETRIES),
            Kind::Share => nfs::subdir(space, access, &[nfs::share(&root)], &[&RETRIES[..], &LEASE].concat()),
        }
    }

    fn claim(&self, name: &str, _number: usize, wanted: bool) -> Value {
        let class = self.spaces[EAST].cluster_wide_name(if wanted { "named" } else { "class" });
        let mut claim = json!(testbed::cluster::claim(name, &class));
        claim["apiVersion"] = "v1".into();
        claim["kind"] = "PersistentVolumeClaim".into();
        claim
    }

    fn assets(&self, record: &Value) -> BTreeSet<String> {
        let path = self.path_of(record);
        path.into_iter().flat_map(|path| [format!("{MARKS}/{path}"), path]).collect()
    }

    async fn inventory(&self) -> anyhow::Result<Inventory> {
        let mut inventory = Inventory::default();
        count(&self.root()?, "", &mut inventory)?;
        Ok(inventory)
    }

    async fn write(&self, side: usize, claim: &str, file: &str, text: String) -> anyhow::Result<()> {
        let claim = self.spaces[side].api::<PersistentVolumeClaim>().get(claim).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).context("the claim has no volume")?;
        let volume = self.spaces[side].cluster_api::<PersistentVolume>().get(&volume).await?;
        let path = self.path_of(&json!(volume)).context("the volume has no directory")?;
        Ok(fs::write(self.root()?.join(path).join(file), text)?)
    }

    async fn clean(&self, side: usize) -> anyhow::Result<()> {
        let (ok, text) = self.command(side, &["orphans", "--delete", "--yes"])?;
        ensure!(ok, "{text}");
        Ok(())
    }

    async fn take_over(&self, side: usize) -> anyhow::Result<String> {
        let (ok, text) = self.command(side, &["adopt", "--restored", "--yes"])?;
        ensure!(ok, "{text}");
        let marked = text.lines().filter(|line| line.contains(" is marked for pvc-")).count();
        Ok(format!("`adopt --restored`, which marked {marked} directories again"))
    }

    async fn misuse_objects(&self, side: usize) -> anyhow::Result<()> {
        let space = &self.spaces[side];
        let (ok, text) = self.command(side, &["adopt", "--restored", "--yes"])?;
        ensure!(!ok && text.contains("--from-cluster"), "{text}");
        space.delete_claims().await?;
        for record in list(space, &Self::records()).await? {
            space.cluster_api::<PersistentVolume>().delete(&record.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn done(self) -> anyhow::Result<()> {
        for space in self.spaces {
            space.done().await?;
        }
        self.second.end().await
    }
}

fn without_volume_uid(mark: &str) -> String {
    let uid = mark.split_once(r#""volumeUid":"#).and_then(|(before, rest)| Some((before, rest.split_once(',')?.1)));
    uid.map_or_else(|| mark.to_owned(), |(before, after)| format!("{before}{after}"))
}

/// Adds the entries of a directory to the inventory: modes, owners and file contents. Of the provisioner's own files,
/// includes only those that belong to volumes.
fn count(root: &Path, above: &str, inventory: &mut Inventory) -> anyhow::Result<()> {
    const NOT_OF_VOLUMES: [&str; 4] = ["locks", "tmp", "notes", "root"];
    for entry in fs::read_dir(root.join(above))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
        let (metadata, full) = (fs::symlink_metadata(root.join(&path))?, root.join(&path));
        if above == OWN && NOT_OF_VOLUMES.contains(&name.as_str()) {
            continue;
        }
        let what = match metadata.is_dir() {
            true => format!("directory {:o} of {}", metadata.permissions().mode() & 0o7777, metadata.uid()),
            // The volume's UID is added to a mark some time after the volume is saved.
            false if Path::new(above).starts_with(MARKS) => without_volume_uid(&fs::read_to_string(full)?),
            false => fs::read_to_string(full)?,
        };
        if path != OWN && above != OWN {
            inventory.0.insert(path.clone(), what);
        }
        if metadata.is_dir() {
            count(root, &path, inventory)?;
        }
    }
    Ok(())
}
