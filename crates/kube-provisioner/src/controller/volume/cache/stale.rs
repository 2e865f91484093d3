//! Which claims are looked at once more before they get a volume, because what is known of them may be of before somebody
//! else worked on them: the watch may be behind by the whole life of a volume.

use provisioner_runtime::watch::Change;

use super::{ClaimEntry, VolumeCache};
use crate::controller::volume::facts::Progress;
use crate::controller::volume::key::Key;
use crate::controller::volume::narrow::{WatchedClaim, WatchedVolume};
use crate::controller::volume::safeguards::Safeguard;

impl VolumeCache {
    /// From now on nobody else works on our claims, which are at this version: what is known of an earlier one is stale.
    pub(crate) fn claims_stale_before(&mut self, version: u64) {
        self.stale_claims = self.stale_claims.max(version);
    }

    /// The same of volumes: the watch may yet tell of one that has gone since, and an attempt must not end by it.
    pub(crate) fn volumes_stale_before(&mut self, version: u64) {
        if self.rules.safeguards.include(Safeguard::FreshVolumes) {
            self.stale_volumes = self.stale_volumes.max(version);
        }
    }

    /// Whether a volume is told of as it was before our term: it may have gone since.
    pub(super) fn is_stale(&self, volume: &WatchedVolume) -> bool {
        volume
            .version()
            .and_then(|version| version.parse::<u64>().ok())
            .is_some_and(|version| version <= self.stale_volumes)
    }

    /// Has the claims among these keys looked at first, unless the watch has got to where nothing is stale.
    pub(crate) fn revalidate_claims(&mut self, position: u64, among: impl Fn(&Key) -> bool) {
        if position < self.stale_claims {
            let keys: Vec<Key> = self.claims.iter().map(|(key, _)| key).filter(|key| among(key)).cloned().collect();
            keys.iter().for_each(|key| self.confirm_first(key));
        }
    }

    /// Takes in what the watch tells as it was at this version.
    pub(crate) fn claim_event_at(&mut self, version: u64, event: Change<WatchedClaim>) -> Vec<Key> {
        let keys = self.claim_event(event);
        if version < self.stale_claims {
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
