//! Fleets in which every replica works and claims are locked: ours alone, and together with processes that follow the
//! protocol of the first provisioner library to the letter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_provisioner::{
    CancellationToken, Controller, Coordination, DeleteError, Environment, Options, ProvisionError, ProvisionRequest,
    ProvisionedVolume, Provisioner, Volume,
};
use kube_sim::{Actors, Cluster, DeleteOptions, Faults, Pace, SimClock, Target};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const PROVISIONER: &str = "example.com/shared";
const LOCK: &str = "control-plane.alpha.kubernetes.io/leader";
const RETRY: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(15);

/// What the backend was asked, by whomever.
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
        self.calls.note(format!("delete {}", volume.name()), self.takes).await;
        Ok(())
    }
}

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

fn start_ours(cluster: &Cluster, replica: u64, calls: &Calls, takes: Duration) -> tokio::task::JoinHandle<()> {
    let mut options = Options::new(PROVISIONER);
    options.coordination = Coordination::PerClaim;
    let environment = Environment::simulated(replica, SimClock::EPOCH);
    let controller = Controller::new(Slow { calls: calls.clone(), takes }, options).environment(environment);
    let client = cluster.client(&format!("ours-{replica}"));
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

async fn claims(client: &Client) -> Vec<PersistentVolumeClaim> {
    Api::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap().items
}

#[test]
fn l1_of_five_controllers_one_provisions() {
    for seed in 0..10 {
        run(async {
            let (cluster, calls) = (cluster(seed), Calls::default());
            let _actors = cluster.run(Actors::all().at(&Pace::USUAL));
            // Longer than a lease: the lock is renewed meanwhile.
            let takes = if seed % 2 == 0 { Duration::from_millis(50) } else { LEASE * 2 };
            let _replicas: Vec<_> = (0..5).map(|replica| start_ours(&cluster, replica, &calls, takes)).collect();
            sleep(Duration::from_secs(1)).await;
            let uid = create_claim(&cluster, 0);
            sleep(takes + RETRY * 3).await;
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

#[test]
fn l1_a_replica_that_dies_is_succeeded_and_what_it_had_begun_is_finished() {
    for seed in 0..20 {
        run(async {
            let (cluster, calls) = (cluster(seed), Calls::default());
            let _actors = cluster.run(Actors::all().at(&Pace::USUAL));
            let takes = Duration::from_secs(5);
            let first = start_ours(&cluster, 1, &calls, takes);
            sleep(Duration::from_secs(1)).await;
            let (stays, goes) = (create_claim(&cluster, 0), create_claim(&cluster, 1));
            sleep(Duration::from_secs(3)).await;
            assert_eq!(calls.0.lock().unwrap().len(), 2, "seed {seed}: both are begun");
            first.abort();
            let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "claim-1" };
            cluster.delete(&target, DeleteOptions::default()).unwrap();
            let _second = start_ours(&cluster, 2, &calls, takes);
            sleep(LEASE * 4).await;
            let client = cluster.client("reader");
            let left = claims(&client).await;
            assert!(left.len() == 1 && left[0].spec.as_ref().unwrap().volume_name.is_some(), "seed {seed}");
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

#[test]
fn l1_a_mixed_fleet_provisions_once() {
    let (mut by_us, mut by_them) = (0, 0);
    for seed in 0..8 {
        run(async {
            let (cluster, calls) = (cluster(seed), Calls::default());
            let _actors = cluster.run(Actors::all().at(&Pace::USUAL));
            let takes = if seed % 3 == 0 { Duration::from_secs(20) } else { Duration::from_millis(100) };
            // Ours see a claim sooner, so in every second run they start later.
            let late = seed % 2 == 1;
            let start = || (0..2).for_each(|replica| drop(start_ours(&cluster, replica, &calls, takes)));
            if !late {
                start();
            }
            let _theirs: Vec<_> = (0..2).map(|number| Old::start(&cluster, number, &calls, takes)).collect();
            sleep(Duration::from_secs(1)).await;
            let mut uids = Vec::new();
            for index in 0..6 {
                uids.push(create_claim(&cluster, index));
                sleep(Duration::from_millis(seed * 37 % 500)).await;
                if late && index == 2 {
                    start();
                }
            }
            sleep(takes + LEASE * 4).await;
            for uid in &uids {
                assert_eq!(calls.count(&format!("provision pvc-{uid}")), 1, "seed {seed}");
            }
            let client = cluster.client("reader");
            for claim in claims(&client).await {
                assert!(claim.spec.as_ref().unwrap().volume_name.is_some(), "seed {seed}: {}", claim.name_any());
                let record: Value = serde_json::from_str(&claim.annotations()[LOCK]).unwrap();
                match record["holderIdentity"].as_str().unwrap().starts_with("old-") {
                    true => by_them += 1,
                    false => by_us += 1,
                }
            }
        });
    }
    assert!(by_us > 5 && by_them > 5, "one side does not work: {by_us} ours, {by_them} theirs");
}

/// A process of the first provisioner library, as far as claims and their locks go.
struct Old {
    identity: String,
    client: Client,
    calls: Calls,
    takes: Duration,
    /// Records by claim, and when they were first seen: the process's own time.
    observed: HashMap<String, (String, Instant)>,
}

impl Old {
    fn start(cluster: &Cluster, number: usize, calls: &Calls, takes: Duration) -> tokio::task::JoinHandle<()> {
        let identity = format!("old-{number}");
        let (client, calls) = (cluster.client(&identity), calls.clone());
        tokio::spawn(async move {
            let mut tried: HashMap<String, tokio::task::JoinHandle<()>> = HashMap::new();
            loop {
                for claim in claims(&client).await {
                    let uid = claim.uid().unwrap();
                    let asked = claim.annotations().get("volume.kubernetes.io/storage-provisioner");
                    let open = claim.spec.as_ref().unwrap().volume_name.is_none();
                    let busy = tried.get(&uid).is_some_and(|operation| !operation.is_finished());
                    if asked.is_some_and(|asked| asked == PROVISIONER) && open && !busy {
                        let (client, calls) = (client.clone(), calls.clone());
                        let old = Self { identity: identity.clone(), client, calls, takes, observed: HashMap::new() };
                        tried.insert(uid, tokio::spawn(old.lock_provision(claim.name_any())));
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
    }

    /// Acquires the lock, provisions while renewing it, or stops when somebody else has.
    async fn lock_provision(mut self, claim: String) {
        loop {
            let Some(live) = self.read(&claim).await else { return };
            if live.spec.as_ref().unwrap().volume_name.is_some() {
                return;
            }
            if self.try_acquire_or_renew(&claim).await {
                break;
            }
            sleep(RETRY.mul_f64(1.0 + fastrand::f64() * 1.2)).await;
        }
        let Some(live) = self.read(&claim).await else { return };
        let mut operation = tokio::spawn(provision(self.client.clone(), self.calls.clone(), self.takes, live));
        loop {
            tokio::select! {
                _ = &mut operation => return,
                () = sleep(RETRY) => drop(self.try_acquire_or_renew(&claim).await),
            }
        }
    }

    async fn read(&self, claim: &str) -> Option<PersistentVolumeClaim> {
        Api::default_namespaced(self.client.clone()).get_opt(claim).await.unwrap()
    }

    async fn try_acquire_or_renew(&mut self, claim: &str) -> bool {
        let Some(mut live) = self.read(claim).await else { return false };
        let text = live.annotations().get(LOCK).cloned().unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
        let (seen, since) = self.observed.entry(claim.to_owned()).or_insert_with(|| (text.clone(), Instant::now()));
        if *seen != text {
            (*seen, *since) = (text.clone(), Instant::now());
        }
        let holder = record["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && holder != self.identity && since.elapsed() < LEASE {
            return false;
        }
        let now = Timestamp::UNIX_EPOCH.to_string();
        let mine = holder == self.identity;
        let transitions = record["leaderTransitions"].as_u64().unwrap_or_default() + u64::from(!mine);
        let next = json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": 15,
            "acquireTime": if mine { record["acquireTime"].clone() } else { json!(now) },
            // Different each time, as the time of day would be.
            "renewTime": format!("1970-01-01T00:{:02}:{:02}Z", fastrand::u8(..60), fastrand::u8(..60)),
            "leaderTransitions": transitions,
        });
        live.annotations_mut().insert(LOCK.to_owned(), next.to_string());
        let api = Api::<PersistentVolumeClaim>::default_namespaced(self.client.clone());
        let written = api.replace(claim, &PostParams::default(), &live).await.is_ok();
        if written {
            self.observed.insert(claim.to_owned(), (next.to_string(), Instant::now()));
        }
        written
    }
}

/// The operation itself: a live look for the volume, the backend, the volume.
async fn provision(client: Client, calls: Calls, takes: Duration, claim: PersistentVolumeClaim) {
    let name = format!("pvc-{}", claim.uid().unwrap());
    let volumes = Api::<PersistentVolume>::all(client);
    if volumes.get_opt(&name).await.unwrap().is_some() {
        return;
    }
    calls.note(format!("provision {name}"), takes).await;
    let volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "shared",
            "persistentVolumeReclaimPolicy": "Delete", "nfs": {"server": "server", "path": format!("/{name}")},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": claim.name_any(), "uid": claim.uid(),
            },
        },
    });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
}
