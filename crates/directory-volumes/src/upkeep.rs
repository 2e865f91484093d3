//! Work at the start and in the background: the root's marker, deletions, the trash.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::Api;
use kube_provisioner::{FencingToken, ProvisionedVolume, StartContext, StartError};
use tokio::time::{Instant, timeout_at};

use crate::deletion::{Annotations, is_retained, owner_in_this_cluster, owner_of};
use crate::error::DirectoryError;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::survey::Volumes;
use crate::trash::TrashLimits;
use crate::worker::Worker;

/// The time between checks of the trash.
const TRASH_PERIOD: Duration = Duration::from_secs(60);
/// The time between comparisons of all marks with their volumes, which requires listing the volumes.
const VOLUMES_PERIOD: Duration = Duration::from_secs(3600);
/// The delay after the creation of a volume until its UID is looked up. The controller has saved nearly all volumes by
/// then.
const SAVED_AFTER: Duration = Duration::from_secs(60);
/// If there are more new volumes than this, they are read with one list.
const FEW: usize = 20;

impl Worker {
    /// Prepares the root before the first volume is created or removed. `is_here` returns true for volumes of this
    /// root, as far as that is known.
    ///
    /// # Errors
    /// Fails if the volumes are in another root.
    pub async fn begin(
        &self,
        annotations: &Annotations,
        start: &StartContext,
        is_here: impl Fn(&ProvisionedVolume) -> bool,
    ) -> Result<(), StartError> {
        let look = |root: &Root, has_marker| Ok::<_, StartError>((has_marker, root.advice()));
        let (has_marker, advice) = self.run_after(Root::has_marker, look).await?;
        for text in advice {
            tracing::warn!("{text}");
        }
        if !has_marker {
            self.mark(annotations, start, is_here).await?;
        }
        // Ignore the error: an earlier term of this process has set the same client.
        let _ = self.client.set(start.client.clone());
        // The volumes of unfinished deletions may no longer exist, so the controller would not request them again.
        let (worker, others) = (self.clone(), self.clone());
        tokio::spawn(async move { worker.remove_in_background(Root::finish_removals).await });
        if others.cluster.set(start.cluster_id.clone()).is_ok() {
            let start = start.clone();
            tokio::spawn(async move { others.follow_volumes(start).await });
        }
        Ok(())
    }

    /// Keeps the marks up to date with their volumes. With the UID of its volume, a mark proves that the directory
    /// still belongs to it after an administrator has bound the volume to another claim. The reclaim policy in the mark
    /// shows that the data must be kept after an administrator has deleted the volume.
    async fn follow_volumes(&self, start: StartContext) {
        loop {
            match start.volumes().await {
                Ok(volumes) => {
                    let volumes = volumes.iter().map(|volume| {
                        (volume.name.clone(), (owner_in_this_cluster(volume), is_retained(&volume.object)))
                    });
                    let volumes: Volumes = volumes.collect();
                    self.run_in_background(move |root, _| root.note_volumes(&volumes)).await;
                }
                Err(error) => tracing::warn!("cannot list the volumes to update their marks: {error}"),
            }
            let next = Instant::now() + VOLUMES_PERIOD;
            while timeout_at(next, self.created.notify.notified()).await.is_ok() {
                tokio::time::sleep(SAVED_AFTER).await;
                let created = self.created.take();
                if created.len() > FEW {
                    break;
                }
                for (name, path) in created {
                    self.note_created(&start, &name, path).await;
                }
            }
        }
    }

    /// Records the UID of a newly created volume. If the volume is not saved yet, the next list of all volumes contains
    /// it.
    async fn note_created(&self, start: &StartContext, name: &str, path: VolumePath) {
        match Api::<PersistentVolume>::all(start.client.clone()).get_opt(name).await {
            Ok(Some(volume)) => {
                let owner = Owner { cluster: Some(start.cluster_id.clone()), ..owner_of(&volume) };
                self.run_in_background(move |root, _| root.note_volume(&path, &owner, is_retained(&volume))).await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("cannot read the volume {name} to update its mark: {error}"),
        }
    }

    /// Removes expired volumes and those that exceed the limits from the trash. Never returns.
    pub async fn empty_trash(self, limits: TrashLimits) {
        loop {
            tokio::time::sleep(TRASH_PERIOD).await;
            if let Some(cluster) = self.cluster.get().cloned() {
                let is_unfinished = self.is_unfinished.swap(false, Ordering::Relaxed);
                self.remove_in_background(move |root, token| {
                    let finished = if is_unfinished { root.finish_removals(token) } else { Ok(()) };
                    let expired = root.purge_expired(Timestamp::now(), Some(&cluster), token);
                    finished.and(expired).and(root.purge_excess(&limits, Some(&cluster), token))
                })
                .await;
            }
        }
    }

    /// Marks a new root. Fails if volumes of this root exist, because another file system must contain them.
    async fn mark(
        &self,
        annotations: &Annotations,
        start: &StartContext,
        is_here: impl Fn(&ProvisionedVolume) -> bool,
    ) -> Result<(), StartError> {
        let volumes = start.volumes().await?;
        let mut here = volumes.iter().filter(|volume| is_here(volume));
        match here.find(|volume| volume.annotation(annotations.root).is_some()) {
            Some(volume) => {
                let (path, name) = (self.root().path().to_owned(), &volume.name);
                Err(StartError::new(format!("{}; the volume {name} exists", DirectoryError::Unmarked(path))))
            }
            None => self.put_marker().await,
        }
    }

    /// Same as [`run_in_background`](Self::run_in_background), for work that removes trees. If it fails,
    /// [`empty_trash`](Self::empty_trash) finishes the removals, because their data may already have left the trash.
    async fn remove_in_background(
        &self,
        work: impl FnOnce(&Root, &FencingToken) -> Result<(), DirectoryError> + Send + 'static,
    ) {
        let removal = self.background_removal().await;
        let is_done = self
            .run_in_background(move |root, token| {
                let _removal = removal;
                work(root, token)
            })
            .await;
        if !is_done {
            self.is_unfinished.store(true, Ordering::Relaxed);
        }
    }

    /// Runs background work and logs its errors. Returns true if there were none.
    async fn run_in_background(
        &self,
        work: impl FnOnce(&Root, &FencingToken) -> Result<(), DirectoryError> + Send + 'static,
    ) -> bool {
        let done: Result<(), StartError> = self.run(move |root| Ok(work(root, &FencingToken::unlimited())?)).await;
        if let Err(error) = &done {
            tracing::warn!("the upkeep of {} is not finished: {error}", self.root().path().display());
        }
        done.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::worker::REMOVALS;

    #[tokio::test]
    async fn a_long_removal_does_not_delay_other_upkeep() {
        let (_dir, root) = crate::tests::root();
        let worker = Worker::new(root);
        let mut removals = Vec::new();
        for _ in 0..REMOVALS {
            removals.push(worker.background_removal().await);
        }
        let annotations = Annotations { on_delete: "on-delete", trash_ttl: "trash-ttl", root: "root" };
        let start = StartContext::new(kube_sim::Cluster::new().client("directories"), Vec::new());
        worker.begin(&annotations, &start, |_| true).await.unwrap();
        assert!(worker.cluster.get().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_failed_is_tried_again() {
        let (dir, root) = crate::tests::root();
        let worker = Worker::new(root);
        worker.cluster.set("cluster-1".to_owned()).unwrap();
        let left = dir.path().join(".kube-provisioner/deleting/pvc-1");
        // A file instead of the entry's directory makes the removal fail.
        fs::write(&left, "").unwrap();
        worker.remove_in_background(Root::finish_removals).await;
        fs::remove_file(&left).unwrap();
        fs::create_dir_all(left.join("data/below")).unwrap();
        let upkeep = tokio::spawn(worker.empty_trash(TrashLimits::default()));
        tokio::time::sleep(3 * TRASH_PERIOD).await;
        assert!(!left.exists());
        upkeep.abort();
    }
}
