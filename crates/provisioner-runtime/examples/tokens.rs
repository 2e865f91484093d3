//! A complete controller: it issues a registry token for each ConfigMap with the annotation `example.com/token`, and
//! writes it into the ConfigMap's data. A token that no ConfigMap has received is revoked, even after a crash.
//!
//! `tests/it/tokens.rs` runs several replicas with random faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use provisioner_runtime::prelude::*;
use serde_json::json;

/// The backend: tokens by key. It issues the same token for each request with the same key.
pub(crate) type Registry = Arc<Mutex<BTreeMap<String, String>>>;

/// The known state of the cluster, and the attempts that were begun.
#[derive(Default)]
pub(crate) struct Tokens {
    /// ConfigMaps with the annotation; true if they have a token.
    maps: Table<ObjectKey, bool>,
    /// ConfigMaps whose token may exist in the registry only.
    begun: BTreeSet<ObjectKey>,
}

/// The facts about one ConfigMap: whether it has a token, unless it asks for none, and whether a token may exist in the
/// registry only.
type Facts = (Option<bool>, bool);

impl Cache for Tokens {
    type Key = ObjectKey;
    type Facts = Facts;

    fn facts(&self, key: &ObjectKey) -> Facts {
        (self.maps.get(key).copied(), self.begun.contains(key))
    }
    fn inputs(&self, key: &ObjectKey) -> u64 {
        fingerprint(&self.facts(key))
    }
    fn unsettled(&self, among: &dyn Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let wanting = self.maps.iter().filter(|(_, has_token)| !**has_token).map(|(key, _)| key);
        let keys: BTreeSet<&ObjectKey> = wanting.chain(&self.begun).filter(|key| among(key)).collect();
        keys.into_iter().cloned().collect()
    }
    fn unfinished(&self, key: &ObjectKey) -> bool {
        self.begun.contains(key)
    }
    fn forget(&mut self, keys: &dyn Fn(&ObjectKey) -> bool) {
        self.begun.retain(|key| !keys(key));
    }
}

/// The next action for a ConfigMap.
#[derive(Debug)]
pub(crate) enum Decision {
    Issue,
    Revoke,
    Nothing,
}

/// The result of an action, with the note of its event.
type Outcome = Result<Option<&'static str>, Box<dyn std::error::Error + Send + Sync>>;

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
        let read = |change: Change<ConfigMap>| change.map(|map| (ObjectKey::of_object(&map), has_token(&map)));
        let maps = Api::all(self.context.client().clone());
        vec![WatchSpec::new("configmaps", maps, read, |cache: &mut Tokens, change| cache.maps.apply(change))]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        match facts {
            (Some(false), _) => Decision::Issue,
            (_, true) => Decision::Revoke,
            _ => Decision::Nothing,
        }
    }

    async fn act(&self, decision: Decision, _: &Facts, step: &Step<'_, Tokens>) -> Outcome {
        let (key, limit, (token, _guard)) = (step.key(), Duration::from_secs(10), step.token());
        let maps = Api::<ConfigMap>::namespaced(self.context.client().clone(), key.namespace());
        let done = match decision {
            Decision::Nothing => return Ok(None),
            Decision::Issue => {
                let record =
                    JournalRecord::New(Entry { key: key.to_string(), text: "{}".to_owned(), shared: Vec::new() });
                let flow = Flow::creating("tokens").of_tenant(key.namespace());
                let call = Call { permit: CallPermit::Of(&flow), limit, token: &token, record };
                let begin = |cache: &mut Tokens| {
                    let wanted = cache.maps.get(key) == Some(&false);
                    cache.begun.extend(wanted.then(|| key.clone()));
                    wanted
                };
                let issued = step.call(call, begin, async || self.issue(key)).await?;
                let patch = Patch::Merge(json!({"metadata": {"uid": key.uid()}, "data": {"token": issued}}));
                self.context.request(maps.patch(key.name(), &PatchParams::default(), &patch)).await?;
                Some("a token was issued")
            }
            Decision::Revoke => {
                // The watch may be behind, so the API server has to confirm that no ConfigMap has the token.
                let live = match self.context.request(maps.get(key.name())).await {
                    Ok(map) => Some(map).filter(|map| ObjectKey::of_object(map) == *key),
                    Err(CallError::NotFound) => None,
                    Err(error) => return Err(error.into()),
                };
                if live.as_ref().and_then(has_token) == Some(false) {
                    return Err("the watch does not show the ConfigMap yet".into());
                }
                // A ConfigMap that no longer asks for a token keeps the one that it has received.
                if !live.as_ref().is_some_and(contains_token) {
                    let flow = Flow::removing("tokens").of_tenant(key.namespace());
                    let permit = CallPermit::Of(&flow);
                    let call = Call { permit, limit, token: &token, record: JournalRecord::Exists };
                    step.call(call, |_| true, async || self.revoke(key)).await?;
                }
                None
            }
        };
        self.context.cache().begun.remove(key);
        Ok(done)
    }

    fn report(&self, outcome: Outcome, _: &Facts, work: &Work<ObjectKey>, _: Duration) -> Report<()> {
        let object = work.key().object::<ConfigMap>();
        let event = |kind, reason, note| Event { object, kind, reason, action: "Issue", note, same_from_all: false };
        let (next, event) = match outcome {
            Ok(note) => (Next::Done, note.map(|note| event(EventKind::Normal, "TokenIssued", note.to_owned()))),
            Err(error) => (Next::Retry, Some(event(EventKind::Warning, "TokenFailed", error.to_string()))),
        };
        Report { next, event, status: None }
    }

    fn journal(&self) -> JournalSpec<Tokens> {
        let adopt = |cache: &mut Tokens, key: &ObjectKey, ()| {
            cache.begun.insert(key.clone());
            true
        };
        JournalSpec::new(|_| Ok(()), adopt)
    }
}

impl TokenReconciler {
    fn issue(&self, key: &ObjectKey) -> String {
        self.registry.lock().unwrap().entry(key.to_string()).or_insert_with(|| format!("token of {key}")).clone()
    }

    fn revoke(&self, key: &ObjectKey) {
        self.registry.lock().unwrap().remove(&key.to_string());
    }
}

/// Returns whether a ConfigMap has its token; `None` if it does not ask for one.
fn has_token(map: &ConfigMap) -> Option<bool> {
    map.annotations().contains_key("example.com/token").then(|| contains_token(map))
}

fn contains_token(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key("token"))
}

/// One replica of a controller with two shards.
pub(crate) fn replica(
    client: Client,
    options: LoopOptions,
    registry: Registry,
) -> Result<ControlLoop<TokenReconciler>, LoopError> {
    let reconciler = |context| TokenReconciler { context, registry };
    ControlLoop::new(client, options.with_shards(2), Tokens::default(), reconciler)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = provisioner_runtime::connect(None).await?.client;
    let stop = provisioner_runtime::shutdown::on_signal()?;
    // In containers, all processes have the same id.
    let instance = format!("tokens_{:016x}", Environment::default().number("instance"));
    let options = LoopOptions::new("example.com/tokens", "tokens", instance);
    Ok(replica(client, options, Registry::default())?.run(stop).await?)
}
