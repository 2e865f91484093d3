//! Index of Secrets and ConfigMaps whose name differs from their claim's.

use std::collections::{BTreeSet, HashMap};

use super::delivered_names::DeliveredNames;
use super::facts::{BucketFacts, ClaimFacts};
use super::key::Key;
use crate::controller::shared::index::remove_entry;
use crate::protocol::{CONFIG_MAP_NAME, SECRET_NAME};

/// Keys by `namespace/name` of a Secret or ConfigMap.
#[derive(Default)]
pub(super) struct DeliveredIndex {
    /// Claims that request a name.
    asked: HashMap<Box<str>, BTreeSet<Key>>,
    /// Claims whose ObjectBuckets record a name.
    recorded: HashMap<Box<str>, BTreeSet<Key>>,
}

impl DeliveredIndex {
    pub(super) fn put_claim(&mut self, key: &Key, claim: &ClaimFacts) {
        for path in asked(claim) {
            self.asked.entry(path).or_default().insert(key.clone());
        }
    }

    pub(super) fn unindex_claim(&mut self, key: &Key, known: &ClaimFacts) {
        for path in asked(known) {
            remove_entry(&mut self.asked, &*path, key);
        }
    }

    pub(super) fn put_bucket(&mut self, bucket: &BucketFacts) {
        for (path, key) in recorded(bucket) {
            self.recorded.entry(path).or_default().insert(key);
        }
    }

    pub(super) fn unindex_bucket(&mut self, known: &BucketFacts) {
        for (path, key) in recorded(known) {
            remove_entry(&mut self.recorded, &*path, &key);
        }
    }

    pub(super) fn at(&self, path: &str) -> impl Iterator<Item = &Key> {
        self.asked.get(path).into_iter().chain(self.recorded.get(path)).flatten()
    }
}

fn asked(claim: &ClaimFacts) -> impl Iterator<Item = Box<str>> {
    let names = [SECRET_NAME, CONFIG_MAP_NAME].into_iter().filter_map(|key| claim.config.get(key));
    names.map(|name| format!("{}/{name}", claim.namespace).into())
}

fn recorded(bucket: &BucketFacts) -> Vec<(Box<str>, Key)> {
    let (Some(record), Some(claim)) = (bucket.record(), bucket.claim()) else { return Vec::new() };
    let key = Key::of(&claim.namespace, &claim.name, &claim.uid);
    let paths = record.delivered.iter().flat_map(|names: &DeliveredNames| names.paths(&claim.namespace));
    paths.map(|path| (path, key.clone())).collect()
}
