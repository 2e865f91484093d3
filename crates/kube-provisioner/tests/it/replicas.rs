//! Several replicas of one provisioner: exactly one creates the volume of each claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use kube_provisioner::{
    CancellationToken, Controller, DeleteError, Environment, Hooks, Options, ProvisionError, ProvisionRequest,
    ProvisionedVolume, Provisioner, Volume,
};
use kube_sim::{Actors, Cluster, DeleteOptions, Faults, Pace, SimClock, Target};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const PROVISIONER: &str = "example.com/shared";
const LEASE: Duration = Duration::from_secs(15);

/// The calls of all replicas to the backend.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    async fn note(&self, call: String, takes: Duration) {
        self.0.lock().unwrap().push(call);
        sleep(takes).await;
    }

    fn count(&self, call: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|one| *one == call).count()
    }
}

struct Slow {
    calls: Calls,
    takes: Duration,
}

impl Provisioner for Slow {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        self.calls.note(format!("provision {}", request.name), self.takes).await;
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.calls.note(format!("delete {}", volume.name), self.takes).await;
        Ok(())
    }
}

impl Hooks for Slow {}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

fn cluster(seed: u64) -> Cluster {
    let faults = Faults::none(seed).latency(Duration::from_millis(1)..=Duration::from_millis(40));
    let cluster = Cluster::builder().seed(seed).faults(&faults).build();
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "shared"},
        "provisioner": PROVISIONER,
    });
    cluster.create(&class).unwrap();
    cluster
}

/// Starts a replica. Depending on the seed, the replicas share one, two or three Leases.
fn start(cluster: &Cluster, (seed, replica): (u64, u64), calls: &Calls, takes: Duration) -> JoinHandle<()> {
    let mut options = Options::new(PROVISIONER);
    options.namespace = Some("default".to_owned());
    options.shards = 1 + (seed % 3) as u32;
    let environment = Environment::simulated(replica, SimClock::EPOCH);
    let controller = Controller::new(Slow { calls: calls.clone(), takes }, options).environment(environment);
    let client = cluster.client(&format!("replica-{replica}"));
    tokio::spawn(async move { controller.run_with(client, CancellationToken::new()).await.unwrap() })
}

fn create_claim(cluster: &Cluster, index: usize) -> String {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{index}"), "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "shared",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let created = cluster.create(&claim).unwrap();
    created["metadata"]["uid"].as_str().unwrap().to_owned()
}

// Rules: L1.
#[test]
fn of_five_controllers_one_provisions() {
    for seed in 0..10 {
        run(async {
            let (cluster, calls) = (cluster(seed), Calls::default());
            let _actors = cluster.run(Actors::all().at(&Pace::USUAL));
            // Longer than a lease, which is renewed during the call.
            let takes = if seed % 2 == 0 { Duration::from_millis(50) } else { LEASE * 2 };
            let _replicas: Vec<_> = (0..5).map(|replica| start(&cluster, (seed, replica), &calls, takes)).collect();
            sleep(Duration::from_secs(1)).await;
            let uid = create_claim(&cluster, 0);
            sleep(takes + LEASE).await;
            assert_eq!(calls.count(&format!("provision pvc-{uid}")), 1, "seed {seed}");
            let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "claim-0" };
            cluster.delete(&target, DeleteOptions::default()).unwrap();
            sleep(takes + LEASE * 2).await;
            assert_eq!(calls.count(&format!("delete pvc-{uid}")), 1, "seed {seed}");
            let volumes = Api::<PersistentVolume>::all(cluster.client("reader"));
            assert!(volumes.list(&ListParams::default()).await.unwrap().items.is_empty(), "seed {seed}");
        });
    }
}

// Rules: L1.
#[test]
fn another_replica_finishes_the_work_of_one_that_dies() {
    for seed in 0..20 {
        run(async {
            let (cluster, calls) = (cluster(seed), Calls::default());
            let _actors = cluster.run(Actors::all().at(&Pace::USUAL));
            let takes = Duration::from_secs(5);
            let first = start(&cluster, (seed, 1), &calls, takes);
            sleep(Duration::from_secs(1)).await;
            let (stays, goes) = (create_claim(&cluster, 0), create_claim(&cluster, 1));
            sleep(Duration::from_secs(3)).await;
            assert_eq!(calls.0.lock().unwrap().len(), 2, "seed {seed}: both are begun");
            first.abort();
            let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "claim-1" };
            cluster.delete(&target, DeleteOptions::default()).unwrap();
            let _second = start(&cluster, (seed, 2), &calls, takes);
            sleep(LEASE * 4).await;
            let client = cluster.client("reader");
            let left = cluster.list("", "persistentvolumeclaims", None).unwrap();
            assert!(left.len() == 1 && left[0]["spec"]["volumeName"].is_string(), "seed {seed}");
            assert_eq!(calls.count(&format!("delete pvc-{goes}")), 1, "seed {seed}: made for nobody, and deleted");
            assert_eq!(calls.count(&format!("delete pvc-{stays}")), 0, "seed {seed}");
            let journals = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
            let journals = journals.list(&ListParams::default()).await.unwrap().items;
            let full = |journal: &&k8s_openapi::api::core::v1::ConfigMap| {
                journal.data.as_ref().is_some_and(|data| data.contains_key("entries"))
            };
            assert_eq!(journals.iter().find(full), None, "seed {seed}");
        });
    }
}
