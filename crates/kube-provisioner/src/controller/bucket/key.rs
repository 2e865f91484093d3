//! The work key: a claim by its namespace, name and uid.

/// A claim and its ObjectBucket have the same key, even after the claim was deleted.
pub(crate) use provisioner_runtime::controller::ObjectKey as Key;
use provisioner_runtime::stable_hash;

/// Returns the text that selects the shard of a key. One process works on all claims in a namespace, which can share a
/// bucket.
pub fn shard_text(key: &str) -> String {
    match key.split_once('/') {
        // The shard depends on bits that the last characters of a short text do not affect.
        Some((namespace, _)) if !namespace.is_empty() => format!("{:016x}", stable_hash(namespace)),
        _ => key.to_owned(),
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
