//! Removal of volumes. Large ones take turns: a call that has removed files for a while yields to another one, and the
//! next call continues.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube_provisioner::{DeleteError, FencingToken};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{LIMIT, Worker};
use crate::commands::volumes::Volumes;
use crate::deletion::Deletion;
use crate::error::DirectoryError;
use crate::root::Root;

/// Maximum time that a call removes files before it yields and the controller gets an answer.
pub(super) const TURN: Duration = Duration::from_secs(20);
/// Minimum number of steps per call, so that removal on a slow server also finishes. A step is the removal of a file or
/// the reading of a directory.
const MIN_STEPS: usize = 64;
/// The delay before an interrupted removal continues.
const PAUSE: Duration = Duration::from_secs(1);

impl Worker {
    /// Removes, keeps or discards a directory. A dropped call must not leave a thread that continues deleting for
    /// hours, so the thread checks the fencing token.
    ///
    /// # Errors
    /// Fails if this is not possible now. If a removal takes longer than one call, the error reports that it is in
    /// progress, and the next call continues.
    pub async fn end(&self, deletion: Deletion, token: FencingToken) -> Result<(), DeleteError> {
        self.check_alone(&deletion).await?;
        let removal = if deletion.removes() { Some(self.removal().await?) } else { None };
        let turn = self.turn;
        self.run(move |root| {
            let (_removal, of_turn) = (removal, for_a_turn(token.clone(), turn));
            let name = deletion.path().to_string();
            match deletion.execute(root, &of_turn) {
                Err(error @ DirectoryError::Busy { .. }) => Err(DeleteError::in_use(error)),
                Err(DirectoryError::Interrupted(_) | DirectoryError::Fenced(_)) if token.is_valid() => {
                    Err(DeleteError::in_progress(DirectoryError::Continues(name)).after(PAUSE))
                }
                result => Ok(result?),
            }
        })
        .await
    }

    /// Waits for a permit to remove a tree. Many large volumes take turns, which is not a failure.
    async fn removal(&self) -> Result<OwnedSemaphorePermit, DeleteError> {
        match timeout(LIMIT, self.removals.clone().acquire_owned()).await {
            Ok(Ok(removal)) => Ok(removal),
            _ => match self.check_responsive::<DeleteError>(Root::check).await {
                Ok(()) => Err(DeleteError::in_progress(self.occupied()).after(PAUSE)),
                Err(error) => Err(error),
            },
        }
    }

    /// Same as [`removal`](Self::removal), without a time limit, for background work.
    pub(crate) async fn background_removal(&self) -> Option<OwnedSemaphorePermit> {
        self.removals.clone().acquire_owned().await.ok()
    }

    /// Returns the other volumes that refer to an adopted directory. Earlier versions adopted directories without
    /// checking for other volumes. Directories that this provisioner created are not checked, because no other volume
    /// refers to them.
    ///
    /// # Errors
    /// Fails if the volumes cannot be listed now.
    pub async fn others(&self, deletion: &Deletion) -> Result<Vec<String>, DeleteError> {
        let (Some(client), Some(volume)) = (self.client.get(), deletion.volume()) else { return Ok(Vec::new()) };
        let path = deletion.path().clone();
        let mark = self.run(move |root| Ok::<_, DeleteError>(root.mark_of(&path)?)).await?;
        if mark.is_none_or(|mark| mark.owner.uid.is_none()) {
            return Ok(Vec::new());
        }
        // One list at a time, because each needs memory for all volumes of the cluster.
        let Ok(Ok(list)) = timeout(LIMIT, self.lists.clone().acquire_owned()).await else {
            return Err(DeleteError::in_progress(self.occupied()).after(PAUSE));
        };
        let volumes = Volumes::list(client).await.map_err(DeleteError::retry)?;
        let (volume, path) = (volume.clone(), deletion.path().clone());
        let look = move |root: &Root| {
            let _list = list;
            Ok::<_, DeleteError>(volumes.other_users(root, &volume, &path))
        };
        self.run(look).await
    }

    /// Refuses to remove an adopted directory if other volumes also refer to it.
    ///
    /// # Errors
    /// Fails if there are other volumes, or if they cannot be listed now.
    pub async fn check_alone(&self, deletion: &Deletion) -> Result<(), DeleteError> {
        let others = if deletion.keeps() { Vec::new() } else { self.others(deletion).await? };
        if others.is_empty() {
            Ok(())
        } else {
            Err(DeleteError::in_use(format!(
                "the directory {} may not belong to this volume only, so it is not removed: {}; copy the data of each \
                 volume to a separate directory, or set the reclaim policy to Retain",
                deletion.path(),
                others.join(", ")
            )))
        }
    }
}

/// Returns a token that is valid as long as the given one, but at most for a turn.
fn for_a_turn(token: FencingToken, turn: Duration) -> FencingToken {
    let (began, steps) = (Instant::now(), AtomicUsize::new(0));
    FencingToken::valid_while(move || {
        let is_over = steps.fetch_add(1, Ordering::Relaxed) >= MIN_STEPS && began.elapsed() >= turn;
        !is_over && token.is_valid()
    })
}
