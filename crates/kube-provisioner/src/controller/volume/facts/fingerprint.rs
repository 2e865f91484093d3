//! Fingerprints of values.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// A number to compare `value` with an earlier value.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
