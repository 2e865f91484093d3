//! How keys are spread over shards, and where the journals are.

use std::time::Duration;

use provisioner_runtime::journal::{Entry, JournalOptions};
use provisioner_runtime::lease::lease_name;
use provisioner_runtime::surroundings::Surroundings;

use crate::controller::entry;
use crate::options::{Coordination, Options};
use crate::rbac;

/// How keys are spread, and where the journals are.
pub(super) struct Plan {
    provisioner: String,
    namespace: String,
    coordination: Coordination,
    pub(super) shards: u32,
    node: Option<String>,
    instance: String,
    pub(super) grace: Duration,
    pub(super) surroundings: Surroundings,
}

impl Plan {
    pub(super) fn new(options: &Options, namespace: String, instance: String, surroundings: Surroundings) -> Self {
        let per_node = options.coordination == Coordination::PerNode;
        Self {
            provisioner: options.provisioner_name.clone(),
            namespace,
            coordination: options.coordination,
            shards: if options.coordination == Coordination::Lease { options.shards } else { 1 },
            node: options.node_name.clone().filter(|_| per_node),
            instance,
            grace: options.grace_period,
            surroundings,
        }
    }

    /// Whether attempts are recorded on their claims, and not in a journal.
    pub(super) fn claims_record(&self) -> bool {
        self.coordination == Coordination::PerClaim
    }

    pub(super) fn journal(&self, shard: u32) -> JournalOptions {
        let (name, layout) = match &self.node {
            Some(node) => (lease_name(&format!("{}-journal-node-{node}", self.provisioner)), "node".to_owned()),
            None => (rbac::journal_name(&self.provisioner, shard, self.shards), self.shards.to_string()),
        };
        JournalOptions {
            namespace: self.namespace.clone(),
            name,
            group: lease_name(&self.provisioner),
            layout,
            holder: self.instance.clone(),
            surroundings: self.surroundings,
        }
    }

    pub(super) fn shard_of(&self, key: &str) -> u32 {
        // The upper half, where the bits are mixed best.
        ((entry::hash(key.as_bytes()) >> 32) % u64::from(self.shards)) as u32
    }

    /// Whether an entry that nobody finishes any more is this shard's.
    pub(super) fn is_mine(&self, shard: u32, entry: &Entry) -> bool {
        match &self.node {
            Some(own) => entry::node(entry).as_ref() == Some(own),
            None => self.shard_of(&entry.key) == shard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::key::Key;

    fn plan(shards: u32) -> Plan {
        let options = Options { shards, ..Options::new("example.com/disks") };
        Plan::new(&options, "storage".to_owned(), "host_1".to_owned(), Surroundings::default())
    }

    #[test]
    fn every_shard_gets_its_share_and_replicas_of_all_versions_agree() {
        let keys: Vec<String> = (0..4000_u128)
            .map(|number| Key::ForClaim(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_string())
            .collect();
        let mut shares = [0; 4];
        keys.iter().for_each(|key| shares[plan(4).shard_of(key) as usize] += 1);
        assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
        // These must never change: an old replica and a new one share the keys during an update.
        assert_eq!(keys[..6].iter().map(|key| plan(4).shard_of(key)).collect::<Vec<_>>(), PINNED);
    }

    #[test]
    fn each_way_to_share_the_work_has_its_journals() {
        let journal = |plan: &Plan, shard| (plan.journal(shard).name, plan.journal(shard).layout);
        assert_eq!(journal(&plan(1), 0), ("example.com-disks-journal".to_owned(), "1".to_owned()));
        assert_eq!(journal(&plan(4), 2), ("example.com-disks-journal-2-of-4".to_owned(), "4".to_owned()));
        let mut options = Options::new("example.com/disks");
        (options.coordination, options.node_name) = (Coordination::PerNode, Some("node-1".to_owned()));
        let per_node = Plan::new(&options, "storage".to_owned(), "i".to_owned(), Surroundings::default());
        assert_eq!(journal(&per_node, 0), ("example.com-disks-journal-node-node-1".to_owned(), "node".to_owned()));
    }

    const PINNED: [u32; 6] = [0, 2, 1, 1, 2, 1];
}
