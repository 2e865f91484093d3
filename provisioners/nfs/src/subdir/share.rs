//! The shares: their names, and checks that they can be used.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use directory_volumes::{DirectoryError, NotUsable, Opening, Root, TrashLimits, Worker};
use kube_provisioner::{ProvisionedVolume, StartContext, StartError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::source::{ANNOTATIONS, Location};

/// Time that work waits for a share that is being checked.
const LIMIT: Duration = Duration::from_secs(10);

/// A share and its mount point in the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareName {
    pub(crate) server: String,
    /// The path on the server without a slash at its end, so `/` is empty.
    pub(crate) path: String,
    pub(crate) directory: PathBuf,
}

impl ShareName {
    /// Returns true if the share contains the volume.
    pub(crate) fn contains_volume(&self, location: &Location) -> bool {
        location.server == self.server && self.contains_path(&location.path)
    }

    /// Returns true if the share contains a path on the same server.
    pub(crate) fn contains_path(&self, path: &str) -> bool {
        path.strip_prefix(&self.path).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for ShareName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected SERVER:/PATH=DIR, such as nfs.example.com:/exports=/persistentvolumes";
        if text.contains(',') {
            return Err("a command works on one of the shares; select it with --share");
        }
        let (share, directory) = text.rsplit_once('=').ok_or(FORM)?;
        let (server, path) = share.split_once(":/").ok_or(FORM)?;
        let is_plain = !path.contains("//") && path.split('/').all(|name| !matches!(name, "." | ".."));
        if server.is_empty() || !directory.starts_with('/') || !is_plain {
            Err(FORM)
        } else {
            Ok(Self {
                server: server.to_owned(),
                path: format!("/{path}").trim_end_matches('/').to_owned(),
                directory: directory.into(),
            })
        }
    }
}

impl std::fmt::Display for ShareName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.server, if self.path.is_empty() { "/" } else { &self.path })
    }
}

/// The required kind of mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredMount {
    Nfs,
    Any,
}

/// A configured share. A share that hangs or is not mounted does not block work on other shares.
pub(crate) struct Share {
    pub(crate) name: ShareName,
    mounted: RequiredMount,
    trash: TrashLimits,
    opening: Opening,
    /// Held while a standby replica checks the share.
    probe_permit: Arc<Semaphore>,
}

impl Share {
    pub(crate) fn new(name: ShareName, mounted: RequiredMount, trash: TrashLimits) -> Self {
        Self { name, mounted, trash, opening: Opening::default(), probe_permit: Arc::new(Semaphore::new(1)) }
    }

    #[cfg(test)]
    pub(crate) fn usable(name: ShareName, root: Root) -> Self {
        let opening = Worker::new(root).into();
        Self { opening, ..Self::new(name, RequiredMount::Any, TrashLimits::default()) }
    }

    /// Checks the share in the background until it can be used.
    pub(crate) fn open(&self, start: &StartContext) {
        let is_new = self.opening.begin();
        let (name, mounted, trash) = (self.name.clone(), self.mounted, self.trash);
        let (opening, start) = (self.opening.clone(), start.clone());
        tokio::spawn(async move {
            let warn = |error: &StartError| tracing::warn!("the share {name} cannot be used: {error}");
            if !is_new {
                // Between two terms of this process, another replica may have left removals unfinished.
                if let Ok(worker) = opening.worker() {
                    let _ = begin(&name, &worker, &start).await.inspect_err(warn);
                }
                return;
            }
            let worker = opening.open(|| async { open_share(&name, mounted, &start).await.inspect_err(warn) }).await;
            worker.empty_trash(trash).await;
        });
    }

    /// Checks that the share can be used. A standby replica does not change anything, and uses one thread at a time, so
    /// a hanging call blocks at most one thread.
    pub(crate) async fn probe(&self) -> Result<(), StartError> {
        if !self.opening.is_new() {
            return self.worker().await?.probe().await;
        }
        let permit = self.probe_permit.clone().try_acquire_owned().map_err(|_| self.hangs())?;
        let (directory, mounted) = (self.name.directory.clone(), self.mounted);
        let looked = spawn_blocking(move || {
            let _permit = permit;
            root(&directory, mounted).map(drop)
        });
        let unusable = |why: DirectoryError| ShareError::Unusable { name: self.name.to_string(), why: why.to_string() };
        Ok(looked.await?.map_err(unusable)?)
    }

    fn hangs(&self) -> ShareError {
        ShareError::Hangs { name: self.name.to_string(), path: self.name.directory.clone() }
    }

    /// Returns the share's worker once the share can be used.
    pub(crate) async fn worker(&self) -> Result<Worker, ShareError> {
        let _ = timeout(LIMIT, self.opening.wait_for_attempt()).await;
        self.opening.worker().map_err(|why| match why {
            NotUsable::Opening => self.hangs(),
            NotUsable::Unusable(why) => ShareError::Unusable { name: self.name.to_string(), why },
        })
    }
}

/// Reasons why a share cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShareError {
    #[error("the share {name} cannot be used: {why}")]
    Unusable { name: String, why: String },
    #[error("the share {name} at {path} does not answer; check the NFS server")]
    Hangs { name: String, path: PathBuf },
}

async fn open_share(name: &ShareName, mounted: RequiredMount, start: &StartContext) -> Result<Worker, StartError> {
    let directory = name.directory.clone();
    let worker = Worker::new(spawn_blocking(move || root(&directory, mounted)).await??);
    begin(name, &worker, start).await?;
    Ok(worker)
}

async fn begin(name: &ShareName, worker: &Worker, start: &StartContext) -> Result<(), StartError> {
    let is_here = |volume: &ProvisionedVolume| {
        Location::of(&volume.object).is_some_and(|location| name.contains_volume(&location))
    };
    worker.begin(&ANNOTATIONS, start, is_here).await
}

/// Returns the root of a share if the share is mounted.
pub(crate) fn root(directory: &Path, mounted: RequiredMount) -> Result<Root, DirectoryError> {
    let root = Root::open_shared(directory)?;
    let path = root.path().to_owned();
    match rustix::fs::statfs(&path) {
        Ok(stat) if mounted == RequiredMount::Any || stat.f_type == rustix::fs::NFS_SUPER_MAGIC => Ok(root),
        Ok(_) => Err(DirectoryError::NotMounted(path)),
        Err(error) => Err(DirectoryError::Unusable { path, source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kube_sim::Cluster;

    use super::*;

    /// Another replica was killed while it removed a volume from the trash.
    #[tokio::test]
    async fn a_later_term_finishes_the_removals_of_another_replica() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.put_marker().unwrap();
        let name = format!("nfs.example.com:/data={}", dir.path().display()).parse().unwrap();
        let share = Share::usable(name, root);
        let left = dir.path().join(".kube-provisioner/deleting/pvc-1");
        fs::create_dir_all(left.join("data")).unwrap();
        share.open(&StartContext::new(Cluster::new().client("nfs"), Vec::new()));
        let removed = async {
            while left.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, removed).await.unwrap();
    }
}
