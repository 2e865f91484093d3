//! The roots of this node. Each has its own marks, trash and threads, and an unusable root does not affect the others.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use directory_volumes::{NotUsable, Opening, Root, TrashLimits, Worker};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::{ProvisionedVolume, StartContext, StartError};
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::metrics::RootMetrics;
use crate::node::{NODE, Node, update_node_uid};
use crate::placement::{ANNOTATIONS, directory_of};

/// Maximum time that the start waits for the roots to open.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a root's name, the same as a label value's.
const LONGEST: usize = 63;

/// A value of `--root`: a directory, and the name that classes refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootName {
    /// Empty for the root of classes that do not name one.
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
}

impl FromStr for RootName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The path of a directory may also contain `=`.
        let (name, directory) = match text.split_once('=').filter(|(name, _)| !name.contains('/')) {
            Some((name, directory)) => (name, directory),
            None => ("", text),
        };
        let letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
        match () {
            () if directory.is_empty() => Err("expected a directory, or NAME=DIRECTORY"),
            () if directory.len() < text.len() && (name.is_empty() || name.len() > LONGEST) => {
                Err("a root's name must have 1 to 63 characters")
            }
            () if !name.bytes().all(letter) => Err("a root's name may contain only lower-case letters, digits and `-`"),
            () => Ok(Self { name: name.to_owned(), directory: directory.into() }),
        }
    }
}

/// Refuses roots with the same name or with nested directories.
pub(crate) fn check(names: &[RootName]) -> Result<(), String> {
    for (number, one) in names.iter().enumerate() {
        for other in &names[number + 1..] {
            if one.name == other.name {
                return Err(match &*one.name {
                    "" => "only one root may have no name; set --root NAME=DIR for the others".to_owned(),
                    name => format!("two roots are named {name}"),
                });
            }
            if one.directory.starts_with(&other.directory) || other.directory.starts_with(&one.directory) {
                let (one, other) = (one.directory.display(), other.directory.display());
                return Err(format!("the roots {one} and {other} overlap"));
            }
        }
    }
    Ok(())
}

/// Reasons why no root can be used.
#[derive(Debug, Error)]
pub(crate) enum DiskError {
    #[error("this node has no root named {name:?}, which the class names; the roots of this node are {names}")]
    Unknown { name: String, names: String },
    #[error("the class must select a root with the parameter root; the roots of this node are {0}")]
    Unnamed(String),
    #[error("the root directory {path} does not answer; check the disk")]
    Opening { path: PathBuf },
    #[error("{0}")]
    Unusable(String),
    #[error("the volume is at {path:?}, which is in none of this node's roots: {names}")]
    OutsideRoots { path: String, names: String },
}

/// The roots of this node.
pub(crate) struct Disks {
    all: Vec<Disk>,
    trash: TrashLimits,
    pub(crate) metrics: RootMetrics,
}

/// A root and the state of its opening.
pub(crate) struct Disk {
    root: RootName,
    opening: Opening,
}

impl From<Worker> for Disks {
    /// Creates a single root, for all classes that do not name one.
    fn from(worker: Worker) -> Self {
        let root = RootName { name: String::new(), directory: worker.root().path().to_owned() };
        let disk = Disk { root, opening: worker.into() };
        Self { all: vec![disk], trash: TrashLimits::default(), metrics: RootMetrics::default() }
    }
}

impl Disks {
    /// Opens the roots. A single root must be usable at once. Several roots open independently of each other.
    pub(crate) fn open(names: Vec<RootName>, trash: TrashLimits) -> Result<Self, Box<dyn Error + Send + Sync>> {
        check(&names)?;
        let disk = |root| Disk { root, opening: Opening::default() };
        let mut disks = Self { all: names.into_iter().map(disk).collect(), trash, metrics: RootMetrics::default() };
        if let [only] = &mut disks.all[..] {
            let worker = Worker::new(Root::open(&only.root.directory)?);
            only.opening = worker.clone().into();
            disks.start_upkeep(&worker);
        }
        Ok(disks)
    }

    /// Prepares the roots before the first volume is created or deleted.
    pub(crate) async fn start(
        self: &Arc<Self>,
        node: Option<&Arc<Node>>,
        start: &StartContext,
    ) -> Result<(), StartError> {
        for number in 0..self.all.len() {
            let disk = &self.all[number];
            if let Ok(worker) = disk.worker() {
                // The root is the only one, or this is a later term.
                match self.begin(disk, worker, node.map(|node| &**node), start).await {
                    Err(error) if self.all.len() == 1 => return Err(error),
                    Err(error) => tracing::warn!("{error}"),
                    Ok(()) => {}
                }
            } else if disk.opening.begin() {
                tokio::spawn(self.clone().open_one(number, node.cloned(), start.clone()));
            }
        }
        let settle = async {
            for disk in &self.all {
                disk.opening.wait_for_attempt().await;
            }
        };
        let _ = timeout(LIMIT, settle).await;
        let usable = self.all.iter().map(Disk::worker);
        usable.reduce(|one, other| one.or(other)).map_or(Ok(()), |any| any.map(drop)).map_err(StartError::new)
    }

    async fn open_one(self: Arc<Self>, number: usize, node: Option<Arc<Node>>, start: StartContext) {
        let disk = &self.all[number];
        let open = async || {
            let directory = disk.root.directory.clone();
            let worker = Worker::new(spawn_blocking(move || Root::open(&directory)).await??);
            self.begin(disk, worker.clone(), node.as_deref(), &start).await.map(|()| worker)
        };
        let open = || async { open().await.inspect_err(|error: &StartError| tracing::warn!("{error}")) };
        self.start_upkeep(&disk.opening.open(open).await);
    }

    /// Starts the background work on a root.
    fn start_upkeep(&self, worker: &Worker) {
        tokio::spawn(worker.clone().empty_trash(self.trash));
        tokio::spawn(self.metrics.clone().follow(worker.clone()));
    }

    async fn begin(
        &self,
        disk: &Disk,
        worker: Worker,
        node: Option<&Node>,
        start: &StartContext,
    ) -> Result<(), StartError> {
        let is_here = |volume: &ProvisionedVolume| {
            node.is_none_or(|node| volume.annotation(NODE) == Some(node.name()))
                && self.disk_containing(directory_of(&volume.object)).is_none_or(|there| std::ptr::eq(there, disk))
        };
        worker.begin(&ANNOTATIONS, start, is_here).await?;
        match node {
            Some(node) => {
                // A failure does not affect the work on volumes, and the next start tries again.
                if let Err(error) = update_node_uid(&worker, node, start).await {
                    tracing::warn!("volumes do not have the new uid of the node {} yet: {error}", node.name());
                }
                for advice in node.advice(worker.root(), start).await {
                    tracing::warn!("{advice}");
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the root that a class names.
    pub(crate) fn worker_for_class(&self, name: Option<&str>) -> Result<Worker, DiskError> {
        let wanted = name.unwrap_or_default();
        match (self.all.iter().find(|disk| disk.root.name == wanted), name) {
            (Some(disk), _) => disk.worker(),
            (None, Some(name)) => Err(DiskError::Unknown { name: name.to_owned(), names: self.names() }),
            (None, None) => Err(DiskError::Unnamed(self.names())),
        }
    }

    /// Returns the root that contains a volume, according to the volume's path.
    pub(crate) fn worker_for_volume(&self, volume: &PersistentVolume) -> Result<Worker, DiskError> {
        let path = directory_of(volume);
        match (self.disk_containing(path), &self.all[..]) {
            (Some(disk), _) | (None, [disk]) => disk.worker(),
            (None, _) => {
                let path = path.chars().take(100).collect();
                Err(DiskError::OutsideRoots { path, names: self.names() })
            }
        }
    }

    fn disk_containing(&self, path: &str) -> Option<&Disk> {
        self.all.iter().find(|disk| disk.contains(Path::new(path)))
    }

    /// Checks that volumes can be created and deleted in all roots now.
    pub(crate) async fn probe(&self) -> Result<(), StartError> {
        for disk in &self.all {
            // A standby replica does not use the roots yet.
            if !disk.opening.is_new() {
                disk.worker()?.probe().await?;
            }
        }
        Ok(())
    }

    fn names(&self) -> String {
        let name = |disk: &Disk| match &*disk.root.name {
            "" => "(unnamed)".to_owned(),
            name => name.to_owned(),
        };
        self.all.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

impl Disk {
    fn worker(&self) -> Result<Worker, DiskError> {
        self.opening.worker().map_err(|why| match why {
            NotUsable::Opening => DiskError::Opening { path: self.root.directory.clone() },
            NotUsable::Unusable(why) => DiskError::Unusable(why),
        })
    }

    /// Returns true if this root contains the path.
    fn contains(&self, path: &Path) -> bool {
        match self.opening.worker() {
            Ok(worker) => worker.root().contains(path),
            Err(_) => path.starts_with(&self.root.directory),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kube_sim::Cluster;
    use serde_json::json;

    use super::*;

    fn roots(texts: &[&str]) -> Vec<RootName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn parses_roots_with_and_without_a_name() {
        for (text, name, directory) in [
            ("/data", "", "/data"),
            ("data", "", "data"),
            ("/data=old", "", "/data=old"),
            ("fast=/mnt/ssd", "fast", "/mnt/ssd"),
            ("ssd-1=/mnt/a=b", "ssd-1", "/mnt/a=b"),
        ] {
            assert_eq!(text.parse(), Ok(RootName { name: name.to_owned(), directory: directory.into() }));
        }
        for text in ["", "=", "fast=", "=/data", "Fast=/data", "fa st=/data"] {
            assert!(text.parse::<RootName>().is_err(), "{text}");
        }
    }

    #[test]
    fn refuses_roots_with_the_same_name_or_nested_directories() {
        assert_eq!(check(&roots(&["/data", "fast=/mnt/ssd", "slow=/mnt/ssd2"])), Ok(()));
        for texts in [&["/a", "/b"][..], &["fast=/a", "fast=/b"], &["/a", "fast=/a/b"], &["/a/b", "fast=/a/"]] {
            assert!(check(&roots(texts)).is_err(), "{texts:?}");
        }
    }

    /// The second root appears later than the first.
    #[tokio::test(start_paused = true)]
    async fn an_unusable_root_does_not_block_another_root() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let texts = [folder.join("data").display().to_string(), format!("fast={}", folder.join("ssd").display())];
        private(&folder.join("data"));
        let names = texts.iter().map(|text| text.parse().unwrap()).collect();
        let disks = Arc::new(Disks::open(names, TrashLimits::default()).unwrap());
        assert!(disks.probe().await.is_ok(), "the roots are not in use yet");
        let start = StartContext::new(Cluster::new().client("hostpath"), Vec::new());
        disks.start(None, &start).await.unwrap();
        assert_eq!(disks.worker_for_class(None).unwrap().root().path(), folder.join("data"));
        let error = |name| disks.worker_for_class(Some(name)).unwrap_err().to_string();
        assert!(error("fast").contains("cannot be used"), "{}", error("fast"));
        assert!(error("slow").contains("the roots of this node are (unnamed), fast"), "{}", error("slow"));
        assert!(disks.probe().await.is_err());
        private(&folder.join("ssd"));
        while disks.worker_for_class(Some("fast")).is_err() {
            tokio::time::sleep(LIMIT).await;
        }
        assert!(disks.probe().await.is_ok());
        let volume = |path: &str| {
            let object = serde_json::json!({"spec": {"hostPath": {"path": path}}});
            disks
                .worker_for_volume(&serde_json::from_value(object).unwrap())
                .map(|worker| worker.root().path().to_owned())
        };
        for name in ["data", "ssd"] {
            assert_eq!(volume(&format!("{}/pvc-1", folder.join(name).display())).unwrap(), folder.join(name));
        }
        assert!(volume("/etc").is_err());
        assert_ne!(
            disks.worker_for_class(None).unwrap().root().id(),
            disks.worker_for_class(Some("fast")).unwrap().root().id()
        );
    }

    /// The update of the volume fails because the volume no longer exists. A policy may also refuse the update.
    #[tokio::test]
    async fn starts_even_if_a_volume_cannot_be_updated() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.put_marker().unwrap();
        let cluster = Cluster::new();
        cluster.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})).unwrap();
        let (client, node) = (cluster.client("hostpath"), Arc::new(Node::new("node-a".to_owned())));
        node.start(&client).await.unwrap();
        let annotations = json!({"hostpath-provisioner/node": "node-a", "hostpath-provisioner/root": root.id()});
        let volume = json!({"metadata": {"name": "pv-1", "annotations": annotations}});
        let start = StartContext::new(client, vec![serde_json::from_value(volume).unwrap()]);
        let disks = Arc::new(Disks::from(Worker::new(root)));
        disks.start(Some(&node), &start).await.unwrap();
    }

    fn private(path: &Path) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}
