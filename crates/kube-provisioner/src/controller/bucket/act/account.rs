//! Work on an account that several claims share: one claim at a time, and by what the API server shows of the others now.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Api, ListParams};

use super::Actions;
use super::attempt::Texts;
use super::make::Made;
use crate::bucket::{Account, BucketAccess, Credentials};
use crate::controller::bucket::accounts::{AccountProblem, SharedAccount, account_label};
use crate::controller::bucket::decision::Refusal;
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::partial::{WatchedBucket, bucket_facts};
use crate::controller::bucket::record::{Record, Source};
use crate::protocol::ACCOUNT_LABEL;

/// The pause while another claim of the account is worked on.
const BUSY: Duration = Duration::from_secs(1);
/// The pause while another claim of the account has yet to get its newest key.
const BEHIND: Duration = Duration::from_secs(10);

/// The accounts that are worked on, by `namespace/name`.
#[derive(Clone, Default)]
pub(crate) struct BusyAccounts(Arc<Mutex<HashSet<String>>>);

/// The work on an account. Dropping it ends the work.
pub(super) struct AccountWork {
    accounts: BusyAccounts,
    path: String,
}

/// The key of an account, as far as its claims know it.
pub(super) struct AccountKey {
    generation: u64,
    pub(super) access_key_id: Option<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) state: Texts,
}

fn lock(accounts: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    accounts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for AccountWork {
    fn drop(&mut self) {
        lock(&self.accounts.0).remove(&self.path);
    }
}

impl AccountKey {
    /// Without a key that is not the recorded one.
    fn checked(mut self) -> Self {
        let id = self.access_key_id.as_ref();
        self.credentials = self.credentials.filter(|found| id.is_none_or(|known| *known == found.access_key_id));
        self
    }
}

impl Actions {
    /// The right to work on the claim's account. A claim with an account of its own needs none.
    pub(super) fn enter_account(&self, facts: &Facts) -> Result<Option<AccountWork>, Outcome> {
        let Some((namespace, name)) = facts.account() else { return Ok(None) };
        let path = format!("{namespace}/{name}");
        if !lock(&self.accounts.0).insert(path.clone()) {
            return Err(Outcome::AwaitsAccount { after: BUSY });
        }
        let work = AccountWork { accounts: self.accounts.clone(), path };
        // The work on another claim may have changed what this one records.
        let is_known = |bucket: &Arc<BucketFacts>| {
            let live = self.cache().bucket(&bucket.name);
            live.is_some_and(|live| live.resource_version == bucket.resource_version)
        };
        if facts.bucket().is_none_or(is_known) { Ok(Some(work)) } else { Err(Outcome::Changed) }
    }

    /// The ObjectBuckets of the other claims that name the account of this one. One that cannot be read is among them.
    pub(super) async fn live_fellows(&self, facts: &Facts) -> Result<Vec<BucketFacts>, Outcome> {
        let Some((namespace, name)) = facts.account() else { return Ok(Vec::new()) };
        let mut found = self.with_account(&namespace, name).await?;
        found.retain(|other| facts.bucket().is_none_or(|own| own.uid != other.uid));
        Ok(found)
    }

    /// As [`live_fellows`](Self::live_fellows), without those of an earlier account of this name.
    pub(super) async fn fellows(
        &self,
        bucket: &BucketFacts,
        account: &SharedAccount,
    ) -> Result<Vec<BucketFacts>, Outcome> {
        let namespace = bucket.claim().map(|claim| claim.namespace).unwrap_or_default();
        let mut found = self.with_account(&namespace, &account.name).await?;
        found.retain(|other| {
            let has_another = |record: &Arc<Record>| record.account.as_ref().is_none_or(|of| of.uid != account.uid);
            other.uid != bucket.uid && !other.record().is_some_and(has_another)
        });
        Ok(found)
    }

    async fn with_account(&self, namespace: &str, account: &str) -> Result<Vec<BucketFacts>, Outcome> {
        let selector = format!("{ACCOUNT_LABEL}={}", account_label(namespace, account));
        let api: Api<WatchedBucket> = Api::all(self.context.client().clone());
        let found = self.context.request(api.list(&ListParams::default().labels(&selector))).await;
        let found =
            found.map_err(|error| Outcome::CallFailed { doing: "listing the claims with the account", error })?;
        let mut found: Vec<BucketFacts> = found.iter().filter_map(bucket_facts).collect();
        found.retain(|bucket| self.rules.is_of_this_installation(bucket));
        let mut cache = self.cache();
        found.iter().for_each(|bucket| cache.observe_bucket(bucket.clone()));
        Ok(found)
    }

    /// The key that the claim's account has. Where other claims share it, any that has the newest key will do: the Secret of another one
    /// may be gone.
    pub(super) async fn account_key(
        &self,
        facts: &Facts,
        record: &Record,
        fellows: &[BucketFacts],
    ) -> Result<AccountKey, Outcome> {
        let own = AccountKey {
            generation: 0,
            access_key_id: record.newest_key().map(str::to_owned),
            credentials: self.credentials(facts).await?,
            state: facts.bucket().map(|bucket| bucket.kept_state()).unwrap_or_default(),
        };
        let Some(account) = &record.account else { return Ok(own.checked()) };
        let of_fellow = |fellow: &BucketFacts| {
            let record = fellow.record().filter(|record| record.made)?.clone();
            let of = record.account.clone().filter(|of| of.uid == account.uid)?;
            Some((of, record, fellow.claim()?))
        };
        let fellows: Vec<_> = fellows.iter().filter_map(of_fellow).collect();
        let own_generation = record.made.then_some(account.generation);
        let newest = fellows.iter().max_by_key(|(of, ..)| of.generation);
        let mut key = match newest {
            Some((of, record, _)) if own_generation.is_none_or(|own| own < of.generation) => AccountKey {
                generation: of.generation,
                access_key_id: record.access_key_id.clone(),
                credentials: None,
                state: of.state.clone(),
            },
            _ => AccountKey { generation: account.generation, state: account.state.clone(), ..own }.checked(),
        };
        let generation = key.generation;
        for (_, record, claim) in fellows.iter().filter(|(of, ..)| of.generation == generation) {
            if key.credentials.is_none()
                && let Some(secret) = self.intact_secret_of(claim, record)
            {
                key.credentials = self.key_in(&claim.namespace, &secret, &claim.uid).await?;
                key = key.checked();
            }
        }
        Ok(key)
    }

    /// The record of a claim whose grant has succeeded.
    pub(super) fn with_account_of(&self, record: Record, key: &AccountKey, made: &Made) -> Record {
        let Some(account) = record.account.clone() else { return record };
        let id = made.credentials.as_ref().map(|credentials| credentials.access_key_id.clone());
        let generation = key.generation + u64::from(id != key.access_key_id);
        // Its pods may still have the former one.
        let is_other = record.made && record.new_key.is_none() && record.access_key_id != id;
        let retire_at = if is_other { self.retire_at(&record) } else { record.retire_at.clone() };
        let account = SharedAccount { generation, state: made.account_state.clone(), ..account };
        Record { account: Some(account), retire_at, ..record }
    }

    /// When this succeeds, no other claim is about to get another key. An author whose users have room for few keys might remove it.
    pub(super) async fn confirm_no_new_key(&self, fellows: &[BucketFacts]) -> Result<(), Outcome> {
        self.await_claims(fellows, |_, record| record.new_key.is_some()).await
    }

    /// When this succeeds, none of the claims that exist has to be waited for. The cache may be behind.
    async fn await_claims(
        &self,
        fellows: &[BucketFacts],
        waits_for: impl Fn(&BucketFacts, &Record) -> bool,
    ) -> Result<(), Outcome> {
        for fellow in fellows.iter().filter(|fellow| fellow.record().is_some_and(|record| waits_for(fellow, record))) {
            let has_claim = self.cache().has_claim(fellow);
            match fellow.claim().filter(|_| !has_claim) {
                Some(claim) if self.read_claim(&claim).await?.is_none() => {}
                _ => return Err(Outcome::AwaitsAccount { after: BEHIND }),
            }
        }
        Ok(())
    }

    /// When this succeeds, all claims with the account have its newest key, and none is about to get another one.
    pub(super) async fn confirm_newest(
        &self,
        account: &SharedAccount,
        record: &Record,
        fellows: &[BucketFacts],
    ) -> Result<(), Outcome> {
        let is_older = |of: &Record| of.account.as_ref().is_none_or(|of| of.generation != account.generation);
        let has_another =
            |fellow: &BucketFacts, of: &Record| of.new_key.is_some() || of.made && !fellow.deleting && is_older(of);
        self.await_claims(fellows, has_another).await?;
        let cache = self.cache();
        let has_newest = |fellow: &BucketFacts| {
            let Some((of, claim)) = fellow.record().zip(fellow.claim()) else { return false };
            let names = of.formerly_delivered.iter().cloned().chain([of.delivered_names(&claim.name)]);
            // A claim's Secret is written after its record.
            let mut keys = names.filter_map(|names| {
                let secret = cache.delivered(&claim.namespace, &names)[0]?;
                secret.access_key_id.clone().filter(|_| secret.owner.as_deref() == Some(&claim.uid))
            });
            keys.all(|key| record.access_key_id.as_deref() == Some(&key))
        };
        if fellows.iter().all(has_newest) { Ok(()) } else { Err(Outcome::AwaitsAccount { after: BEHIND }) }
    }

    /// The claim ends, and another one removes the keys that nobody has: those that it has replaced, and those of calls without an answer.
    pub(super) async fn hand_keys_over(&self, record: &Record, fellows: &[BucketFacts]) -> Result<(), Outcome> {
        if !self.rules.capabilities.rotation || record.keyless {
            return Ok(());
        }
        let generation =
            |record: &Arc<Record>| (record.made, record.account.as_ref().map(|account| account.generation));
        // The claim of an ObjectBucket that somebody has deleted may live on.
        let known = fellows.iter().filter_map(|fellow| Some((fellow, fellow.record()?)));
        let heir = known.max_by_key(|(fellow, record)| (!fellow.deleting, generation(record)));
        let Some((fellow, of_fellow)) = heir.filter(|(_, record)| record.retire_at.is_none()) else { return Ok(()) };
        let retire_at = record.retire_at.clone().unwrap_or_else(|| self.now().to_string());
        let of_fellow = Record { retire_at: Some(retire_at), ..(**of_fellow).clone() };
        self.write_bucket(fellow, &of_fellow, None).await.map(drop)
    }

    /// All buckets of an account, that of this claim first.
    pub(super) fn with_those_of(own: Vec<BucketAccess>, fellows: &[BucketFacts]) -> Vec<BucketAccess> {
        let mut buckets = own;
        for fellow in fellows.iter().filter(|fellow| !fellow.deleting) {
            let access = access_of(fellow);
            if let Some(access) = access.filter(|access| buckets.iter().all(|known| known.name != access.name)) {
                buckets.push(access);
            }
        }
        buckets
    }
}

/// The account that a new claim asks for: that of other claims, or one that it founds.
pub(super) fn account_of(claim: &ClaimFacts, fellows: &[BucketFacts]) -> Result<Option<SharedAccount>, Outcome> {
    let Some(name) = claim.account() else { return Ok(None) };
    let known = fellows.iter().filter_map(|fellow| fellow.record()?.account.as_ref());
    let newest = known.filter(|account| account.name == name).max_by_key(|account| account.generation);
    match (newest, fellows.iter().find(|fellow| fellow.record().is_none())) {
        (Some(newest), _) => Ok(Some(newest.clone())),
        (None, Some(unread)) => {
            let problem = AccountProblem::Unreadable { object: unread.name.to_string() };
            Err(Outcome::Refused(Refusal::Account { account: name.to_owned(), problem }))
        }
        (None, None) => Ok(Some(SharedAccount::founded(name, claim))),
    }
}

/// The bucket of another claim with the account, once the account may have been let into it.
fn access_of(fellow: &BucketFacts) -> Option<BucketAccess> {
    let record = fellow.record().filter(|record| record.made)?;
    let (owner, state) = match (&record.owner, record.source?) {
        (Some(owner), _) => (Some(Account::of(owner.clone())), BTreeMap::new()),
        (None, Source::Provisioned) => (Some(fellow.owner(fellow.claim()?)), fellow.kept_state()),
        (None, Source::Granted) => (None, BTreeMap::new()),
    };
    Some(BucketAccess { state, ..BucketAccess::new(&*fellow.endpoint.bucket, owner) })
}
