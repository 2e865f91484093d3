//! Several replicas of one provisioner: exactly one creates the volume of each claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_provisioner::{DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume};
use kube_sim::{Actors, Cluster, Faults, Pace};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES, volume};

const LEASE: Duration = Duration::from_secs(15);

/// The backend of all replicas.
#[derive(Clone)]
struct Slow {
    calls: Arc<Mutex<Vec<String>>>,
    /// The duration of every call.
    takes: Duration,
}

impl Slow {
    fn new(takes: Duration) -> Self {
        Self { calls: Arc::default(), takes }
    }

    async fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
        sleep(self.takes).await;
    }

    fn count(&self, call: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|one| *one == call).count()
    }
}

impl Provisioner for Slow {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        self.note(format!("provision {}", request.name)).await;
        Ok(volume(&request.name))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.note(format!("delete {}", volume.name)).await;
        Ok(())
    }
}

impl Hooks for Slow {}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

/// Depending on the seed, the replicas share one, two or three Leases.
fn fixture(seed: u64) -> Fixture {
    let faults = Faults::none(seed).latency(Duration::from_millis(1)..=Duration::from_millis(40));
    let cluster = Cluster::builder().seed(seed).faults(&faults).build();
    let mut fixture = Fixture::with_actors(cluster, Actors::all().at(&Pace::USUAL), Script::default());
    fixture.options.shards = 1 + (seed % 3) as u32;
    fixture
}

// Rules: L1.
#[test]
fn only_one_of_five_replicas_provisions_a_claim() {
    for seed in 0..10 {
        run(async {
            // Longer than a lease, which is renewed during the call.
            let takes = if seed % 2 == 0 { Duration::from_millis(50) } else { LEASE * 2 };
            let (fixture, author) = (fixture(seed), Slow::new(takes));
            let _replicas: Vec<_> = (0..5).map(|replica| fixture.start_author(replica, author.clone())).collect();
            sleep(Duration::from_secs(1)).await;
            let volume = fixture.claim("claim", "class");
            sleep(takes + LEASE).await;
            assert_eq!(author.count(&format!("provision {volume}")), 1, "seed {seed}");
            fixture.delete(CLAIMS, "claim");
            sleep(takes + LEASE * 2).await;
            assert_eq!(author.count(&format!("delete {volume}")), 1, "seed {seed}");
            assert!(fixture.cluster.list("", VOLUMES, None).unwrap().is_empty(), "seed {seed}");
        });
    }
}

// Rules: L1.
#[test]
fn another_replica_finishes_the_work_of_a_dead_one() {
    for seed in 0..20 {
        run(async {
            let (fixture, author) = (fixture(seed), Slow::new(Duration::from_secs(5)));
            let first = fixture.start_author(1, author.clone());
            sleep(Duration::from_secs(1)).await;
            let (stays, goes) = (fixture.claim("stays", "class"), fixture.claim("goes", "class"));
            sleep(Duration::from_secs(3)).await;
            assert_eq!(author.calls.lock().unwrap().len(), 2, "seed {seed}: both are begun");
            first.abort();
            fixture.delete(CLAIMS, "goes");
            let _second = fixture.start_author(2, author.clone());
            sleep(LEASE * 4).await;
            let left = fixture.cluster.list("", CLAIMS, None).unwrap();
            assert!(left.len() == 1 && left[0]["spec"]["volumeName"].is_string(), "seed {seed}");
            assert_eq!(author.count(&format!("delete {goes}")), 1, "seed {seed}: its claim was deleted");
            assert_eq!(author.count(&format!("delete {stays}")), 0, "seed {seed}");
            assert_eq!(fixture.entries(), [""; 0], "seed {seed}");
        });
    }
}

// Rules: G53.
/// Without `clean_up`, an attempt is completed, and its volume released and deleted.
#[test]
fn a_restored_claims_attempt_is_neither_completed_nor_deleted() {
    run(async {
        let (fixture, author) = (fixture(0), Slow::new(Duration::from_secs(5)));
        let first = fixture.start_author(1, author.clone());
        let [kept, deleted] = ["restored", "deleted"].map(|claim| fixture.claim(claim, "class"));
        fixture.until("both are begun", || author.calls.lock().unwrap().len() == 2).await;
        first.abort();
        let mut copy = fixture.get(CLAIMS, "restored").unwrap();
        for claim in ["restored", "deleted"] {
            fixture.delete(CLAIMS, claim);
            fixture.until("it is deleted", || fixture.get(CLAIMS, claim).is_none()).await;
        }
        copy["metadata"] = json!({"name": "restored", "namespace": "default"});
        copy["spec"]["volumeName"] = json!(kept);
        fixture.cluster.create(&copy).unwrap();
        let _second = fixture.start_author(2, author.clone());
        // From here on, the process knows that there is no `clean_up`.
        fixture.until("the other one is deleted", || author.count(&format!("delete {deleted}")) == 1).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!((author.count(&format!("provision {kept}")), fixture.entries()), (1, vec![kept]));
    });
}
