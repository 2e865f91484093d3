//! How far the work on keys has come beyond what the API server shows.

use std::sync::Arc;

use provisioner_runtime::watch::Event;

use super::World;
use crate::controller::facts::{Pending, Progress};
use crate::controller::key::Key;
use crate::controller::safeguards::Safeguard;
use crate::controller::watched::WatchedVolume;

impl World {
    /// Takes in what a former holder of the journal had begun. Whether it is still to be finished.
    pub(crate) fn adopt(&mut self, key: &Key, pending: Pending) -> bool {
        let saved = matches!(self.volumes.get(key), Some(Some(volume)) if !self.rules.made_elsewhere(&volume.facts));
        // A volume that we know may be of before our term, so it is looked for.
        if saved && !self.rules.safeguards.include(Safeguard::FreshVolumes) {
            self.adopted(key);
            return false;
        }
        if !matches!(
            self.progress.get(key),
            Some(Progress::Background(_) | Progress::Unsaved(_) | Progress::Surplus(_))
        ) {
            self.progress.insert(key.clone(), Progress::Background(Arc::new(pending)));
        }
        true
    }

    /// Nothing is done about these keys before their entries are in our journal.
    pub(crate) fn await_adoption(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            if !self.unfinished(&key) {
                self.progress.insert(key, Progress::AwaitsAdoption);
            }
        }
    }

    /// The key's entry is in our journal, or there is none.
    pub(crate) fn adopted(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::AwaitsAdoption)) {
            self.progress.remove(key);
        }
    }

    /// Whether something may have been made for this key that the API server does not show yet.
    pub(crate) fn unfinished(&self, key: &Key) -> bool {
        match self.progress.get(key) {
            Some(Progress::Background(_) | Progress::Unsaved(_) | Progress::Surplus(_) | Progress::AwaitsAdoption) => {
                true
            }
            Some(Progress::Confirm | Progress::BackendDeleted { .. } | Progress::None) | None => false,
        }
    }

    /// How many attempts are in journals that nobody writes any more.
    pub(crate) fn awaiting_adoption(&self) -> usize {
        self.progress.values().filter(|progress| matches!(progress, Progress::AwaitsAdoption)).count()
    }

    /// Where claims record attempts, one whose record is gone has been ended by somebody else.
    pub(super) fn record_gone(&mut self, key: &Key) {
        if self.rules.claims_record {
            self.drop_attempt(key);
        }
    }

    /// A person has ended the attempt of this key by hand.
    pub(crate) fn drop_attempt(&mut self, key: &Key) {
        if self.unfinished(key) {
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
