//! The work key: a claim by its namespace, name and uid.

use std::fmt;
use std::sync::Arc;

use provisioner_runtime::stable_hash;

/// `namespace/name/uid`. A claim and its ObjectBucket have the same key, even after the claim was deleted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn of(namespace: &str, name: &str, uid: &str) -> Self {
        Self(format!("{namespace}/{name}/{uid}").into())
    }

    /// Returns `namespace/name`.
    pub(crate) fn path(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(path, _)| path)
    }

    pub(crate) fn name(&self) -> &str {
        self.path().split_once('/').map_or("", |(_, name)| name)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.path().split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn uid(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, uid)| uid)
    }
}

/// Returns the text that selects the shard of a key. One process works on all claims in a namespace, which can share a
/// bucket.
pub fn shard_text(key: &str) -> String {
    match key.split_once('/') {
        // The shard depends on bits that the last characters of a short text do not affect.
        Some((namespace, _)) if !namespace.is_empty() => format!("{:016x}", stable_hash(namespace)),
        _ => key.to_owned(),
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use provisioner_runtime::controller::shard_of;

    use super::*;

    #[test]
    fn namespaces_are_spread_over_the_shards() {
        let mut shares = BTreeMap::new();
        for number in 0..100 {
            let shard = |claim: &str| shard_of(&shard_text(&format!("team-{number}/{claim}/uid-{claim}")), 4);
            assert_eq!(shard("photos"), shard("films"));
            *shares.entry(shard("photos")).or_insert(0) += 1;
        }
        assert_eq!(shares.len(), 4);
        assert!(shares.values().all(|share| (10..=40).contains(share)), "{shares:?}");
    }
}
