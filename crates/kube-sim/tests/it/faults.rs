//! Tests of faults, and of the reproducibility of runs.

use std::time::Duration;

use crate::common::{self, PROVISIONER, claim, class, created, node, pod, until};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use kube_sim::{Actors, Cluster, Fault, Faults, object};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap()
}

/// Returns a cluster whose requests are always hit by one fault.
fn with(fault: Fault) -> (Cluster, Api<ConfigMap>) {
    let cluster = Cluster::builder().faults(&Faults::none(1).with(fault, 1.0)).trace().build();
    created(
        &cluster,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "default"}}),
    );
    let maps = Api::default_namespaced(cluster.client("test"));
    (cluster, maps)
}

/// Returns the code of a refusal, 0 for a broken connection, and `None` for a success or a missing answer.
async fn outcome<T>(request: impl Future<Output = kube::Result<T>>) -> Option<u16> {
    match timeout(Duration::from_secs(600), request).await.ok()? {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(kube::Error::Service(_)) => Some(0),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn request_faults_have_their_documented_effects() {
    // Fault, outcome of a write, whether the write happened, outcome of a read, minimum duration of the write in
    // seconds.
    let cases = [
        (Fault::TooManyRequests, Some(429), false, Some(429), 0),
        (Fault::InternalError, Some(500), false, Some(500), 0),
        (Fault::Unavailable, Some(503), false, Some(503), 0),
        (Fault::Timeout, Some(504), false, Some(504), 0),
        (Fault::Break, Some(0), false, Some(0), 0),
        (Fault::BreakAfter, Some(0), true, Some(0), 0),
        (Fault::Stall, Some(0), false, Some(0), 30),
        (Fault::StallAfter, Some(0), true, Some(0), 30),
        (Fault::Hang, None, false, None, 600),
        (Fault::HangAfter, None, true, None, 600),
        (Fault::Conflict, None, true, None, 0),
        (Fault::Expired, None, true, None, 0),
    ];
    for (fault, write, happens, read, seconds) in cases {
        let (cluster, maps) = with(fault);
        let start = Instant::now();
        assert_eq!(outcome(maps.create(&PostParams::default(), &map("new"))).await, write, "{fault:?}");
        assert!(start.elapsed() >= Duration::from_secs(seconds), "{fault:?}");
        assert_eq!(cluster.get("", "configmaps", "default", "new").is_ok(), happens, "{fault:?}");
        assert_eq!(outcome(maps.get("old")).await, read, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_fault_delays_writes_but_not_reads() {
    let (cluster, maps) = with(Fault::Late);
    let exists = |name| cluster.get("", "configmaps", "default", name).is_ok();
    assert_eq!(outcome(maps.create(&PostParams::default(), &map("new"))).await, Some(0));
    assert!(!exists("new"));
    assert_eq!(outcome(maps.get("old")).await, None);
    sleep(Duration::from_secs(61)).await;
    assert!(exists("new"));
}

#[tokio::test(start_paused = true)]
async fn lost_answer_hides_a_successful_write() {
    let (cluster, maps) = with(Fault::LostAnswer);
    for index in 0..10 {
        let name = format!("new-{index}");
        let code = outcome(maps.create(&PostParams::default(), &map(&name))).await;
        assert!(matches!(code, Some(500 | 504)), "{code:?}");
        assert!(cluster.get("", "configmaps", "default", &name).is_ok());
    }
    assert_eq!(outcome(maps.get("old")).await, None);
}

#[tokio::test(start_paused = true)]
async fn conflict_fault_hits_only_requests_that_can_conflict() {
    let (cluster, maps) = with(Fault::Conflict);
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    assert_eq!(outcome(maps.patch("old", &PatchParams::default(), &patch)).await, Some(409));
    assert_eq!(outcome(maps.delete("old", &DeleteParams::default())).await, None);
    assert!(cluster.trace().contains("test patch configmaps default/old: ! 409 Conflict instead of handling it"));
}

#[tokio::test(start_paused = true)]
async fn stale_list_fault_hits_only_lists_from_cache() {
    let (cluster, maps) = with(Fault::StaleList);
    let before = cluster.resource_version();
    for index in 0..200 {
        created(
            &cluster,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("new-{index:03}"), "namespace": "default"}}),
        );
    }
    let stale = maps.list(&ListParams::default().match_any()).await.unwrap();
    let version: u64 = stale.metadata.resource_version.as_deref().unwrap().parse().unwrap();
    assert!(version < cluster.resource_version());
    assert_eq!(stale.items.len() as u64, version - before + 1);
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 201);
    // A watch from that version delivers the missing changes.
    let events = maps.watch(&WatchParams::default(), &version.to_string()).await.unwrap();
    let missed = 201 - stale.items.len();
    let events: Vec<_> = Box::pin(events).take(missed).collect().await;
    assert!(matches!(events.last(), Some(Ok(WatchEvent::Added(map))) if map.name_any() == "new-199"));
}

#[tokio::test(start_paused = true)]
async fn watch_faults_have_their_documented_effects() {
    // Fault, what the watch yields instead of the event, minimum delay in seconds.
    let cases = [
        (Fault::WatchEnd, "end", 0),
        (Fault::WatchBreak, "broken", 0),
        (Fault::WatchExpired, "410", 0),
        (Fault::WatchStall, "broken", 30),
        (Fault::WatchSilence, "nothing", 3600),
        (Fault::WatchDelay, "old", 0),
    ];
    for (fault, expected, seconds) in cases {
        let (_cluster, maps) = with(fault);
        let start = Instant::now();
        let mut events = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
        let found = match timeout(Duration::from_secs(3600), events.next()).await {
            Err(_) => "nothing".to_owned(),
            Ok(None) => "end".to_owned(),
            Ok(Some(Err(_))) => "broken".to_owned(),
            Ok(Some(Ok(WatchEvent::Error(status)))) => status.code.to_string(),
            Ok(Some(Ok(WatchEvent::Added(map)))) => map.name_any(),
            Ok(Some(Ok(other))) => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{fault:?}");
        assert!(start.elapsed() >= Duration::from_secs(seconds), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_affect_only_their_users_until_they_end() {
    let faults = Faults::none(3).with(Fault::Unavailable, 1.0).only("unlucky").until(Duration::from_secs(60));
    let cluster = Cluster::builder().faults(&faults).build();
    let maps = |user: &str| Api::<ConfigMap>::default_namespaced(cluster.client(user));
    assert_eq!(outcome(maps("unlucky").list(&ListParams::default())).await, Some(503));
    assert_eq!(outcome(maps("lucky").list(&ListParams::default())).await, None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(outcome(maps("unlucky").list(&ListParams::default())).await, None);

    let faults = Faults::none(3).with(Fault::Unavailable, 1.0);
    let cluster = Cluster::builder().faults(&faults).build();
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client("test"));
    assert_eq!(outcome(maps.list(&ListParams::default())).await, Some(503));
    faults.stop();
    assert_eq!(outcome(maps.list(&ListParams::default())).await, None);
}

#[tokio::test(start_paused = true)]
async fn faults_occur_at_their_rates() {
    let faults = Faults::none(5).with(Fault::Unavailable, 0.2).with(Fault::Break, 0.1);
    let cluster = Cluster::builder().faults(&faults).build();
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client("test"));
    let (mut unavailable, mut broken) = (0, 0);
    for _ in 0..1000 {
        match outcome(maps.list(&ListParams::default())).await {
            Some(503) => unavailable += 1,
            Some(0) => broken += 1,
            _ => {}
        }
    }
    assert!((150..250).contains(&unavailable), "{unavailable}");
    assert!((70..130).contains(&broken), "{broken}");
}

/// A minimal provisioner: it lists all claims every five seconds, and creates volumes until they exist. Several
/// instances can run concurrently.
async fn provision(client: Client, name: String) {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client);
    loop {
        let found = timeout(Duration::from_secs(10), claims.list(&ListParams::default().match_any())).await;
        for claim in found.into_iter().flatten().flat_map(|list| list.items) {
            let asked = claim.annotations().get("volume.kubernetes.io/storage-provisioner");
            let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
            if asked.map(String::as_str) == Some(PROVISIONER) && !bound {
                let value = serde_json::to_value(&claim).unwrap();
                let mut volume = common::volume(&format!("pvc-{}", object::uid(&value)), "fast");
                volume["metadata"]["labels"] = json!({"by": name});
                volume["spec"]["claimRef"] = json!({
                    "namespace": "default", "name": claim.name_any(), "uid": object::uid(&value),
                    "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                });
                let volume = serde_json::from_value(volume).unwrap();
                let _ = timeout(Duration::from_secs(10), volumes.create(&PostParams::default(), &volume)).await;
            }
        }
        sleep(Duration::from_secs(5)).await;
    }
}

/// Runs ten claims and two provisioners under all faults. Returns the trace and the final objects.
async fn run(seed: u64) -> (String, String) {
    let faults = Faults::storm(seed);
    let cluster = Cluster::builder().seed(seed).faults(&faults).trace().build();
    let _actors = cluster.run(Actors::random(seed));
    let replicas: Vec<_> = (0..2)
        .map(|index| {
            let name = format!("provisioner-{index}");
            tokio::spawn(provision(cluster.client(&name), name))
        })
        .collect();
    created(&cluster, class("fast", "WaitForFirstConsumer"));
    for index in 0..3 {
        created(&cluster, node(&format!("node-{index}"), &[]));
    }
    for index in 0..10 {
        created(&cluster, claim(&format!("data-{index}"), "fast"));
        created(&cluster, pod(&format!("pod-{index}"), &format!("data-{index}")));
    }
    sleep(Duration::from_secs(60)).await;
    cluster.note("the storm is over");
    faults.stop();
    until(&cluster, || {
        cluster
            .list("", "pods", None)
            .unwrap()
            .iter()
            .all(|pod| !object::text_at(pod, &["spec", "nodeName"]).is_empty())
    })
    .await;
    let volumes = cluster.list("", "persistentvolumes", None).unwrap();
    assert_eq!(volumes.len(), 10, "seed {seed}:\n{}", cluster.trace());
    replicas.iter().for_each(tokio::task::JoinHandle::abort);
    (cluster.trace(), cluster.dump())
}

#[tokio::test(start_paused = true)]
async fn same_seed_reproduces_the_run_byte_for_byte() {
    let (trace, dump) = run(7).await;
    for part in
        ["provisioner-0 create persistentvolumes", "system:kube-scheduler update", " ! ", "-- the storm is over"]
    {
        assert!(trace.contains(part), "no {part:?} in\n{trace}");
    }
    let (again, dump_again) = run(7).await;
    assert_eq!(trace, again);
    assert_eq!(dump, dump_again);
    let (other, other_dump) = run(8).await;
    assert_ne!(trace, other);
    assert_ne!(dump, other_dump);
}

#[tokio::test(start_paused = true)]
async fn controllers_recover_from_every_storm() {
    for seed in 0..12 {
        run(seed).await;
    }
}
