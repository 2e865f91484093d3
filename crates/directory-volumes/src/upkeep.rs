//! What is done at the start and beside the calls: the root's marker, deletions, the trash.

use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::{FencingToken, ProvisionedVolume, Start, StartError};

use crate::deletion::Annotations;
use crate::error::DirectoryError;
use crate::root::Root;
use crate::worker::Worker;

/// How often the trash is looked at.
const TRASH_PERIOD: Duration = Duration::from_secs(60);

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
        // The volumes of deletions that an earlier run did not finish may be gone, so nobody would ask again.
        let worker = self.clone();
        tokio::spawn(async move { worker.unasked(Root::finish_removals).await });
        Ok(())
    }

    /// Removes from the trash whose time is over, for ever.
    pub async fn empty_trash(self) {
        loop {
            tokio::time::sleep(TRASH_PERIOD).await;
            if self.root().id().is_some() {
                self.unasked(|root, token| root.purge_expired(Timestamp::now(), token)).await;
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
                let (path, name) = (self.root().path().to_owned(), volume.name());
                Err(StartError::new(format!("{}; the volume {name} is there", DirectoryError::Unmarked(path))))
            }
            None => self.put_marker().await,
        }
    }

    /// Work that nobody waits for.
    async fn unasked(&self, work: fn(&Root, &FencingToken) -> Result<(), DirectoryError>) {
        let done: Result<(), StartError> = self.run(move |root| Ok(work(root, &FencingToken::unlimited())?)).await;
        if let Err(error) = done {
            tracing::warn!("the removal of an earlier volume is not finished: {error}");
        }
    }
}
