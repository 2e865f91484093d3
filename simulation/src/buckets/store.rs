//! The store that all replicas share, and the author's code that calls it step by step.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube_provisioner::bucket::{
    Account, Bucket, BucketCapabilities, BucketHooks, BucketProvisioner, ClaimName, Credentials, Endpoint, GrantOf,
    Granted, GrantedAccount, ProvisionedBucket, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use super::world::World;
use super::{record_of, text};
use crate::judge::Invariant;
use crate::plan::Edge;
use crate::process::{Process, ProcessEnvironment};

/// The bucket that classes grant access to.
pub(crate) const SHARED: &str = "shared";
/// A bucket whose name a claim wants, and that belongs to another owner.
pub(crate) const TAKEN: &str = "taken";
/// A bucket whose name several claims want.
pub(crate) const CONTESTED: &str = "contested";

/// The owner of a bucket. The store writes it atomically when it creates the bucket, and only if the name is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BucketOwner {
    /// An administrator, or a program other than ours.
    Foreign,
    Ours {
        /// The id of the cluster; "" if the bucket was created before ids were written.
        cluster: String,
        user: String,
    },
}

/// The content of the store.
#[derive(Debug)]
pub(crate) struct State {
    /// Buckets by name.
    pub(crate) buckets: BTreeMap<String, BucketOwner>,
    /// Users with the ids of their keys; the secret of a key follows from its id.
    pub(crate) users: BTreeMap<String, Vec<String>>,
    pub(crate) grants: BTreeSet<(String, String)>,
    /// The number of the key in the last answer to `rotate` for each user. Older keys must not come back.
    pub(crate) rotated: BTreeMap<String, u64>,
    /// The configuration applied to a bucket or a grant.
    pub(crate) configs: BTreeMap<String, u64>,
    keys: u64,
    /// By claim: the last call, and its caller.
    calls: BTreeMap<String, (u64, Arc<str>)>,
    numbers: u64,
}

impl Default for State {
    fn default() -> Self {
        let foreign = |name: &str| (name.to_owned(), BucketOwner::Foreign);
        Self {
            buckets: [foreign(SHARED), foreign(TAKEN)].into(),
            users: BTreeMap::new(),
            grants: BTreeSet::new(),
            rotated: BTreeMap::new(),
            configs: BTreeMap::new(),
            keys: 0,
            calls: BTreeMap::new(),
            numbers: 0,
        }
    }
}

impl State {
    pub(crate) fn new_key(&mut self, user: &str) -> String {
        self.keys += 1;
        let id = format!("id-{}", self.keys);
        self.users.entry(user.to_owned()).or_default().push(id.clone());
        id
    }
}

/// The number of a key in the order of the store. Keys of other provisioners come first.
pub(crate) fn number_of(id: &str) -> u64 {
    id.strip_prefix("id-").and_then(|number| number.parse().ok()).unwrap_or_default()
}

pub(crate) fn secret_of(id: &str) -> String {
    format!("secret-of-{id}")
}

/// The author's code in one process.
pub(crate) struct Author {
    process: Arc<Process<World>>,
    /// The number of the process's cluster.
    cluster: usize,
    world: Arc<World>,
}

#[derive(Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    limit: u64,
}

/// One call of the author's code. Every change of the store belongs to a call.
struct Call {
    claim: ClaimName,
    /// The id of the cluster, as passed by the controller.
    cluster: String,
    user: String,
    number: u64,
    random: fastrand::Rng,
    /// The step at which the call fails, and the way in which it fails.
    turn: Option<(u32, Turn)>,
    step: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Fail,
    Panic,
    Overrun,
}

impl Author {
    pub(crate) fn new(process: Arc<Process<World>>, cluster: usize, world: Arc<World>) -> Self {
        Self { process, cluster, world }
    }

    fn begin(&self, method: &str, account: &Account, cluster: &str) -> Call {
        let claim = &account.claim;
        let mut random = self.world.random();
        let turn = match random.u8(0..40) {
            _ if self.world.is_calm() => None,
            0..8 => Some(Turn::Fail),
            8 => Some(Turn::Panic),
            9 => Some(Turn::Overrun),
            _ => None,
        };
        let turn = turn.map(|turn| (random.u32(0..5), turn));
        let mut store = self.world.store();
        store.numbers += 1;
        let number = store.numbers;
        store.calls.insert(claim.uid.clone(), (number, self.process.name.as_str().into()));
        drop(store);
        self.world.note(|| format!("{}: {method} for {claim}", self.process.name));
        let home = self.world.ledger().cluster_of(&claim.uid);
        if home.is_some_and(|home| home != self.cluster) {
            let seen = format!("{} is asked to {method} for {claim}, which is another cluster's", self.process.name);
            self.world.report_violation(Invariant::Untouched, seen);
        }
        let (user, claim, cluster) = (account.name.clone(), claim.clone(), cluster.to_owned());
        Call { user, claim, cluster, number, random, turn, step: 0 }
    }

    /// Runs between two steps: the process may die, the call may fail, and time passes.
    async fn between(&self, call: &mut Call) -> Result<(), &'static str> {
        if call.random.bool() {
            sleep(Duration::from_millis(call.random.u64(1..400))).await;
        }
        self.process.pass(Edge::Step).await;
        let turn = call.turn.filter(|(step, _)| *step == call.step).map(|(_, turn)| turn);
        call.step += 1;
        match turn {
            None => Ok(()),
            Some(Turn::Fail) => Err("the store has a bad day"),
            Some(Turn::Panic) => std::panic::resume_unwind(Box::new("the author's code panics")),
            Some(Turn::Overrun) => std::future::pending().await,
        }
    }

    /// Changes the store. Reports a violation unless this is the latest call for its claim, and an ObjectBucket records
    /// everything that is created.
    fn change(&self, call: &Call, makes: bool, change: impl FnOnce(&mut State)) {
        let stale = {
            let store = self.world.store();
            let last = store.calls.get(&call.claim.uid);
            last.filter(|(number, _)| *number != call.number).map(|(_, by)| by.clone())
        };
        if let Some(by) = stale {
            let seen = format!("{} changes something for {} while {by} is at it", self.process.name, call.claim);
            self.world.report_violation(Invariant::Exclusive, seen);
        }
        if makes && !self.is_recorded(&call.claim) {
            let seen = format!("{} makes something for {}, and no ObjectBucket says so", self.process.name, call.claim);
            self.world.report_violation(Invariant::Covered, seen);
        }
        change(&mut self.world.store());
    }

    fn is_recorded(&self, claim: &ClaimName) -> bool {
        let Some(cluster) = self.world.cluster(self.cluster) else { return true };
        let objects = cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default();
        // A user may have removed the finalizer of the ObjectBucket and deleted it during the call.
        let forgotten = self.world.ledger().entry(&claim.uid).is_some_and(|entry| entry.forgotten);
        forgotten || objects.iter().any(|object| claims_of(object).contains(&claim.uid))
    }

    /// Returns true if a bucket belongs to this call's claim.
    fn owns(call: &Call, mark: &BucketOwner) -> bool {
        is_made_for(mark, &call.user, &call.cluster)
    }

    fn bucket_of_another(&self, call: &Call, name: &str) -> bool {
        self.world.store().buckets.get(name).is_some_and(|mark| !Self::owns(call, mark))
    }

    async fn keys(&self, call: &mut Call, wanted: Option<&str>) -> Result<Credentials, &'static str> {
        let known = {
            let store = self.world.store();
            let keys = store.users.get(&call.user);
            keys.and_then(|keys| match wanted {
                Some(id) => keys.iter().find(|key| *key == id).cloned(),
                None => keys.first().cloned(),
            })
        };
        let id = match known {
            Some(id) => id,
            None => {
                let mut made = String::new();
                let user = call.user.clone();
                self.change(call, true, |store| made = store.new_key(&user));
                self.between(call).await?;
                made
            }
        };
        let secret = secret_of(&id);
        Ok(Credentials::new(id, secret))
    }

    async fn end_attempt(&self, call: &mut Call) -> Result<(), &'static str> {
        if self.world.store().users.contains_key(&call.user) {
            let user = call.user.clone();
            self.change(call, false, |store| {
                let _ = store.users.remove(&user);
                store.grants.retain(|(_, granted)| *granted != user);
            });
            self.between(call).await?;
        }
        Ok(())
    }

    async fn remove_user(&self, call: &mut Call) -> Result<(), &'static str> {
        if self.world.store().users.contains_key(&call.user) {
            self.check_removal(call, "the user");
            let user = call.user.clone();
            self.change(call, false, |store| {
                let _ = store.users.remove(&user);
            });
            self.between(call).await?;
        }
        Ok(())
    }
}

fn is_made_for(mark: &BucketOwner, by: &str, id: &str) -> bool {
    matches!(mark, BucketOwner::Ours { cluster, user } if ["", id].contains(&&**cluster) && user == by)
}

/// The uid of a user's claim.
pub(crate) fn uid_of(user: &str) -> &str {
    user.len().checked_sub(36).and_then(|start| user.get(start..)).unwrap_or_default()
}

/// All uids with which an ObjectBucket names its claim.
fn claims_of(object: &Value) -> [String; 3] {
    let record = record_of(object);
    [text(object, "/spec/claimRef/uid"), text(&record, "/claim/uid"), text(&record, "/madeForUid")].map(str::to_owned)
}

fn endpoint() -> Endpoint {
    Endpoint::http("store.example.com")
}

fn foreign_bucket(bucket: &str) -> ProvisionError {
    ProvisionError::invalid(format!("the bucket {bucket} belongs to another owner"))
}

impl BucketProvisioner for Author {
    type Parameters = ();
    type Config = Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let mut call = self.begin("create_bucket", &request.owner, &request.cluster_id);
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        let (name, user) = (request.name.clone(), call.user.clone());
        if !self.world.store().buckets.contains_key(&name) {
            let mark = BucketOwner::Ours { cluster: call.cluster.clone(), user };
            self.change(&call, true, |store| {
                let _ = store.buckets.insert(name, mark);
            });
            self.between(&mut call).await.map_err(ProvisionError::retry)?;
        }
        // Another call may have been faster.
        if self.bucket_of_another(&call, &request.name) {
            return Err(foreign_bucket(&request.name));
        }
        let (name, limit) = (request.name.clone(), request.config.limit);
        self.change(&call, false, |store| {
            let _ = store.configs.insert(name, limit);
        });
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        Ok(Bucket::new(endpoint()).state("kind", "simulated"))
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        let mut call = self.begin("delete_bucket", &bucket.owner, &bucket.cluster_id);
        self.between(&mut call).await.map_err(DeleteError::retry)?;
        let mark = self.world.store().buckets.get(&bucket.name).cloned();
        if mark.is_some_and(|mark| Self::owns(&call, &mark)) {
            self.check_removal(&call, "the bucket");
            self.check_unused(&call, &bucket.name);
            let name = bucket.name.clone();
            self.change(&call, false, |store| {
                let _ = store.buckets.remove(&name);
            });
            self.between(&mut call).await.map_err(DeleteError::retry)?;
        }
        Ok(())
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let mut call = self.begin("grant", &request.account, &request.cluster_id);
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        let bucket = request.bucket();
        if let Some(owner) = &bucket.owner {
            let Some(mark) = self.world.store().buckets.get(&bucket.name).cloned() else {
                return Err(bucket.missing());
            };
            if !is_made_for(&mark, &owner.name, &call.cluster) {
                // The user of an earlier step would remain, unless a call has succeeded before.
                if request.state.is_empty() {
                    self.end_attempt(&mut call).await.map_err(ProvisionError::retry)?;
                }
                return Err(foreign_bucket(&bucket.name));
            }
        }
        let key = self.keys(&mut call, request.access_key_id.as_deref()).await.map_err(ProvisionError::retry)?;
        if !bucket.belongs_to(&request.account) {
            let grant = (bucket.name.clone(), call.user.clone());
            self.change(&call, true, |store| {
                let _ = store.grants.insert(grant);
            });
            self.between(&mut call).await.map_err(ProvisionError::retry)?;
            let (user, limit) = (call.user.clone(), request.config.limit);
            self.change(&call, false, |store| {
                let _ = store.configs.insert(user, limit);
            });
        }
        Ok(Granted::new(endpoint(), key).state("kind", "simulated"))
    }

    async fn revoke(&self, account: GrantedAccount<()>) -> Result<(), DeleteError> {
        let mut call = self.begin("revoke", &account.account, &account.cluster_id);
        self.between(&mut call).await.map_err(DeleteError::retry)?;
        let grant = (account.bucket().name.clone(), call.user.clone());
        if self.world.store().grants.contains(&grant) {
            self.check_removal(&call, "the grant");
            self.change(&call, false, |store| {
                let _ = store.grants.remove(&grant);
            });
            self.between(&mut call).await.map_err(DeleteError::retry)?;
        }
        self.remove_user(&mut call).await.map_err(DeleteError::retry)
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default().rotation()
    }
}

impl BucketHooks for Author {
    async fn rotate(&self, account: GrantedAccount<()>) -> Result<Credentials, ProvisionError> {
        let mut call = self.begin("rotate", &account.account, &account.cluster_id);
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        let (user, current) = (call.user.clone(), account.access_key_id);
        self.check_keys(&call, current.as_deref());
        self.change(&call, false, |store| {
            store.users.entry(user).or_default().retain(|key| Some(key) == current.as_ref());
        });
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        let (user, mut id) = (call.user.clone(), String::new());
        self.change(&call, true, |store| id = store.new_key(&user));
        self.between(&mut call).await.map_err(ProvisionError::retry)?;
        self.world.store().rotated.insert(call.user.clone(), number_of(&id));
        let secret = secret_of(&id);
        Ok(Credentials::new(id, secret))
    }

    async fn revoke_old_keys(&self, account: GrantedAccount<()>) -> Result<(), DeleteError> {
        let mut call = self.begin("retire", &account.account, &account.cluster_id);
        self.between(&mut call).await.map_err(DeleteError::retry)?;
        let (user, current) = (call.user.clone(), account.access_key_id);
        self.check_keys(&call, current.as_deref());
        self.change(&call, false, |store| {
            if let Some(keys) = store.users.get_mut(&user) {
                keys.retain(|key| Some(key) == current.as_ref());
            }
        });
        self.between(&mut call).await.map_err(DeleteError::retry)
    }
}
