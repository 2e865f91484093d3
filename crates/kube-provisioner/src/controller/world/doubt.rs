//! Which claims are looked at once more before they get a volume, because what is known of them may be of before somebody
//! else worked on them: the watch may be behind by the whole life of a volume.

use provisioner_runtime::watch::Event;

use super::{ClaimEntry, World};
use crate::controller::facts::Progress;
use crate::controller::key::Key;
use crate::controller::safeguards::Safeguard;
use crate::controller::watched::{WatchedClaim, WatchedVolume};

impl World {
    /// From now on nobody else works on our claims, which are at this version: what is known of an earlier one is doubted.
    pub(crate) fn doubt_claims(&mut self, version: u64) {
        self.doubt = self.doubt.max(version);
    }

    /// The same of volumes: the watch may yet tell of one that has gone since, and an attempt must not end by it.
    pub(crate) fn doubt_volumes(&mut self, version: u64) {
        if self.rules.safeguards.include(Safeguard::FreshVolumes) {
            self.doubted_volumes = self.doubted_volumes.max(version);
        }
    }

    /// Whether a volume is told of as it was before our term: it may have gone since.
    pub(super) fn is_of_before(&self, volume: &WatchedVolume) -> bool {
        volume
            .version()
            .and_then(|version| version.parse::<u64>().ok())
            .is_some_and(|version| version <= self.doubted_volumes)
    }

    /// Has the claims among these keys looked at first, unless the watch has got to where there is no doubt.
    pub(crate) fn confirm_doubtful(&mut self, position: u64, among: impl Fn(&Key) -> bool) {
        if position < self.doubt {
            let keys: Vec<Key> = self.claims.iter().map(|(key, _)| key).filter(|key| among(key)).cloned().collect();
            keys.iter().for_each(|key| self.confirm_first(key));
        }
    }

    /// Takes in what the watch tells as it was at this version.
    pub(crate) fn claim_event_at(&mut self, version: u64, event: Event<WatchedClaim>) -> Vec<Key> {
        let keys = self.claim_event(event);
        if version < self.doubt {
            keys.iter().for_each(|key| self.confirm_first(key));
        }
        keys
    }

    /// The claim may look unbound only because its watch is behind: it gets no second volume unasked.
    pub(crate) fn confirm_first(&mut self, key: &Key) {
        if matches!(self.claims.get(key), Some(ClaimEntry::Waiting(_))) && !self.progress.contains_key(key) {
            self.progress.insert(key.clone(), Progress::Confirm);
        }
    }

    /// The claim was looked at. What was adopted for it meanwhile stays.
    pub(crate) fn confirmed(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::Confirm)) {
            self.progress.remove(key);
        }
    }
}
