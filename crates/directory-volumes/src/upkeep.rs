//! What is done at the start and beside the calls: the root's marker, deletions, the trash.

use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::{FencingToken, ProvisionedVolume, Start, StartError};

use crate::deletion::{Annotations, is_retained, owner_here};
use crate::error::DirectoryError;
use crate::root::Root;
use crate::survey::Policies;
use crate::trash::TrashLimits;
use crate::worker::Worker;

/// How often the trash is checked.
const TRASH_PERIOD: Duration = Duration::from_secs(60);
/// How often the marks learn of changed reclaim policies. All volumes are listed for it.
const POLICY_PERIOD: Duration = Duration::from_secs(3600);

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
                worker.follow_policies(start).await;
            }
        });
        Ok(())
    }

    /// A person may set the reclaim policy of a volume to Retain and then remove the volume: the mark is what is left to say that
    /// the data are kept.
    async fn follow_policies(&self, start: Start) {
        loop {
            match start.volumes().await {
                Ok(volumes) => {
                    let policies = volumes
                        .iter()
                        .map(|volume| (volume.name.clone(), (owner_here(volume), is_retained(&volume.object))));
                    let policies: Policies = policies.collect();
                    self.unasked(move |root, _| root.note_policies(&policies)).await;
                }
                Err(error) => tracing::warn!("cannot see which volumes have the reclaim policy Retain: {error}"),
            }
            tokio::time::sleep(POLICY_PERIOD).await;
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
