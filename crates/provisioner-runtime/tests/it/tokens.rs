//! The example controller under faults: replicas are killed and restarted while the API server fails.

#[path = "../../examples/tokens.rs"]
#[expect(dead_code, reason = "the example's main")]
mod example;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use example::{Registry, replica};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_sim::{Cluster, DeleteOptions, Faults, PatchKind, SimClock, Target};
use provisioner_runtime::controller::{LoopOptions, Safeguards};
use provisioner_runtime::{Backoff, Environment};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const SEEDS: u64 = 20;
const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("tokens".to_owned()),
            annotations: Some([("example.com/token".to_owned(), String::new())].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

struct Fleet {
    cluster: Cluster,
    seed: u64,
    registry: Registry,
    safeguards: Safeguards,
}

impl Fleet {
    fn start(&self, number: u64) -> JoinHandle<()> {
        let environment = Environment::simulated(self.seed << 16 | number, SimClock::EPOCH);
        let name = format!("tokens-{number}");
        let (client, registry) = (self.cluster.client(&name), self.registry.clone());
        let (safeguards, backoff) = (self.safeguards, Backoff::exponential(SECOND / 5, 10 * SECOND));
        let options = LoopOptions::new("example.com/tokens", "tokens", &name);
        let options = LoopOptions { environment, safeguards, backoff, ..options };
        let replica = replica(client, options, registry).unwrap();
        tokio::spawn(async move { replica.run(CancellationToken::new()).await.unwrap() })
    }
}

fn maps(cluster: &Cluster) -> Vec<Value> {
    let maps = cluster.list("", "configmaps", Some("tokens")).unwrap();
    maps.into_iter().filter(|map| map["metadata"]["annotations"].get("example.com/token").is_some()).collect()
}

fn key(map: &Value) -> String {
    let metadata = &map["metadata"];
    let part = |name: &str| metadata[name].as_str().unwrap_or_default();
    format!("{}/{}/{}", part("namespace"), part("name"), part("uid"))
}

/// Returns the keys whose tokens are wrong at the end.
async fn storm(seed: u64, safeguards: Safeguards) -> Vec<Difference> {
    let faults = Faults::storm(seed);
    let cluster = Cluster::builder().seed(seed).faults(&faults).hide_managed_fields().build();
    let namespace = ObjectMeta { name: Some("tokens".to_owned()), ..ObjectMeta::default() };
    cluster.create(&Namespace { metadata: namespace, ..Namespace::default() }).unwrap();
    let registry = Registry::default();
    let fleet = Fleet { cluster: cluster.clone(), seed, registry: registry.clone(), safeguards };
    let mut replicas: Vec<_> = (0..2).map(|number| fleet.start(number)).collect();
    // ConfigMaps that were deleted with a token. A replica that did not observe that the token was saved revokes it.
    let mut spent = BTreeSet::new();
    for round in 0..12_u64 {
        let dice = |limit: u64| (seed * 7919 + round * 104_729) % limit;
        (0..4).for_each(|number| drop(cluster.create(&map(&format!("map-{round}-{number}"))).unwrap()));
        sleep(Duration::from_millis(100 + dice(4000))).await;
        // As kill -9 would.
        let victim = (dice(7) % 2) as usize;
        replicas[victim].abort();
        replicas[victim] = fleet.start(2 + round);
        let doomed =
            maps(&cluster).into_iter().find(|map| map["metadata"]["name"] == format!("map-{round}-0").as_str());
        let doomed = doomed.expect("it was just created");
        if doomed["data"].get("token").is_some() {
            spent.insert(key(&doomed));
        }
        let name = format!("map-{round}-0");
        let target = Target { group: "", plural: "configmaps", namespace: "tokens", name: &name };
        cluster.delete(&target, DeleteOptions::default()).unwrap();
        sleep(Duration::from_millis(dice(20_000))).await;
    }
    faults.stop();
    let wanted = || maps(&cluster).iter().map(|map| (key(map), map["data"]["token"].clone())).collect();
    let issued = || {
        let registry = registry.lock().unwrap();
        let kept = registry.iter().filter(|(key, _)| !spent.contains(*key));
        kept.map(|(key, token)| (key.clone(), token.as_str().into())).collect()
    };
    let mut patience = 600;
    let mut difference = differing(wanted(), issued());
    while !difference.is_empty() && patience > 0 {
        patience -= 1;
        sleep(Duration::from_secs(1)).await;
        difference = differing(wanted(), issued());
    }
    replicas.iter().for_each(JoinHandle::abort);
    difference
}

/// A key whose tokens differ: the token in its ConfigMap, and the token in the registry.
type Difference = (String, [Option<Value>; 2]);

fn differing(wanted: BTreeMap<String, Value>, issued: BTreeMap<String, Value>) -> Vec<Difference> {
    let keys: BTreeSet<&String> = wanted.keys().chain(issued.keys()).collect();
    let both = |key: &String| [wanted.get(key).cloned(), issued.get(key).cloned()];
    keys.into_iter().map(|key| (key.clone(), both(key))).filter(|(_, [wanted, issued])| wanted != issued).collect()
}

fn run(seed: u64, safeguards: Safeguards) -> Vec<Difference> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(storm(seed, safeguards))
}

#[test]
fn crashes_neither_lose_nor_leak_tokens() {
    for seed in 0..SEEDS {
        let difference = run(seed, Safeguards::default());
        assert!(difference.is_empty(), "seed {seed}: {difference:?}");
    }
}

/// A replica crashes before it observes that the token was saved, and the ConfigMap then no longer asks for a token.
#[tokio::test(start_paused = true)]
async fn keeps_a_token_that_its_configmap_has_received() {
    let latency = Duration::from_millis(20);
    let faults = Faults::none(1).latency(latency..=latency);
    let cluster = Cluster::builder().seed(1).faults(&faults).hide_managed_fields().build();
    let namespace = ObjectMeta { name: Some("tokens".to_owned()), ..ObjectMeta::default() };
    cluster.create(&Namespace { metadata: namespace, ..Namespace::default() }).unwrap();
    let registry = Registry::default();
    let fleet =
        Fleet { cluster: cluster.clone(), seed: 1, registry: registry.clone(), safeguards: Safeguards::default() };
    let first = fleet.start(0);
    cluster.create(&map("map")).unwrap();
    let received = |cluster: &Cluster| maps(cluster)[0]["data"].get("token").is_some();
    cluster.wait(Duration::from_secs(60), received).await.unwrap();
    first.abort();
    let key = key(&maps(&cluster)[0]);
    let target = Target { group: "", plural: "configmaps", namespace: "tokens", name: "map" };
    let patch = json!({"metadata": {"annotations": {"example.com/token": null}}});
    cluster.patch(&target, None, PatchKind::Merge, &patch).unwrap();
    let second = fleet.start(1);
    sleep(Duration::from_secs(120)).await;
    second.abort();
    assert!(registry.lock().unwrap().contains_key(&key), "the token of the ConfigMap was revoked");
}

#[test]
fn tokens_leak_without_the_journal() {
    let without = Safeguards { journal: false, ..Safeguards::default() };
    assert!((0..SEEDS).any(|seed| !run(seed, without).is_empty()));
}
