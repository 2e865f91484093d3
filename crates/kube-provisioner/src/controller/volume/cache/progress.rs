//! Progress of the work on keys beyond what the API server shows.

use provisioner_runtime::watch::Change;

use super::VolumeCache;
use crate::controller::volume::facts::Progress;
use crate::controller::volume::key::Key;
use crate::controller::volume::partial::WatchedVolume;

impl VolumeCache {
    /// Returns the number of attempts in journals that no process writes any more.
    pub(crate) fn awaiting_adoption(&self) -> usize {
        self.progress.values().filter(|progress| matches!(progress, Progress::AwaitsAdoption)).count()
    }

    /// Applies the answer to our own save, unless the watch was faster: it may already have shown the volume's
    /// deletion.
    pub(crate) fn saved(&mut self, key: &Key, answer: WatchedVolume) {
        if matches!(self.progress.get(key), Some(Progress::Unsaved(_))) {
            self.progress.remove(key);
            self.volume_event(Change::Applied(answer));
        }
    }

    pub(crate) fn set_progress(&mut self, key: &Key, progress: Progress) {
        match progress {
            Progress::None => self.progress.remove(key),
            progress => self.progress.insert(key.clone(), progress),
        };
    }

    /// Records that the asset of the volume with this uid was deleted, until its object is deleted.
    pub(crate) fn backend_deleted(&mut self, key: &Key, uid: &str, finished: bool) {
        // An attempt waits until the object is deleted.
        if self.progress.get(key).and_then(Progress::pending).is_some() {
            return;
        }
        match self.volumes.get(key) {
            Some(Some(volume)) if *volume.facts.uid == *uid => {
                self.progress.insert(key.clone(), Progress::BackendDeleted { uid: uid.into(), finished });
            }
            _ => drop(self.progress.remove(key)),
        }
    }
}
