//! What is done at the start and beside the calls: the root's marker, deletions, the trash.

use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::Api;
use kube_provisioner::{FencingToken, ProvisionedVolume, Start, StartError};
use tokio::time::{Instant, timeout_at};

use crate::deletion::{Annotations, is_retained, owner_here, owner_of};
use crate::error::DirectoryError;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::survey::Volumes;
use crate::trash::TrashLimits;
use crate::worker::Worker;

/// How often the trash is checked.
const TRASH_PERIOD: Duration = Duration::from_secs(60);
/// How often all marks are compared with their volumes, which are listed for that.
const VOLUMES_PERIOD: Duration = Duration::from_secs(3600);
/// How long after its creation the UID of a volume is looked up. The controller has saved nearly all volumes by then.
const SAVED_AFTER: Duration = Duration::from_secs(60);
/// More new volumes than these are read by one list.
const FEW: usize = 20;

impl Worker {
    /// Before the first volume is made or removed. `is_here` tells the volumes of this root, as far as that is known, from
    /// those of others.
    ///
    /// # Errors
    /// When it is not the root that the volumes are in.
    pub async fn begin(
        &self,
        annotations: &Annotations,
        start: &Start,
        is_here: impl Fn(&ProvisionedVolume) -> bool,
    ) -> Result<(), StartError> {
        if !self.has_marker().await? {
            self.mark(annotations, start, is_here).await?;
        }
        // Another term of this process has the same.
        let _ = self.client.set(start.client.clone());
        // The volumes of deletions that an earlier run did not finish may be gone, so nobody would ask again.
        let (worker, start) = (self.clone(), start.clone());
        tokio::spawn(async move {
            worker.remove_unasked(Root::finish_removals).await;
            if worker.cluster.set(start.cluster_id.clone()).is_ok() {
                worker.follow_volumes(start).await;
            }
        });
        Ok(())
    }

    /// Keeps the marks up to date with their volumes. A mark proves by the UID of its volume that the directory still belongs to
    /// it when an administrator has bound the volume to another claim. The reclaim policy says in the mark that the data is
    /// kept when an administrator has removed the volume.
    async fn follow_volumes(&self, start: Start) {
        loop {
            match start.volumes().await {
                Ok(volumes) => {
                    let volumes = volumes
                        .iter()
                        .map(|volume| (volume.name.clone(), (owner_here(volume), is_retained(&volume.object))));
                    let volumes: Volumes = volumes.collect();
                    self.unasked(move |root, _| root.note_volumes(&volumes)).await;
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

    /// Records the UID of a volume that was just created. If it is not saved yet, the next list of all volumes has it.
    async fn note_created(&self, start: &Start, name: &str, path: VolumePath) {
        match Api::<PersistentVolume>::all(start.client.clone()).get_opt(name).await {
            Ok(Some(volume)) => {
                let owner = Owner { cluster: Some(start.cluster_id.clone()), ..owner_of(&volume) };
                self.unasked(move |root, _| root.note_volume(&path, &owner, is_retained(&volume))).await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("cannot read the volume {name} to update its mark: {error}"),
        }
    }

    /// Removes from the trash what its time is over for, or what it has no room for, forever.
    pub async fn empty_trash(self, limits: TrashLimits) {
        loop {
            tokio::time::sleep(TRASH_PERIOD).await;
            if let Some(cluster) = self.cluster.get().cloned() {
                self.remove_unasked(move |root, token| {
                    let expired = root.purge_expired(Timestamp::now(), Some(&cluster), token);
                    expired.and(root.purge_excess(&limits, Some(&cluster), token))
                })
                .await;
            }
        }
    }

    /// A new root gets its marker, unless there are volumes: then it is not the root that they are in.
    async fn mark(
        &self,
        annotations: &Annotations,
        start: &Start,
        is_here: impl Fn(&ProvisionedVolume) -> bool,
    ) -> Result<(), StartError> {
        let volumes = start.volumes().await?;
        let mut here = volumes.iter().filter(|volume| is_here(volume));
        match here.find(|volume| volume.annotation(annotations.root).is_some()) {
            Some(volume) => {
                let (path, name) = (self.root().path().to_owned(), &volume.name);
                Err(StartError::new(format!("{}; the volume {name} is there", DirectoryError::Unmarked(path))))
            }
            None => self.put_marker().await,
        }
    }

    /// The same where trees are removed.
    async fn remove_unasked(
        &self,
        work: impl FnOnce(&Root, &FencingToken) -> Result<(), DirectoryError> + Send + 'static,
    ) {
        let removal = self.removal_at_leisure().await;
        self.unasked(move |root, token| {
            let _removal = removal;
            work(root, token)
        })
        .await;
    }

    /// Work that nobody waits for.
    async fn unasked(&self, work: impl FnOnce(&Root, &FencingToken) -> Result<(), DirectoryError> + Send + 'static) {
        let done: Result<(), StartError> = self.run(move |root| Ok(work(root, &FencingToken::unlimited())?)).await;
        if let Err(error) = done {
            tracing::warn!("the upkeep of {} is not finished: {error}", self.root().path().display());
        }
    }
}
