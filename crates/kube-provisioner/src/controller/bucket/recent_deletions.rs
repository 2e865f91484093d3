//! UIDs of recently deleted objects, according to the API server or the watch. A watch that is behind and a late answer
//! may show them once more.

use std::collections::HashSet;
use std::mem;

/// The number of remembered deletions. Watches and answers are behind by far fewer.
const GENERATION_SIZE: usize = 1024;

/// The uids of the last deletions. A uid is never reused.
#[derive(Default)]
pub(super) struct RecentDeletions {
    recent: HashSet<Box<str>>,
    former: HashSet<Box<str>>,
}

impl RecentDeletions {
    pub(super) fn add(&mut self, uid: &str) {
        if self.recent.len() >= GENERATION_SIZE {
            self.former = mem::take(&mut self.recent);
        }
        self.recent.insert(uid.into());
    }

    /// Forgets an object that exists again, because the server's data was restored from a backup.
    pub(super) fn forget(&mut self, uid: &str) {
        self.recent.remove(uid);
        self.former.remove(uid);
    }

    pub(super) fn has(&self, uid: &str) -> bool {
        self.recent.contains(uid) || self.former.contains(uid)
    }
}
