use std::time::Duration;

use kube_sim::{Actors, Cluster, Target};
use provisioner_runtime::access::check_access;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::controller::Controller;
use crate::{DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume};

fn options(coordination: Coordination, shards: u32) -> Options {
    Options { coordination, shards, ..Options::new("example.com/disks") }
}

/// Returns a short form of the permissions in the provisioner's own namespace.
fn needed(options: &Options, former: &[u32]) -> Vec<String> {
    let rules = rules(options, &Capabilities::default(), former);
    let short = |rule: &Rule| format!("{} {} {}", rule.verbs.join(","), rule.resource, rule.names.join(","));
    rules.iter().filter(|rule| rule.namespaced).map(|rule| short(rule).trim_end().to_owned()).collect()
}

#[test]
fn limits_verbs_to_known_object_names() {
    let one = [
        "get,update,delete configmaps example.com-disks-journal",
        "list,create configmaps",
        "get,update leases example.com-disks",
        "list,watch,create leases",
    ];
    assert_eq!(needed(&options(Coordination::Lease, 1), &[]), one);
    assert_eq!(needed(&options(Coordination::None, 9), &[]), one[..2]);
    let journals = "example.com-disks-journal,example.com-disks-journal-0-of-2,example.com-disks-journal-1-of-2";
    let two = [
        format!("get,update,delete configmaps {journals}"),
        "list,create configmaps".to_owned(),
        "get,list,watch,create,update,delete leases".to_owned(),
    ];
    assert_eq!(needed(&options(Coordination::Lease, 2), &[]), two);
    assert_eq!(needed(&options(Coordination::None, 1), &[2]), two[..2], "former journals are adopted");
}

#[test]
fn per_node_coordination_needs_no_lease_permissions() {
    assert_eq!(needed(&options(Coordination::PerNode, 1), &[]), ["get,list,create,update,delete configmaps"]);
}

#[test]
fn capabilities_add_permissions() {
    let options = options(Coordination::None, 1);
    let resources = |capabilities: Capabilities| {
        rules(&options, &capabilities, &[]).iter().map(|rule| rule.resource).collect::<Vec<_>>()
    };
    assert!(!resources(Capabilities::default()).iter().any(|resource| ["nodes", "secrets"].contains(resource)));
    assert!(resources(Capabilities::default().node_labels()).contains(&"nodes"));
    assert!(!resources(Capabilities::default()).contains(&"persistentvolumeclaims/status"));
    assert!(resources(Capabilities::default().expansion()).contains(&"persistentvolumeclaims/status"));
    assert!(resources(Capabilities::default().optional_secret("")).contains(&"secrets"));
}

#[test]
fn the_advice_contains_the_relevant_options() {
    let advice = |options| advice(&options, "storage").split_once(" rbac ").unwrap().1.to_owned();
    let plain = advice(options(Coordination::Lease, 1));
    assert!(plain.starts_with(
        "--provisioner-name example.com/disks --namespace storage --service-account ACCOUNT | kubectl apply -f - "
    ));
    assert!(advice(options(Coordination::PerNode, 1)).contains(" --coordination per-node "));
    assert!(advice(options(Coordination::Lease, 4)).contains(" --shards 4 "));
}

struct Disks;

impl Provisioner for Disks {
    type Parameters = ();
    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }
    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Disks {}

const CLAIM: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: example.com/disks
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {storageClassName: disks, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

/// An empty journal of two shards.
const JOURNAL: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: example.com-disks-journal-1-of-2
  namespace: default
  labels: {app.kubernetes.io/component: journal, app.kubernetes.io/instance: example.com-disks}
  annotations: {kube-provisioner/holder: other, kube-provisioner/layout: \"2\"}
data: {version: \"1\"}
";

/// Runs with exactly the permissions in the manifests.
#[tokio::test(start_paused = true)]
async fn the_generated_permissions_are_sufficient() {
    let modes = [(Coordination::Lease, 1), (Coordination::Lease, 2), (Coordination::None, 1)];
    for (coordination, shards) in modes {
        let options = Options { namespace: Some("default".to_owned()), ..options(coordination, shards) };
        let cluster = Cluster::builder().rbac().build();
        let _actors = cluster.run(Actors::all());
        let rules = rules(&options, &Capabilities::default(), &[2]);
        let account = Account { name: "disks", namespace: "default" };
        manifests(&account, &rules).iter().for_each(|object| drop(cluster.create(object).unwrap()));
        cluster.create_yaml(JOURNAL).unwrap();
        cluster.create_yaml(CLAIM).unwrap();
        let client = cluster.client("system:serviceaccount:default:disks");
        check_access(&client, "default", &rules).await.unwrap();
        let controller = Controller::new(Disks, options);
        let running = tokio::spawn(controller.run_with(client, CancellationToken::new()));
        let volumes = |cluster: &Cluster| cluster.list("", "persistentvolumes", None).unwrap();
        let journals = |cluster: &Cluster| cluster.list("", "configmaps", Some("default")).unwrap();
        let minute = Duration::from_secs(60);
        let bound = |cluster: &Cluster| volumes(cluster).iter().any(|volume| volume["status"]["phase"] == "Bound");
        cluster.wait(minute, bound).await.unwrap_or_else(|_| panic!("{coordination:?} {shards}: no volume"));
        let left = |cluster: &Cluster| {
            journals(cluster).iter().any(|map| map["metadata"]["name"] == "example.com-disks-journal-1-of-2")
        };
        // The journal remains only if it has the layout of these options.
        assert_eq!(left(&cluster), shards == 2);
        let claim =
            Target { plural: "persistentvolumeclaims", namespace: "default", name: "data", ..Target::default() };
        cluster.delete(&claim, Default::default()).unwrap();
        cluster.wait(minute, |cluster| volumes(cluster).is_empty()).await.unwrap();
        running.abort();
    }
}

/// Runs with the permissions that the charts of CSI drivers grant, with and without those for leader election.
#[tokio::test(start_paused = true)]
async fn the_permissions_of_a_csi_sidecar_are_sufficient() {
    for coordination in [Coordination::Lease, Coordination::None] {
        let options = Options {
            namespace: Some("default".to_owned()),
            sidecar_rbac: true,
            add_finalizer: false,
            lease_name: Some("example-com-disks".to_owned()),
            ..options(coordination, 1)
        };
        let cluster = Cluster::builder().rbac().build();
        let _actors = cluster.run(Actors::all());
        let mut rules = required_rules(&options, &Capabilities::default(), &[]);
        assert!(rules.iter().all(|rule| rule.resource != VOLUMES || !rule.verbs.contains(&"patch")));
        let elects = coordination == Coordination::Lease;
        rules.extend(elects.then(journal_leases));
        let account = Account { name: "disks", namespace: "default" };
        manifests(&account, &rules).iter().for_each(|object| drop(cluster.create(object).unwrap()));
        cluster.create_yaml(CLAIM).unwrap();
        let client = cluster.client("system:serviceaccount:default:disks");
        let running = tokio::spawn(Controller::new(Disks, options).run_with(client, CancellationToken::new()));
        let volumes = |cluster: &Cluster| cluster.list("", "persistentvolumes", None).unwrap();
        let reasons = |cluster: &Cluster| {
            let events = cluster.list("", "events", None).unwrap();
            events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let has_event = |cluster: &Cluster| reasons(cluster).iter().any(|reason| reason == "ProvisioningSucceeded");
        let minute = Duration::from_secs(60);
        cluster.wait(minute, has_event).await.unwrap_or_else(|_| panic!("{coordination:?}: no volume"));
        let leases = cluster.list("coordination.k8s.io", "leases", Some("default")).unwrap();
        let names: Vec<_> = leases.iter().map(|lease| lease["metadata"]["name"].as_str().unwrap()).collect();
        let expected: &[&str] = if elects { &["example-com-disks", "example.com-disks-journal"] } else { &[] };
        assert_eq!(names, expected);
        assert_eq!(reasons(&cluster).iter().any(|reason| reason == "JournalInMemory"), !elects);
        let claim =
            Target { plural: "persistentvolumeclaims", namespace: "default", name: "data", ..Target::default() };
        cluster.delete(&claim, Default::default()).unwrap();
        cluster.wait(minute, |cluster| volumes(cluster).is_empty()).await.unwrap();
        running.abort();
    }
}
