//! Claims that must be read before they receive a volume. The watch may be behind the work of another process, even
//! by the whole life of a volume.

use provisioner_runtime::watch::Change;

use super::{ClaimEntry, VolumeCache};
use crate::controller::volume::facts::Progress;
use crate::controller::volume::key::Key;
use crate::controller::volume::partial::{WatchedClaim, WatchedVolume};
use crate::controller::volume::safeguards::Safeguard;

impl VolumeCache {
    /// Records that claims of earlier versions are stale, because only this process works on our claims from now on.
    pub(crate) fn claims_stale_before(&mut self, version: u64) {
        self.stale_claims = self.stale_claims.max(version);
    }

    /// Records that volumes of earlier versions are stale. The watch may still show a deleted volume, which must not
    /// end an attempt.
    pub(crate) fn volumes_stale_before(&mut self, version: u64) {
        if self.rules.safeguards.include(Safeguard::FreshVolumes) {
            self.stale_volumes = self.stale_volumes.max(version);
        }
    }

    /// Returns true if this state of the volume is older than our term: the volume may have been deleted since.
    pub(super) fn is_stale(&self, volume: &WatchedVolume) -> bool {
        volume
            .version()
            .and_then(|version| version.parse::<u64>().ok())
            .is_some_and(|version| version <= self.stale_volumes)
    }

    /// Marks the claims among these keys to be read first, with their volumes, unless the watches have reached these
    /// positions after the stale versions.
    pub(crate) fn revalidate_claims(&mut self, claims: u64, volumes: u64, among: impl Fn(&Key) -> bool) {
        if claims < self.stale_claims || volumes < self.stale_volumes {
            let keys: Vec<Key> = self.claims.iter().map(|(uid, _)| self.key(uid)).filter(|key| among(key)).collect();
            keys.iter().for_each(|key| self.confirm_first(key));
        }
    }

    /// Returns whether the volume is known in the state of this version.
    pub(crate) fn shows_volume(&self, key: &Key, version: &str) -> bool {
        matches!(self.volumes.get(key), Some(Some(volume)) if *volume.resource_version == *version)
    }

    /// Applies a watch event of this version.
    pub(crate) fn claim_event_at(&mut self, version: u64, event: Change<WatchedClaim>, listing: u64) -> Vec<Key> {
        let keys = self.claim_event(event, listing);
        if version < self.stale_claims {
            keys.iter().for_each(|key| self.confirm_first(key));
        }
        keys
    }

    /// Requires the claim to be read before it receives another volume. It may look unbound only because the watch is
    /// behind.
    pub(crate) fn confirm_first(&mut self, key: &Key) {
        let claim = self.holder(key).and_then(|claim| self.claims.get(&claim));
        if matches!(claim, Some(ClaimEntry::Waiting(_))) && !self.progress.contains_key(key) {
            self.progress.insert(key.clone(), Progress::Confirm);
        }
    }

    /// Records that the claim was read. An attempt that was adopted meanwhile is kept.
    pub(crate) fn confirmed(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::Confirm)) {
            self.progress.remove(key);
        }
    }
}
