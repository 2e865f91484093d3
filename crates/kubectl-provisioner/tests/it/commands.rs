//! Runs the commands while a provisioner is running.

use std::time::Duration;

use clap::Parser as _;
use kube_provisioner::{
    CancellationToken, Controller, DeleteError, Environment, Hooks, Options, ProvisionError, ProvisionRequest,
    ProvisionedVolume, Provisioner, Volume,
};
use kube_sim::{Actors, Cluster, SimClock};
use kubectl_provisioner::{Args, answer};
use serde_json::{Value, json};

struct Exports;

impl Provisioner for Exports {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        match request.claim.metadata.name.as_deref() {
            Some("full") => Err(ProvisionError::retry("the pool is full")),
            _ => Ok(Volume::nfs("server", format!("/{}", request.name))),
        }
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Exports {}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
    })
}

#[tokio::test(start_paused = true)]
async fn commands_report_the_state_of_a_running_provisioner() {
    let cluster = Cluster::builder().hide_managed_fields().build();
    let _actors = cluster.run(Actors::all());
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold"}, "provisioner": "example.com/p",
    });
    for object in [class, claim("data"), claim("full")] {
        cluster.create(&object).unwrap();
    }
    let mut options = Options::new("example.com/p");
    options.namespace = Some("default".to_owned());
    let environment = Environment::simulated(1, SimClock::EPOCH);
    let stop = CancellationToken::new();
    let controller = Controller::new(Exports, options).environment(environment);
    let running = tokio::spawn(controller.run_with(cluster.client("provisioner"), stop.clone()));
    let bound = |cluster: &Cluster| {
        let claim = cluster.get("", "persistentvolumeclaims", "default", "data");
        claim.is_ok_and(|claim| claim["status"]["phase"] == "Bound")
    };
    cluster.wait(Duration::from_secs(600), bound).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;

    let ask = async |command: &str| {
        let words = ["kubectl-provisioner"].into_iter().chain(command.split(' '));
        answer(&Args::try_parse_from(words).unwrap(), cluster.client("reader"), "default", environment).await
    };
    let text = ask("explain pvc data").await;
    assert!(text.starts_with("PersistentVolumeClaim default/data: bound\n"), "{text}");
    assert!(!text.contains("Not known:"), "{text}");
    let text = ask("explain pvc full").await;
    assert!(text.contains("and that fails") && text.contains("ProvisioningFailed: the pool is full"), "{text}");
    assert!(
        text.contains("has the Lease") && text.contains("an attempt is recorded in default/example.com-p-journal"),
        "{text}"
    );
    let listed: Value = serde_json::from_str(&ask("list -o json").await).unwrap();
    assert_eq!(
        (&listed["items"][0]["provisioner"], &listed["items"][0]["state"]),
        (&json!("example.com/p"), &json!("alive"))
    );
    assert!(ask("journal").await.contains("default/full"));
    let volume =
        cluster.list("", "persistentvolumes", None).unwrap()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let text = ask(&format!("explain pv {volume}")).await;
    assert!(text.starts_with(&format!("PersistentVolume {volume}: bound\n")), "{text}");
    assert_eq!(ask("orphans").await, "no orphans were found\n");
    // The cluster has no CustomResourceDefinition for ObjectBucketClaims.
    let text = ask("bucket photos").await;
    assert!(text.contains("cannot be read") && text.contains("does not serve this resource"), "{text}");

    stop.cancel();
    running.await.unwrap().unwrap();
    let text = ask("explain pvc full").await;
    assert!(text.contains("none; the Lease example.com-p was released"), "{text}");
}

#[test]
fn page_lists_every_kind_that_is_read() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (page, reader) = (read("../../docs/book/pages/use/kubectl-plugin.md"), read("src/reader.rs"));
    let kinds = reader.lines().filter(|line| line.contains(": Kind = kind("));
    let plurals: Vec<&str> = kinds.filter_map(|line| line.split('"').nth_back(3)).collect();
    assert!(plurals.len() >= 15, "{plurals:?}");
    for plural in plurals {
        assert!(page.contains(&format!("`{plural}`")), "the table of permissions lacks {plural}");
    }
}
