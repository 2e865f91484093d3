//! An in-memory store, and the provisioner for it. The test decides which calls fail.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube_provisioner::bucket::{
    Access, Authentication, Bucket, BucketCapabilities, BucketHooks, BucketLookup, BucketProvisioner,
    BucketStartContext, Credentials, Endpoint, GrantOf, Granted, GrantedAccount, ProvisionedBucket, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use serde::Deserialize;
use tokio::time::sleep;

#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    /// Buckets with their owners.
    pub(crate) buckets: BTreeMap<String, String>,
    /// Users with their keys.
    pub(crate) users: BTreeMap<String, Vec<Credentials>>,
    pub(crate) grants: BTreeSet<(String, String)>,
    /// Buckets with the users that may only read them.
    read_only: BTreeSet<(String, String)>,
    pub(crate) calls: Vec<String>,
    /// True if a key's secret is only in the answer that creates the key, as on AWS.
    pub(crate) shows_keys_once: bool,
    pub(crate) configs: BTreeMap<String, Option<u64>>,
    /// The host on which each bucket was created.
    hosts: BTreeMap<String, String>,
    /// The keys of `applied_config` in each call of `create_bucket`.
    pub(crate) applied: Vec<Vec<String>>,
    /// The keys of `config_texts` in each call of `delete_bucket`.
    pub(crate) deleted_with: Vec<Vec<String>>,
    /// The mistake in the author's code.
    fault: Option<Fault>,
    /// The buckets that a faulty author has seen to be absent, by user.
    expected: BTreeSet<(String, String)>,
    /// Users with their clusters.
    clusters: BTreeMap<String, String>,
    /// The cluster in each call of `start`.
    pub(crate) clusters_at_start: Vec<String>,
    /// The duration of all calls of a method.
    pub(crate) pauses: BTreeMap<&'static str, Duration>,
    /// The next failures of a method.
    pub(crate) failures: BTreeMap<&'static str, Vec<Failure>>,
    made: u64,
}

/// A mistake in the author's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NewKeyEachTime,
    NewSecretEachTime,
    IgnoresAccessModes,
    IgnoresAccessModesOfGuests,
    IgnoresLimits,
    KeepsUsers,
    TakesBucketsOver,
    DeletesByName,
    ChecksThenCreates,
    OwnsBucketsSeenAbsent,
    KnowsNoCluster,
    FailsOnMissingBucket,
    RevokesAll,
    GrantsByName,
    ForgetsABucket,
    LeavesRights,
    EndsWithARefusal,
    NewKeyForEachBucket,
    TakesOwnership,
    RevokesBuckets,
    DeletesAllAccounts,
    KeepsOwners,
    NeedsTheAccountToDelete,
    NeverRetires,
    RotatesKeysOfOthers,
    ListsAllKeys,
    ListsOneKey,
    ReadyWhenItWorks,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Retry,
    NothingLeft,
    /// Fails before any request to the store.
    NoChange,
    Invalid,
    Panic,
    /// Fails after all changes.
    Late,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Parameters {
    #[serde(default)]
    pub(crate) host: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) max_objects: Option<u64>,
    #[serde(default)]
    access_mode: Access,
    #[serde(default)]
    pub(crate) authentication: Authentication,
}

impl Store {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Creates a store whose author has made a mistake.
    pub(crate) fn with(fault: Option<Fault>) -> Self {
        let store = Self::default();
        store.state().fault = fault;
        store
    }

    /// Returns all assets, by name.
    pub(crate) fn assets(&self) -> Vec<String> {
        let state = self.state();
        let limit = |name| state.configs.get(name).copied().flatten().map(|most| format!(" for {most} objects"));
        let buckets = state
            .buckets
            .iter()
            .map(|(name, owner)| format!("bucket {name} of {owner}{}", limit(name).unwrap_or_default()));
        let users = state.users.iter().flat_map(|(user, keys)| {
            let keys = keys.iter().map(move |key| format!("key {} of {user}", key.access_key_id));
            keys.chain([format!("user {user}")])
        });
        let grants = state.grants.iter().map(|(bucket, user)| format!("{user} may use {bucket}"));
        let read_only = state.read_only.iter().map(|(bucket, user)| format!("{user} may only read {bucket}"));
        buckets.chain(users).chain(grants).chain(read_only).collect()
    }

    /// Returns whether a faulty author considers the bucket its own.
    async fn wrongly_owns(&self, name: &str, user: &str) -> bool {
        let fault = self.state().fault;
        if !matches!(fault, Some(Fault::ChecksThenCreates | Fault::OwnsBucketsSeenAbsent)) {
            return fault == Some(Fault::TakesBucketsOver);
        }
        let expected = (user.to_owned(), name.to_owned());
        let absent = !self.state().buckets.contains_key(name);
        if absent && fault == Some(Fault::OwnsBucketsSeenAbsent) {
            self.state().expected.insert(expected.clone());
        }
        sleep(Duration::from_millis(20)).await;
        absent || self.state().expected.contains(&expected)
    }

    fn has_fault(&self, fault: Fault) -> bool {
        self.state().fault == Some(fault)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.buckets.is_empty() && state.users.is_empty()
    }

    pub(crate) fn fail(&self, method: &'static str, failure: Failure) {
        self.state().failures.entry(method).or_default().push(failure);
    }

    pub(crate) fn calls(&self, method: &str) -> usize {
        self.state().calls.iter().filter(|call| call.starts_with(method)).count()
    }

    /// Records the call. Returns `Ok(true)` if the call has to fail at its end.
    async fn begin(&self, method: &'static str, name: &str) -> Result<bool, ProvisionError> {
        let (next, pause) = {
            let mut state = self.state();
            state.calls.push(format!("{method} {name}"));
            let next = state.failures.get_mut(method).filter(|left| !left.is_empty()).map(|left| left.remove(0));
            (next, state.pauses.get(method).copied())
        };
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        match next {
            None => Ok(false),
            Some(Failure::Late) => Ok(true),
            Some(Failure::Retry) => Err(ProvisionError::retry("the store does not answer")),
            Some(Failure::Invalid) => Err(ProvisionError::invalid("the store wants no such user")),
            Some(Failure::NoChange) => {
                Err(ProvisionError::before_changes(ProvisionError::retry("the store cannot be reached")))
            }
            Some(Failure::NothingLeft) => Err(ProvisionError::nothing_left("the store is full")),
            Some(Failure::Panic) => std::panic::resume_unwind(Box::new("the author's code panics")),
        }
    }
}

impl State {
    /// Returns whether the user belongs to another cluster.
    fn is_elsewhere(&self, user: &str, cluster: &str) -> bool {
        let known = self.clusters.get(user).filter(|_| self.users.contains_key(user));
        self.fault != Some(Fault::KnowsNoCluster) && known.is_some_and(|known| known != cluster)
    }

    fn key(&mut self, user: &str) -> Credentials {
        self.made += 1;
        let key = Credentials::new(format!("id-{}", self.made), format!("secret-{}", self.made));
        self.users.entry(user.to_owned()).or_default().push(key.clone());
        key
    }

    fn keys(&mut self, user: &str, request: &GrantOf<Store>) -> Credentials {
        let wanted = request.access_key_id.as_deref();
        let wants_more = request.buckets.len() > 1 && self.fault == Some(Fault::NewKeyForEachBucket);
        if self.fault == Some(Fault::NewKeyEachTime) || wants_more {
            return self.key(user);
        }
        if self.shows_keys_once {
            return self.key_shown_once(user, wanted, request.credentials.clone());
        }
        let known = self.users.get(user).and_then(|keys| match wanted {
            Some(id) => keys.iter().find(|key| key.access_key_id == id),
            None => keys.first(),
        });
        let known = known.cloned();
        match known {
            Some(key) if self.fault == Some(Fault::NewSecretEachTime) => {
                let keys = self.users.entry(user.to_owned()).or_default();
                keys.retain(|other| other.access_key_id != key.access_key_id);
                self.made += 1;
                keys.push(Credentials::new(key.access_key_id, format!("secret-{}", self.made)));
                keys.last().cloned().unwrap_or_else(|| self.key(user))
            }
            known => known.unwrap_or_else(|| self.key(user)),
        }
    }

    /// Returns the key in the Secret, or a new one. Keeps the other keys if one of them may be in use.
    fn key_shown_once(&mut self, user: &str, wanted: Option<&str>, in_secret: Option<Credentials>) -> Credentials {
        let keys = self.users.entry(user.to_owned()).or_default();
        if let Some(key) = in_secret.filter(|key| keys.contains(key)) {
            return key;
        }
        if wanted.is_none() {
            keys.clear();
        }
        self.key(user)
    }
}

fn endpoint() -> Endpoint {
    Endpoint::https("store.example.com")
}

fn late<T>(failed: bool, answer: T) -> Result<T, ProvisionError> {
    if failed { Err(ProvisionError::retry("the answer was lost")) } else { Ok(answer) }
}

impl BucketProvisioner for Store {
    type Parameters = Parameters;
    type Config = Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let failed = self.begin("create_bucket", &request.name).await?;
        let owner = request.owner.name;
        let wrongly_own = self.wrongly_owns(&request.name, &owner).await;
        let mut state = self.state();
        if state.is_elsewhere(&owner, &request.cluster_id) {
            return Err(ProvisionError::invalid("the user exists and is another cluster's"));
        }
        match state.buckets.get(&request.name) {
            Some(known) if *known != owner && !wrongly_own => {
                if state.fault == Some(Fault::DeletesByName) {
                    return Err(ProvisionError::retry("the name is taken"));
                }
                return Err(ProvisionError::invalid(format!("the bucket {} belongs to {known}", request.name)));
            }
            Some(_) if state.hosts.get(&request.name).is_some_and(|host| *host != request.parameters.host) => {
                return Err(ProvisionError::already_exists(format!("the bucket {} is on another host", request.name)));
            }
            _ => {}
        }
        state.buckets.insert(request.name.clone(), owner.clone());
        state.hosts.insert(request.name.clone(), request.parameters.host.clone());
        // The owner does not have a key yet.
        state.users.entry(owner.clone()).or_default();
        state.clusters.insert(owner, request.cluster_id);
        let limit = request.config.max_objects.filter(|_| state.fault != Some(Fault::IgnoresLimits));
        state.configs.insert(request.name, limit);
        state.applied.push(request.applied_config.keys().cloned().collect());
        late(failed, Bucket::new(endpoint()))
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let failed = self.begin("delete_bucket", &bucket.name).await;
        let failed = failed.map_err(|error| DeleteError::retry(error.to_string()))?;
        if self.has_fault(Fault::FailsOnMissingBucket) && !self.state().buckets.contains_key(&bucket.name) {
            return Err(DeleteError::retry("there is no such bucket"));
        }
        let (owner, mut state) = (bucket.owner.name, self.state());
        state.deleted_with.push(bucket.config_texts.into_keys().collect());
        if state.is_elsewhere(&owner, &bucket.cluster_id) {
            return Ok(());
        }
        if state.fault == Some(Fault::NeedsTheAccountToDelete) && !state.users.contains_key(&owner) {
            return Err(DeleteError::retry("the bucket's owner is gone"));
        }
        if state.fault == Some(Fault::DeletesByName) || state.buckets.get(&bucket.name) == Some(&owner) {
            state.buckets.remove(&bucket.name);
            state.grants.retain(|(of, _)| *of != bucket.name);
            state.read_only.retain(|(of, _)| *of != bucket.name);
        }
        match state.fault {
            Some(Fault::KeepsOwners | Fault::KeepsUsers) => {}
            Some(Fault::DeletesAllAccounts) => state.users.clear(),
            _ => drop(state.users.remove(&owner)),
        }
        if failed { Err(DeleteError::retry("the answer was lost")) } else { Ok(()) }
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let failed = self.begin("grant", &request.bucket().name).await?;
        let (user, mut state) = (request.account.name.clone(), self.state());
        if state.is_elsewhere(&user, &request.cluster_id) {
            return Err(ProvisionError::invalid("the user exists and is another cluster's"));
        }
        let most = if state.fault == Some(Fault::ForgetsABucket) { 1 } else { usize::MAX };
        for bucket in request.buckets.iter().take(most) {
            let Some(known) = state.buckets.get(&bucket.name).cloned() else {
                if state.fault == Some(Fault::EndsWithARefusal) {
                    state.users.remove(&user);
                }
                return Err(bucket.missing());
            };
            let owner = bucket.owner.as_ref();
            if owner.is_some_and(|owner| owner.name != known) && state.fault != Some(Fault::GrantsByName) {
                return Err(ProvisionError::invalid(bucket.wrong_owner_message()));
            }
            if state.fault == Some(Fault::TakesOwnership) {
                state.buckets.insert(bucket.name.clone(), user.clone());
            } else if known != user {
                state.grants.insert((bucket.name.clone(), user.clone()));
            }
            let ignores = match state.fault {
                Some(Fault::IgnoresAccessModes) => true,
                Some(Fault::IgnoresAccessModesOfGuests) => known != user,
                _ => false,
            };
            let access = (bucket.name.clone(), user.clone());
            match request.config.access_mode {
                Access::ReadOnly if !ignores => drop(state.read_only.insert(access)),
                _ => drop(state.read_only.remove(&access)),
            }
        }
        state.clusters.insert(user.clone(), request.cluster_id.clone());
        if request.config.authentication == Authentication::ServiceAccount {
            state.users.insert(user, Vec::new());
            return late(failed, Granted::without_key(endpoint()).config("ROLE", "photos"));
        }
        let key = state.keys(&user, &request);
        late(failed, Granted::new(endpoint(), key).state("user", user))
    }

    async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let begun = self.begin("revoke", &account.bucket().name).await;
        begun.map_err(|error| DeleteError::retry(error.to_string()))?;
        let (user, mut state) = (account.account.name, self.state());
        if state.is_elsewhere(&user, &account.cluster_id) {
            return Ok(());
        }
        for (number, bucket) in account.buckets.iter().enumerate() {
            match state.fault {
                Some(Fault::RevokesAll) => state.grants.clear(),
                Some(Fault::LeavesRights) if number > 0 => {}
                _ => drop(state.grants.remove(&(bucket.name.clone(), user.clone()))),
            }
            state.read_only.remove(&(bucket.name.clone(), user.clone()));
            if state.fault == Some(Fault::RevokesBuckets) {
                state.buckets.retain(|name, owner| *name != bucket.name || *owner != user);
            }
        }
        if state.fault != Some(Fault::KeepsUsers) {
            state.users.remove(&user);
        }
        Ok(())
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default()
            .rotation()
            .multiple_buckets()
            .bucket_settings(["maxObjects"])
            .optional_secret("admin")
    }
}

impl BucketHooks for Store {
    async fn find_bucket(&self, wanted: BucketLookup<Parameters>) -> Result<Option<Bucket>, ProvisionError> {
        let _ = self.begin("find_bucket", &wanted.name).await?;
        Ok(self.state().buckets.contains_key(&wanted.name).then(|| Bucket::new(endpoint())))
    }

    async fn rotate(&self, account: GrantedAccount<Parameters>) -> Result<Credentials, ProvisionError> {
        let failed = self.begin("rotate", &account.bucket().name).await?;
        let (user, mut state) = (account.account.name, self.state());
        if state.is_elsewhere(&user, &account.cluster_id) && state.fault != Some(Fault::RotatesKeysOfOthers) {
            return Err(ProvisionError::retry("the user is another cluster's"));
        }
        let current = account.access_key_id;
        state.users.entry(user.clone()).or_default().retain(|key| Some(&key.access_key_id) == current.as_ref());
        let key = state.key(&user);
        late(failed, key)
    }

    async fn revoke_old_keys(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let begun = self.begin("retire", &account.bucket().name).await;
        begun.map_err(|error| DeleteError::retry(error.to_string()))?;
        if self.has_fault(Fault::NeverRetires) {
            return Ok(());
        }
        let (user, mut state) = (account.account.name, self.state());
        if state.is_elsewhere(&user, &account.cluster_id) {
            return Ok(());
        }
        let current = account.access_key_id;
        state.users.entry(user).or_default().retain(|key| Some(&key.access_key_id) == current.as_ref());
        Ok(())
    }

    async fn list_keys(
        &self,
        account: GrantedAccount<Parameters>,
    ) -> Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        self.begin("list_keys", &account.bucket().name).await.map_err(|error| error.to_string())?;
        let state = self.state();
        let (user, fault) = (account.account.name, state.fault);
        let users = state.users.iter().filter(|(name, _)| **name == user || fault == Some(Fault::ListsAllKeys));
        let ids = users.flat_map(|(_, keys)| keys).map(|key| key.access_key_id.clone());
        Ok(Some(ids.take(if fault == Some(Fault::ListsOneKey) { 1 } else { usize::MAX }).collect()))
    }

    async fn start(&self, start: BucketStartContext) -> Result<(), StartError> {
        let mut state = self.state();
        if state.failures.contains_key("start") {
            return Err(StartError::new("the store does not start"));
        }
        state.clusters_at_start.push(start.cluster_id);
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        let state = self.state();
        if state.fault == Some(Fault::ReadyWhenItWorks) && state.users.is_empty() {
            Err(StartError::new("nothing is set up"))
        } else {
            Ok(())
        }
    }
}
