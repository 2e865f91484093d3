//! Fingerprints that detect changes within this process.

use std::hash::{DefaultHasher, Hash, Hasher as _};

pub(crate) fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
