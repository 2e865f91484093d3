//! Objects that are gone, by the word of the API server or of the watch. A watch that is behind and a late answer may show them
//! once more.

use std::collections::HashSet;
use std::mem;

/// Watches and answers are behind by far fewer deletions.
const KEPT: usize = 1024;

/// The uids of the last deletions. A uid never comes back.
#[derive(Default)]
pub(super) struct Gone {
    recent: HashSet<Box<str>>,
    former: HashSet<Box<str>>,
}

impl Gone {
    pub(super) fn add(&mut self, uid: &str) {
        if self.recent.len() >= KEPT {
            self.former = mem::take(&mut self.recent);
        }
        self.recent.insert(uid.into());
    }

    pub(super) fn has(&self, uid: &str) -> bool {
        self.recent.contains(uid) || self.former.contains(uid)
    }
}
