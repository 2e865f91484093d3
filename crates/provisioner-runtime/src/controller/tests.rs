//! Tests of the terms of a controller without work.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::BoxFuture;
use kube_sim::{Before, Cluster, Faults, Interceptor, Request, Verb};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::queue::{Next, Priority, Work};

struct NoKeys;

impl Cache for NoKeys {
    type Key = String;
    type Facts = ();

    fn facts(&self, _: &String) {}

    fn inputs(&self, _: &String) -> u64 {
        0
    }

    fn unsettled(&self, _: &dyn Fn(&String) -> bool) -> Vec<String> {
        Vec::new()
    }
}

/// A reconciler that does nothing and counts its calls.
#[derive(Default)]
struct Idle {
    acted: AtomicUsize,
    /// The reports about keys whose work is blocked.
    blocked: AtomicUsize,
}

impl Reconciler for Idle {
    type Cache = NoKeys;
    type Decision = ();
    type Outcome = ();
    type Status = ();

    fn watches(&self) -> Vec<WatchSpec<NoKeys>> {
        Vec::new()
    }

    fn decide(&self, _: &()) {}

    async fn act(&self, _: (), _: &(), _: &Step<'_, NoKeys>) {
        self.acted.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, _: (), _: &(), _: &Work<String>, _: Duration) -> Report<()> {
        Report { next: Next::AwaitChange, event: None, status: None }
    }

    async fn start(&self) -> Result<(), String> {
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    fn report_blocked(&self, _: &(), _: &str, _: &EventRecorder) {
        self.blocked.fetch_add(1, Ordering::Relaxed);
    }
}

fn start(cluster: &Cluster, instance: &str, sharing: Sharing) -> Arc<Engine<Idle>> {
    start_until(&CancellationToken::new(), cluster, instance, sharing)
}

fn control(cluster: &Cluster, instance: &str, sharing: Sharing) -> ControlLoop<Idle> {
    let options = LoopOptions::new("example.com/disks", "default", instance);
    let options = LoopOptions { journal: JournalKind::ConfigMap, sharing, ..options };
    ControlLoop::new(cluster.client(instance), options, NoKeys, |_| Idle::default()).unwrap()
}

fn start_until(stop: &CancellationToken, cluster: &Cluster, instance: &str, sharing: Sharing) -> Arc<Engine<Idle>> {
    let control = control(cluster, instance, sharing);
    let engine = control.engine.clone();
    tokio::spawn(control.run(stop.clone()));
    engine
}

/// Returns a journal with these entries.
fn journal(name: &str, layout: &str, entries: &str) -> Value {
    let labels = json!({"app.kubernetes.io/component": "journal", "app.kubernetes.io/instance": "example.com-disks"});
    let annotations = json!({"kube-provisioner/holder": "former_1", "kube-provisioner/layout": layout});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "data": {"version": "1", "entries": entries},
    })
}

/// Breaks the connection of each list request while the flag is true.
struct BreaksLists(AtomicBool);

impl Interceptor for BreaksLists {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let breaks = request.verb == Verb::List && self.0.load(Ordering::Relaxed);
        Box::pin(async move { if breaks { Before::Break } else { Before::Handle } })
    }
}

#[tokio::test(start_paused = true)]
async fn readyz_reports_a_failed_adoption_until_it_succeeds() {
    let lists = Arc::new(BreaksLists(AtomicBool::new(true)));
    let cluster = Cluster::builder().interceptor(lists.clone()).build();
    let engine = start(&cluster, "one", Sharing::Alone);
    let failed = async {
        while engine.shards.problem().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(1), failed).await.unwrap();
    for _ in 0..600 {
        let problem = engine.shards.problem().unwrap_or_default();
        assert!(problem.starts_with("cannot take over the journals"), "{problem:?}");
        sleep(Duration::from_millis(100)).await;
    }
    lists.0.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(engine.shards.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn reports_attempts_of_another_sharing_kind_once() {
    let of_node = |node: &str| Sharing::Own { part: node.to_owned() };
    for (sharing, layout, reason) in
        [(vec![of_node("n1"), of_node("n2")], "1", "JournalUnclaimed"), (vec![Sharing::Alone], "node", "JournalMoved")]
    {
        let cluster = Cluster::builder().build();
        cluster.create(&journal("former", layout, "a - {}\nb - {}\n")).unwrap();
        for (number, sharing) in sharing.into_iter().enumerate() {
            start(&cluster, &format!("replica_{number}"), sharing);
        }
        sleep(Duration::from_secs(600)).await;
        let mut events = cluster.list("", "events", None).unwrap();
        events.retain(|event| event["involvedObject"]["name"] == "former");
        let [event] = &events[..] else { panic!("{reason}: {events:?}") };
        assert_eq!(event["reason"], reason);
        assert!(event["message"].as_str().unwrap().starts_with("Attempts in this journal (2 in total)"), "{event}");
        let stays = cluster.get("", "configmaps", "default", "former").is_ok();
        assert_eq!(stays, reason == "JournalUnclaimed");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_attempts_waiting_for_journal_space_once() {
    let cluster = Cluster::builder().build();
    let full: String = (0..5).map(|number| format!("large-{number} - {}\n", "x".repeat(100_000))).collect();
    cluster.create(&journal("example.com-disks-journal", "1", &full)).unwrap();
    cluster.create(&journal("former", "4", "a - {}\n")).unwrap();
    let engine = start(&cluster, "one", Sharing::Alone);
    sleep(Duration::from_secs(600)).await;
    assert!(engine.shards.problem().unwrap().contains("(1 in total)"));
    assert_eq!(engine.reconciler.blocked.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn forgets_the_keys_of_a_released_shard() {
    let (cluster, stop) = (Cluster::builder().build(), CancellationToken::new());
    let engine = start_until(&stop, &cluster, "one", Sharing::Alone);
    sleep(Duration::from_secs(10)).await;
    engine.queue.wake("a".to_owned(), 1, Priority::Change);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(engine.queue.stats().awaiting_change, 1);
    stop.cancel();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.queue.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn begins_no_work_after_an_unnoticed_end_of_the_term() {
    let cluster = Cluster::builder().build();
    let leases = LeaseOptions::new("default", "example.com-disks", "one");
    let control = control(&cluster, "one", Sharing::Leases(leases));
    let engine = control.engine.clone();
    let acted = async |inputs| {
        engine.queue.wake("a".to_owned(), inputs, Priority::Change);
        sleep(Duration::from_secs(1)).await;
        engine.reconciler.acted.load(Ordering::Relaxed)
    };
    let mut running = pin!(control.run(CancellationToken::new()));
    assert!(timeout(Duration::from_secs(10), &mut running).await.is_err());
    assert_eq!(acted(1).await, 1);
    // The loop is not polled any more, so no task renews the Lease or notices the end of the term.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(acted(2).await, 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_at_any_moment_releases_the_lease() {
    let latency = Duration::from_millis(50);
    for moment in (0..40_u32).map(|number| number * latency / 2) {
        let cluster = Cluster::builder().faults(&Faults::none(1).latency(latency..=latency)).build();
        let leases = LeaseOptions::new("default", "example.com-disks", "one");
        let (control, stop) = (control(&cluster, "one", Sharing::Leases(leases)), CancellationToken::new());
        let running = tokio::spawn(control.run(stop.clone()));
        sleep(moment).await;
        stop.cancel();
        timeout(Duration::from_secs(5), running).await.unwrap().unwrap().unwrap();
        let lease = cluster.get("coordination.k8s.io", "leases", "default", "example.com-disks");
        let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone()).unwrap_or_default();
        assert!(holder.is_null() || holder == "", "after {moment:?}: {holder}");
    }
}
