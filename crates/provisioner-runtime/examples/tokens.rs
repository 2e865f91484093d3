//! A complete controller: it issues a registry token for each ConfigMap with the annotation `example.com/token`, and
//! writes it into the ConfigMap's data. A token that no ConfigMap has received is revoked, even after a crash.
//!
//! `tests/it/tokens.rs` runs several replicas with random faults.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use provisioner_runtime::controller::{
    Call, CallPermit, Context, ControlLoop, JournalRecord, JournalSpec, LoopError, LoopOptions, Reconciler, Refused,
    Report, Safeguards, Sharing, Step, WatchSpec,
};
use provisioner_runtime::events::{Event, EventKind, ObjectRef};
use provisioner_runtime::journal::JournalKind;
use provisioner_runtime::lease::LeaseOptions;
use provisioner_runtime::{
    Backoff, Cache, CallError, Change, Entry, Environment, Flow, Journaled, Limits, Next, Table, WatchHealth, Work,
    stable_hash,
};
use serde_json::json;

/// The backend: tokens by key. It issues the same token for each request with the same key.
pub(crate) type Registry = Arc<Mutex<BTreeMap<String, String>>>;

/// The cache. A key is `namespace/name/uid`.
#[derive(Default)]
pub(crate) struct Tokens {
    /// ConfigMaps with the annotation; true if they have no token yet.
    maps: Table<String, bool>,
    /// Keys whose token may exist in the registry but not in the ConfigMap.
    begun: BTreeSet<String>,
    /// Keys with an entry in the journal of a replica that no longer runs.
    awaiting: BTreeSet<String>,
}

/// The facts about one key.
#[derive(Hash)]
pub(crate) struct Facts {
    wants: Option<bool>,
    begun: bool,
    awaiting: bool,
}

impl Cache for Tokens {
    type Key = String;
    type Facts = Facts;

    fn facts(&self, key: &String) -> Facts {
        let wants = self.maps.get(key).copied();
        Facts { wants, begun: self.begun.contains(key), awaiting: self.awaiting.contains(key) }
    }
    fn inputs(&self, key: &String) -> u64 {
        BuildHasherDefault::<DefaultHasher>::new().hash_one(self.facts(key))
    }
    fn unsettled(&self, among: &dyn Fn(&String) -> bool) -> Vec<String> {
        let wanting = self.maps.iter().filter(|(_, wants)| **wants).map(|(key, _)| key);
        let keys: BTreeSet<&String> = wanting.chain(&self.begun).filter(|key| among(key)).collect();
        keys.into_iter().cloned().collect()
    }
}

impl Journaled for Tokens {
    type Attempt = ();

    fn unfinished(&self, key: &String) -> bool {
        self.begun.contains(key) || self.awaiting.contains(key)
    }
    fn adopt(&mut self, key: &String, (): ()) -> bool {
        self.adopted(key);
        self.begun.insert(key.clone());
        true
    }
    fn await_adoption(&mut self, keys: &[String]) {
        self.awaiting.extend(keys.iter().cloned());
    }
    fn adopted(&mut self, key: &String) {
        self.awaiting.remove(key);
    }
    fn drop_attempt(&mut self, key: &String) {
        self.begun.remove(key);
    }
    fn forget(&mut self, keys: &dyn Fn(&String) -> bool) {
        self.begun.retain(|key| !keys(key));
        self.awaiting.retain(|key| !keys(key));
    }
}

impl Tokens {
    fn apply(&mut self, change: Change<ConfigMap>) -> Vec<String> {
        let key = |map: &ConfigMap| {
            let (namespace, uid) = (map.namespace().unwrap_or_default(), map.uid().unwrap_or_default());
            format!("{namespace}/{}/{uid}", map.name_any())
        };
        match change {
            Change::Begin => self.maps.begin_snapshot(),
            Change::Listed(map) | Change::Applied(map) if map.annotations().contains_key("example.com/token") => {
                let has_token = map.data.as_ref().is_some_and(|data| data.contains_key("token"));
                self.maps.insert(key(&map), !has_token);
                return vec![key(&map)];
            }
            Change::Deleted(map) => return self.maps.remove(&key(&map)).map(|_| key(&map)).into_iter().collect(),
            Change::Ready => return self.maps.end_snapshot().into_iter().map(|(key, _)| key).collect(),
            _ => {}
        }
        Vec::new()
    }
}

/// The next action for a key.
#[derive(Debug)]
pub(crate) enum Decision {
    Issue,
    Revoke,
    Nothing,
}

/// The result of an action, with the note of its event.
pub(crate) type Outcome = Result<Option<&'static str>, Box<dyn std::error::Error + Send + Sync>>;

/// The controller.
pub(crate) struct TokenReconciler {
    context: Context<Tokens>,
    registry: Registry,
}

impl Reconciler for TokenReconciler {
    type Cache = Tokens;
    type Decision = Decision;
    type Outcome = Outcome;
    type Status = ();

    fn watches(&self) -> Vec<WatchSpec<Tokens>> {
        let api = Api::<ConfigMap>::all(self.context.client().clone());
        vec![WatchSpec::new("configmaps", api, std::convert::identity, Tokens::apply)]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        match facts {
            Facts { awaiting: true, .. } => Decision::Nothing,
            Facts { wants: Some(true), .. } => Decision::Issue,
            Facts { begun: true, .. } => Decision::Revoke,
            _ => Decision::Nothing,
        }
    }

    async fn act(&self, decision: Decision, _: &Facts, step: &Step<'_, Tokens>) -> Outcome {
        match decision {
            Decision::Nothing => Ok(None),
            Decision::Issue => self.issue(step).await,
            Decision::Revoke => self.revoke(step).await,
        }
    }

    fn report(&self, outcome: Outcome, _: &Facts, work: &Work<String>, _: Duration) -> Report<()> {
        let (namespace, name, uid) = parts(work.key());
        let object = ObjectRef {
            api_version: "v1",
            kind: "ConfigMap",
            namespace: Some(namespace.into()),
            name: name.into(),
            uid: uid.into(),
        };
        let message =
            |kind, reason, note| Some(Event { object, kind, reason, action: "Issue", note, same_from_all: false });
        match outcome {
            Ok(done) => {
                let event = done.and_then(|note| message(EventKind::Normal, "TokenIssued", note.to_owned()));
                Report { next: Next::Done, event, status: None }
            }
            Err(error) => {
                let event = message(EventKind::Warning, "TokenFailed", error.to_string());
                Report { next: Next::Retry, event, status: None }
            }
        }
    }

    fn journal(&self) -> JournalSpec<Tokens> {
        JournalSpec::new(|_| Ok(()))
    }
}

impl TokenReconciler {
    async fn issue(&self, step: &Step<'_, Tokens>) -> Outcome {
        let key = step.key();
        let (namespace, name, uid) = parts(key);
        let (token, _guard) = step.token();
        let record = JournalRecord::New(Entry { key: key.clone(), text: "{}".to_owned(), shared: Vec::new() });
        let limit = Duration::from_secs(10);
        let flow = Flow::creating("tokens").of_tenant(namespace);
        let call = Call { permit: CallPermit::Of(&flow), limit, token: &token, record };
        let wanted = |cache: &mut Tokens| {
            cache.facts(key).wants == Some(true) && {
                cache.begun.insert(key.clone());
                true
            }
        };
        let issued = match step.call(call, wanted, || std::future::ready(issue(&self.registry, key))).await {
            Ok(issued) => issued,
            Err(Refused::Unwanted) => return Ok(None),
            Err(refused) => return Err(format!("{refused:?}").into()),
        };
        let maps: Api<ConfigMap> = Api::namespaced(self.context.client().clone(), namespace);
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "data": {"token": issued}}));
        self.context.request(maps.patch(name, &PatchParams::default(), &patch)).await?;
        let mut cache = self.context.cache();
        cache.begun.remove(key);
        Ok(Some("a token was issued"))
    }

    /// Revokes a token that the ConfigMap has not received. Reads the ConfigMap from the API server, because the watch
    /// may be behind.
    async fn revoke(&self, step: &Step<'_, Tokens>) -> Outcome {
        let key = step.key();
        let (namespace, name, uid) = parts(key);
        let maps: Api<ConfigMap> = Api::namespaced(self.context.client().clone(), namespace);
        match self.context.request(maps.get(name)).await {
            Ok(map) if map.uid().as_deref() == Some(uid) => {
                let has_token = map.data.is_some_and(|data| data.contains_key("token"));
                if !has_token {
                    return Err("the watch does not show the ConfigMap yet".into());
                }
            }
            Ok(_) | Err(CallError::NotFound) => {
                let (token, _guard) = step.token();
                let limit = Duration::from_secs(10);
                let flow = Flow::removing("tokens").of_tenant(namespace);
                let call = Call { permit: CallPermit::Of(&flow), limit, token: &token, record: JournalRecord::Exists };
                let revoke = async || drop(lock(&self.registry).remove(key));
                step.call(call, |_| true, revoke).await.map_err(|refused| format!("{refused:?}"))?;
            }
            Err(error) => return Err(error.into()),
        }
        self.context.cache().begun.remove(key);
        Ok(None)
    }
}

fn issue(registry: &Registry, key: &str) -> String {
    let mut registry = lock(registry);
    let token = format!("token-{:016x}", stable_hash(key));
    registry.entry(key.to_owned()).or_insert(token).clone()
}

fn lock(registry: &Registry) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parts(key: &str) -> (&str, &str, &str) {
    let (namespace, rest) = key.split_once('/').unwrap_or_default();
    let (name, uid) = rest.split_once('/').unwrap_or_default();
    (namespace, name, uid)
}

/// One replica of a controller with two shards.
pub(crate) fn replica(
    client: Client,
    instance: &str,
    environment: Environment,
    registry: Registry,
    safeguards: Safeguards,
) -> Result<ControlLoop<TokenReconciler>, LoopError> {
    let leases = LeaseOptions { shards: 2, environment, ..LeaseOptions::new("tokens", "example.com-tokens", instance) };
    let options = LoopOptions {
        journal: JournalKind::ConfigMap,
        cluster_id: "this".to_owned(),
        sharing: Sharing::Leases(leases),
        calls: Limits { total: 8, per_group: 0, one_each: true },
        backoff: Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)),
        grace: Duration::from_secs(5),
        environment,
        safeguards,
        ..LoopOptions::new("example.com/tokens", "tokens", instance)
    };
    ControlLoop::new(client, options, Tokens::default(), |context| TokenReconciler { context, registry })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connection = provisioner_runtime::connect(None).await?;
    let stop = provisioner_runtime::shutdown::on_signal()?;
    let instance = format!("tokens_{}", std::process::id());
    let (environment, safeguards) = (Environment::default(), Safeguards::default());
    let replica = replica(connection.client, &instance, environment, Registry::default(), safeguards)?;
    Ok(replica.run(stop).await?)
}
