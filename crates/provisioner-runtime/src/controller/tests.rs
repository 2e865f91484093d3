//! Terms of a controller without work.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use kube_sim::{Before, Cluster, Interceptor, Request, Verb};
use tokio::time::{sleep, timeout};

use super::*;
use crate::queue::{Next, Work};

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

struct Idle;

impl Reconciler for Idle {
    type Cache = NoKeys;
    type Decision = ();
    type Outcome = ();
    type Status = ();

    fn watches(&self) -> Vec<WatchSpec<NoKeys>> {
        Vec::new()
    }

    fn decide(&self, _: &()) {}

    async fn act(&self, _: (), _: &(), _: &Step<'_, NoKeys>) {}

    fn report(&self, _: (), _: &(), _: &Work<String>, _: Duration) -> Report<()> {
        Report { next: Next::Done, event: None, status: None }
    }

    async fn start(&self) -> Result<(), String> {
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }
}

fn start(cluster: &Cluster, instance: &str, sharing: Sharing) -> Arc<Engine<Idle>> {
    let options = LoopOptions::new("example.com/disks", "default", instance);
    let options = LoopOptions { journal: JournalKind::ConfigMap, sharing, ..options };
    let control = ControlLoop::new(cluster.client(instance), options, NoKeys, |_| Idle).unwrap();
    let engine = control.engine.clone();
    tokio::spawn(control.run(CancellationToken::new()));
    engine
}

/// Breaks the connection of each request for a list while it is true.
struct BreaksLists(AtomicBool);

impl Interceptor for BreaksLists {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let breaks = request.verb == Verb::List && self.0.load(Ordering::Relaxed);
        Box::pin(async move { if breaks { Before::Break } else { Before::Handle } })
    }
}

#[tokio::test(start_paused = true)]
async fn readyz_names_the_failed_adoption_until_one_succeeds() {
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
