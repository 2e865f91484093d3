//! Numbers that stand for values in a comparison.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The number that stands for `value` in a comparison with an earlier one.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
