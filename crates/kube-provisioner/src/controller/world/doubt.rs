//! Which claims are looked at once more before they get a volume, because what is known of them may be of before somebody
//! else worked on them: the watch may be behind by the whole life of a volume.

use provisioner_runtime::watch::Event;

use super::{ClaimEntry, World};
use crate::controller::facts::Progress;
use crate::controller::key::Key;
use crate::controller::watched::WatchedClaim;

impl World {
    /// From now on nobody else works on our claims, which are at this version: what is known of an earlier one is doubted.
    pub(crate) fn doubt_claims(&mut self, version: u64) {
        self.doubt = self.doubt.max(version);
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
