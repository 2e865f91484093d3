//! The order of events and other work.

use std::time::Duration;

use kube_provisioner::{
    CancellationToken, Controller, DeleteError, Environment, Hooks, Options, ProvisionError, ProvisionRequest,
    ProvisionedVolume, Provisioner, Volume,
};
use kube_sim::{Actors, Cluster, SimClock};
use serde_json::json;
use tokio::time::sleep;

const PROVISIONER: &str = "example.com/telling";
const CLAIMS: usize = 40;
const API_CONCURRENCY: usize = 4;

struct Slow;

impl Provisioner for Slow {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        sleep(Duration::from_millis(100)).await;
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Slow {}

/// Every event would delay the API server's save of a volume.
#[tokio::test(start_paused = true)]
async fn volumes_are_saved_before_events_are_sent() {
    let cluster = Cluster::builder().trace().build();
    let _actors = cluster.run(Actors::all());
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "class"},
        "provisioner": PROVISIONER,
    });
    cluster.create(&class).unwrap();
    for index in 0..CLAIMS {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("claim-{index}"), "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        cluster.create(&claim).unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let mut options = Options::new(PROVISIONER);
    options.api_concurrency = API_CONCURRENCY;
    let controller = Controller::new(Slow, options).environment(Environment::simulated(0, SimClock::EPOCH));
    tokio::spawn(controller.run_with(cluster.client("ours"), CancellationToken::new()));
    sleep(Duration::from_secs(60)).await;

    let trace = cluster.trace();
    let asked: Vec<&str> =
        trace.lines().filter_map(|line| line.split_once(" ours create ")).map(|(_, what)| what).collect();
    let is_event = |what: &&str| what.starts_with("events");
    let volumes = |asked: &[&str]| asked.iter().filter(|what| what.starts_with("persistentvolumes ")).count();
    assert_eq!(volumes(&asked), CLAIMS, "{trace}");
    assert_eq!(asked.iter().filter(|what| is_event(what)).count(), CLAIMS, "{trace}");
    let first = asked.iter().position(is_event);
    let saved = volumes(&asked[..first.unwrap_or_default()]);
    assert!(saved >= CLAIMS - API_CONCURRENCY, "events begin after {saved} volumes of {CLAIMS}:\n{trace}");
}
