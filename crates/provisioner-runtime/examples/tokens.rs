//! A complete controller: it issues a registry token for each ConfigMap with the annotation `example.com/token`, and
//! writes it into the ConfigMap's data. A token that no ConfigMap has received is revoked, even after a crash.
//!
//! `tests/it/tokens.rs` runs several replicas with random faults.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use provisioner_runtime::controller::{
    Cache, Call, CallPermit, Context, ControlLoop, JournalRecord, JournalSpec, LoopError, LoopOptions, Reconciler,
    Report, Safeguards, Sharing, Step, WatchSpec,
};
use provisioner_runtime::events::{Event, EventKind, ObjectRef};
use provisioner_runtime::journal::JournalKind;
use provisioner_runtime::lease::LeaseOptions;
use provisioner_runtime::{Backoff, CallError, Change, Entry, Environment, Flow, Next, Table, Work, stable_hash};
use serde_json::json;

/// The backend: tokens by key. It issues the same token for each request with the same key.
pub(crate) type Registry = Arc<Mutex<BTreeMap<String, String>>>;

/// The cache. A key is `namespace/name/uid`.
#[derive(Default)]
pub(crate) struct Tokens {
    /// ConfigMaps with the annotation; true if they have a token.
    maps: Table<String, bool>,
    /// Keys whose token may exist in the registry but not in the ConfigMap.
    begun: BTreeSet<String>,
}

/// The facts about one key: whether its ConfigMap has a token, and whether a token may exist only in the registry.
#[derive(Hash)]
pub(crate) struct Facts {
    has_token: Option<bool>,
    begun: bool,
}

impl Cache for Tokens {
    type Key = String;
    type Facts = Facts;

    fn facts(&self, key: &String) -> Facts {
        Facts { has_token: self.maps.get(key).copied(), begun: self.begun.contains(key) }
    }
    fn inputs(&self, key: &String) -> u64 {
        BuildHasherDefault::<DefaultHasher>::new().hash_one(self.facts(key))
    }
    fn unsettled(&self, among: &dyn Fn(&String) -> bool) -> Vec<String> {
        let wanting = self.maps.iter().filter(|(_, has_token)| !**has_token).map(|(key, _)| key);
        let keys: BTreeSet<&String> = wanting.chain(&self.begun).filter(|key| among(key)).collect();
        keys.into_iter().cloned().collect()
    }
    fn unfinished(&self, key: &String) -> bool {
        self.begun.contains(key)
    }
    fn forget(&mut self, keys: &dyn Fn(&String) -> bool) {
        self.begun.retain(|key| !keys(key));
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
        let key = |map: &ConfigMap| Some(format!("{}/{}/{}", map.namespace()?, map.name_any(), map.uid()?));
        let read = move |change: Change<ConfigMap>| change.map(|map| (key(&map).unwrap_or_default(), has_token(&map)));
        let maps = Api::all(self.context.client().clone());
        vec![WatchSpec::new("configmaps", maps, read, |cache: &mut Tokens, change| cache.maps.apply(change))]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        match facts {
            Facts { has_token: Some(false), .. } => Decision::Issue,
            Facts { begun: true, .. } => Decision::Revoke,
            _ => Decision::Nothing,
        }
    }

    async fn act(&self, decision: Decision, _: &Facts, step: &Step<'_, Tokens>) -> Outcome {
        let (key, [namespace, name, uid]) = (step.key(), parts(step.key()));
        let maps = Api::<ConfigMap>::namespaced(self.context.client().clone(), namespace);
        let (limit, (token, _guard)) = (Duration::from_secs(10), step.token());
        let done = match decision {
            Decision::Nothing => return Ok(None),
            Decision::Issue => {
                let record = JournalRecord::New(Entry { key: key.clone(), text: "{}".to_owned(), shared: Vec::new() });
                let flow = Flow::creating("tokens").of_tenant(namespace);
                let call = Call { permit: CallPermit::Of(&flow), limit, token: &token, record };
                let begin = |cache: &mut Tokens| {
                    let wanted = cache.maps.get(key) == Some(&false);
                    cache.begun.extend(wanted.then(|| key.clone()));
                    wanted
                };
                let issue = async || {
                    let token = format!("token-{:016x}", stable_hash(key));
                    self.registry.lock().unwrap().entry(key.clone()).or_insert(token).clone()
                };
                let issued = step.call(call, begin, issue).await.map_err(|refused| format!("{refused:?}"))?;
                let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "data": {"token": issued}}));
                self.context.request(maps.patch(name, &PatchParams::default(), &patch)).await?;
                Some("a token was issued")
            }
            Decision::Revoke => {
                // The watch may be behind, so the API server has to confirm that no ConfigMap has the token.
                let live = match self.context.request(maps.get(name)).await {
                    Ok(map) => Some(map).filter(|map| map.uid().as_deref() == Some(uid)),
                    Err(CallError::NotFound) => None,
                    Err(error) => return Err(error.into()),
                };
                if live.as_ref().and_then(has_token) == Some(false) {
                    return Err("the watch does not show the ConfigMap yet".into());
                }
                // A ConfigMap that no longer asks for a token keeps the one that it has received.
                if !live.as_ref().is_some_and(contains_token) {
                    let flow = Flow::removing("tokens").of_tenant(namespace);
                    let record = JournalRecord::Exists;
                    let call = Call { permit: CallPermit::Of(&flow), limit, token: &token, record };
                    let revoke = async || drop(self.registry.lock().unwrap().remove(key));
                    step.call(call, |_| true, revoke).await.map_err(|refused| format!("{refused:?}"))?;
                }
                None
            }
        };
        self.context.cache().begun.remove(key);
        Ok(done)
    }

    fn report(&self, outcome: Outcome, _: &Facts, work: &Work<String>, _: Duration) -> Report<()> {
        let [namespace, name, uid] = parts(work.key()).map(Arc::<str>::from);
        let object = ObjectRef { api_version: "v1", kind: "ConfigMap", namespace: Some(namespace), name, uid };
        let event = |kind, reason, note| Event { object, kind, reason, action: "Issue", note, same_from_all: false };
        let (next, event) = match outcome {
            Ok(note) => (Next::Done, note.map(|note| event(EventKind::Normal, "TokenIssued", note.to_owned()))),
            Err(error) => (Next::Retry, Some(event(EventKind::Warning, "TokenFailed", error.to_string()))),
        };
        Report { next, event, status: None }
    }

    fn journal(&self) -> JournalSpec<Tokens> {
        let adopt = |cache: &mut Tokens, key: &String, ()| {
            cache.begun.insert(key.clone());
            true
        };
        JournalSpec::new(|_| Ok(()), adopt)
    }
}

/// Returns whether a ConfigMap has its token; `None` if it does not ask for one.
fn has_token(map: &ConfigMap) -> Option<bool> {
    map.annotations().contains_key("example.com/token").then(|| contains_token(map))
}

fn contains_token(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key("token"))
}

fn parts(key: &str) -> [&str; 3] {
    let mut parts = key.split('/');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Returns a name that no other process has: in containers, all processes have the same id.
pub(crate) fn instance(environment: &Environment) -> String {
    format!("tokens_{:016x}", environment.number("instance"))
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
        backoff: Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)),
        environment,
        safeguards,
        ..LoopOptions::new("example.com/tokens", "tokens", instance)
    };
    ControlLoop::new(client, options, Tokens::default(), |context| TokenReconciler { context, registry })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = provisioner_runtime::connect(None).await?.client;
    let stop = provisioner_runtime::shutdown::on_signal()?;
    let environment = Environment::default();
    let instance = instance(&environment);
    let replica = replica(client, &instance, environment, Registry::default(), Safeguards::default())?;
    Ok(replica.run(stop).await?)
}
