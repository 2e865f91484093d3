//! How far the work on keys has come beyond what the API server shows.

use std::sync::Arc;

use provisioner_runtime::journal::{Entry, Journal};
use provisioner_runtime::watch::Event;

use super::World;
use crate::controller::entry;
use crate::controller::facts::Progress;
use crate::controller::key::Key;
use crate::controller::watched::WatchedVolume;

impl World {
    /// Takes in what a former holder of the journal had begun. The key is there when it is still to be finished.
    ///
    /// # Errors
    /// What is wrong with an entry that cannot be read.
    fn adopt(&mut self, entry: &Entry) -> Result<Option<Key>, String> {
        let key = Key::of_volume(&entry.key);
        let saved = matches!(self.volumes.get(&key), Some(Some(volume)) if !self.rules.made_elsewhere(&volume.facts));
        if saved {
            return Ok(None);
        }
        if self.unfinished(&key) {
            return Ok(Some(key));
        }
        let pending = Arc::new(entry::read(entry, &*self.backend)?);
        self.progress.insert(key.clone(), Progress::Background(pending));
        Ok(Some(key))
    }

    /// Takes in entries that are in our journal, and lets those be removed from now on that need no work. Returns the keys of
    /// the others.
    pub(crate) fn take_in(&mut self, entries: &[Entry], journal: &Journal) -> Vec<Key> {
        let mut begun = Vec::new();
        for entry in entries {
            journal.unpin(&entry.key);
            match self.adopt(entry) {
                Ok(Some(key)) => begun.push(key),
                Ok(None) => journal.remove(&entry.key),
                Err(problem) => tracing::error!(pv = entry.key, "an entry of the journal cannot be used: {problem}"),
            }
        }
        begun
    }

    /// Whether something may have been made for this key that the API server does not show yet.
    pub(crate) fn unfinished(&self, key: &Key) -> bool {
        matches!(self.progress.get(key), Some(Progress::Background(_) | Progress::Unsaved(_)))
    }

    /// Another replica goes on with what was begun for this key.
    pub(crate) fn give_up(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::Background(_))) {
            self.progress.remove(key);
        }
    }

    /// Drops what is remembered of work on these keys: somebody else goes on with it.
    pub(crate) fn forget_progress(&mut self, of: impl Fn(&Key) -> bool) {
        self.progress.retain(|key, progress| matches!(progress, Progress::Confirm) || !of(key));
    }

    /// Takes in the answer to our own save, unless the watch was faster: it may have told of the end already.
    pub(crate) fn saved(&mut self, key: &Key, answer: WatchedVolume) {
        if matches!(self.progress.get(key), Some(Progress::Unsaved(_))) {
            self.progress.remove(key);
            self.volume_event(Event::Applied(answer));
        }
    }

    pub(crate) fn set_progress(&mut self, key: &Key, progress: Progress) {
        match progress {
            Progress::None => self.progress.remove(key),
            progress => self.progress.insert(key.clone(), progress),
        };
    }

    /// Remembers that the asset of the volume with this uid is gone, as long as its object is there.
    pub(crate) fn backend_deleted(&mut self, key: &Key, uid: &str, finished: bool) {
        match self.volumes.get(key) {
            Some(Some(volume)) if *volume.facts.uid == *uid => {
                self.progress.insert(key.clone(), Progress::BackendDeleted { uid: uid.into(), finished });
            }
            _ => drop(self.progress.remove(key)),
        }
    }
}
