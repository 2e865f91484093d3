//! One account for several claims of a namespace: each has its bucket, and all have the same key.
//!
//! The first claim founds the account, and the ObjectBucket of each other one records the same. Their label finds them when the
//! last of them ends. All work on one account is done by one process, one claim at a time: see `act/account.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use provisioner_runtime::is_dns_subdomain;
use serde::{Deserialize, Serialize};

use super::decide::Rules;
use super::decision::Refusal;
use super::delivered_names::without_names;
use super::facts::{BucketFacts, ClaimFacts, Facts, Fellow, OurClass};
use super::key::Key;
use super::record::Record;
use crate::bucket::{Account, ClaimName};
use crate::controller::shared::checksum::short_hash;
use crate::controller::shared::index::take;

/// What the ObjectBuckets of all claims with one account record of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SharedAccount {
    /// As the claims name it.
    pub(crate) name: String,
    /// No claim and no other account has it.
    pub(crate) uid: String,
    /// How many keys the account had when the claim got its own: a claim with a smaller number has an older key.
    #[serde(default)]
    pub(crate) generation: u64,
    /// What the author keeps of the account.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) state: BTreeMap<String, String>,
}

/// Why a claim does not get the account that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountProblem {
    /// The author's accounts are for one bucket each.
    Unsupported,
    /// No account can have the name.
    BadName,
    /// The account's claims have another class.
    OtherClass {
        /// Their class.
        class: String,
    },
    /// The class had other parameters when the account was made.
    OtherParameters,
    /// Another claim is about to get another key.
    Rotating {
        /// That claim.
        claim: String,
    },
    /// Nobody knows whether another claim has an account of this name.
    Unreadable {
        /// That claim's ObjectBucket.
        object: String,
    },
    /// The claim has a bucket, and another account or one of its own.
    Changed,
}

impl AccountProblem {
    /// Whether the end of another claim ends it.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::OtherClass { .. } | Self::OtherParameters | Self::Unreadable { .. })
    }
}

impl SharedAccount {
    /// An account that this claim founds. In each attempt it is the same.
    pub(crate) fn founded(name: &str, claim: &ClaimFacts) -> Self {
        let hex = short_hash(&format!("account/{}", claim.uid));
        // In the form of a uid, which authors may expect: version 8 is for what is made of something else.
        let uid = format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        Self { name: name.to_owned(), uid, generation: 0, state: BTreeMap::new() }
    }

    /// The account as the author gets it.
    pub(crate) fn account(&self, namespace: &str) -> Account {
        let (namespace, name, uid) = (namespace.to_owned(), self.name.clone(), self.uid.clone());
        Account::of(ClaimName { namespace, name, uid })
    }
}

/// The label of the ObjectBuckets whose claims have this account.
pub fn account_label(namespace: &str, account: &str) -> String {
    short_hash(&format!("{namespace}/{account}"))
}

/// Why a new claim cannot have the account that it names.
pub(crate) fn refusal(claim: &ClaimFacts, class: &OurClass, facts: &Facts, rules: &Rules) -> Option<Refusal> {
    let account = claim.account()?;
    let problem = match facts.fellows.first() {
        _ if !rules.capabilities.multiple_buckets => AccountProblem::Unsupported,
        _ if !is_name(account) => AccountProblem::BadName,
        Some(Fellow { bucket, .. }) if bucket.class.as_deref() != Some(&class.name) => {
            AccountProblem::OtherClass { class: bucket.class.as_deref().unwrap_or_default().to_owned() }
        }
        Some(Fellow { bucket, .. }) if !has_parameters(bucket, class) => AccountProblem::OtherParameters,
        _ => return None,
    };
    Some(Refusal::Account { account: account.to_owned(), problem })
}

fn has_parameters(fellow: &BucketFacts, class: &OurClass) -> bool {
    let recorded = fellow.record().and_then(|record| record.parameters.as_ref());
    recorded.is_none_or(|recorded| without_names(recorded) == without_names(&class.texts))
}

/// As a part of the names of users in all backends.
fn is_name(text: &str) -> bool {
    is_dns_subdomain(text) && text.len() <= 63 && !text.contains('.')
}

impl Facts {
    /// Namespace and name of the account that the claim shares, or asks for.
    pub(crate) fn account(&self) -> Option<(String, &str)> {
        let name = match self.bucket().and_then(|bucket| bucket.record()) {
            Some(record) => &record.account.as_ref()?.name,
            None => self.claim.as_ref()?.account()?,
        };
        Some((self.claim_name()?.namespace, name))
    }

    /// The refusal of work on an account while another claim is about to give it another key.
    pub(crate) fn rotation_elsewhere(&self, record: Option<&Record>) -> Option<Refusal> {
        self.awaits(record, |fellow| fellow.new_key.is_some())
    }

    /// The refusal of a rotation while another claim of the account has yet to get the newest key: the one that it has would go.
    pub(crate) fn older_key_elsewhere(&self, record: &Record) -> Option<Refusal> {
        self.awaits(Some(record), |fellow| fellow.made && generation(fellow) < generation(record))
    }

    fn awaits(&self, record: Option<&Record>, what: impl Fn(&Record) -> bool) -> Option<Refusal> {
        let account = match record {
            Some(record) => record.account.as_ref()?.name.as_str(),
            None => self.claim.as_ref()?.account()?,
        };
        let shares = |other: &Record| record.is_none_or(|record| have_one_account(record, other));
        // Nobody goes on with the key of a claim that does not exist.
        let with_claim = self.fellows.iter().filter(|fellow| fellow.has_claim).map(|fellow| &fellow.bucket);
        let mut waits_for = with_claim.filter(|of| of.record().is_some_and(|other| shares(other) && what(other)));
        let claim = waits_for.next()?.claim()?.name;
        Some(Refusal::Account { account: account.to_owned(), problem: AccountProblem::Rotating { claim } })
    }

    /// Whether another claim of the account has a newer key.
    pub(crate) fn has_older_key(&self, record: &Record) -> bool {
        let fellows = self.fellows.iter().filter_map(|fellow| fellow.bucket.record());
        let mut with_it = fellows.filter(|fellow| fellow.made && have_one_account(record, fellow));
        with_it.any(|fellow| generation(fellow) > generation(record))
    }
}

fn have_one_account(one: &Record, other: &Record) -> bool {
    one.account.as_ref().zip(other.account.as_ref()).is_some_and(|(one, other)| one.uid == other.uid)
}

fn generation(record: &Record) -> u64 {
    record.account.as_ref().map(|account| account.generation).unwrap_or_default()
}

/// Claims and ObjectBuckets by `namespace/name` of their account.
#[derive(Default)]
pub(super) struct AccountIndex {
    claims: HashMap<Box<str>, BTreeSet<Key>>,
    buckets: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl AccountIndex {
    pub(super) fn put_claim(&mut self, key: &Key, claim: &ClaimFacts) {
        if let Some(path) = asked(claim) {
            self.claims.entry(path).or_default().insert(key.clone());
        }
    }

    pub(super) fn claim_gone(&mut self, key: &Key, known: &ClaimFacts) {
        if let Some(path) = asked(known) {
            take(&mut self.claims, &*path, key);
        }
    }

    pub(super) fn put_bucket(&mut self, bucket: &BucketFacts) {
        if let Some(path) = recorded(bucket) {
            self.buckets.entry(path).or_default().insert(bucket.name.clone());
        }
    }

    pub(super) fn bucket_gone(&mut self, known: &BucketFacts) {
        if let Some(path) = recorded(known) {
            take(&mut self.buckets, &*path, &known.name);
        }
    }

    /// The claims that ask for the account of an ObjectBucket.
    pub(super) fn asking(&self, bucket: &BucketFacts) -> impl Iterator<Item = &Key> {
        recorded(bucket).and_then(|path| self.claims.get(&path)).into_iter().flatten()
    }

    /// The ObjectBuckets of the claim's account, or those of the account that it asks for.
    pub(super) fn buckets(
        &self,
        claim: Option<&ClaimFacts>,
        bucket: Option<&BucketFacts>,
    ) -> impl Iterator<Item = &str> {
        let path = match bucket.filter(|bucket| bucket.record().is_some()) {
            Some(bucket) => recorded(bucket),
            None => claim.and_then(asked),
        };
        let own = bucket.map(|bucket| bucket.name.clone());
        let buckets = path.and_then(|path| self.buckets.get(&path)).into_iter().flatten();
        buckets.filter(move |name| Some(*name) != own.as_ref()).map(|name| &**name)
    }
}

fn asked(claim: &ClaimFacts) -> Option<Box<str>> {
    claim.account().map(|account| format!("{}/{account}", claim.namespace).into())
}

fn recorded(bucket: &BucketFacts) -> Option<Box<str>> {
    let account = bucket.record()?.account.as_ref()?;
    Some(format!("{}/{}", bucket.claim()?.namespace, account.name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_accounts() {
        for name in ["a", "team", "team-1", "1", &"a".repeat(63)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "Team", "a.b", "a/b", "a_b", &"a".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
