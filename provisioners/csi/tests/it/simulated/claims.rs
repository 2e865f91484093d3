//! Tests of claims on a simulated cluster, with an in-memory driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use csi_sim::{Capability, Method, Step};
use driver_rpc::Code;
use driver_rpc::csi::controller_service_capability::rpc::Type as Rpc;
use driver_rpc::csi::{CreateVolumeResponse, DeleteVolumeRequest, Volume};
use kube_provisioner::Options;
use kube_sim::{Before, DeleteOptions, PatchKind, Target, Verb};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, before, cluster};

#[tokio::test(start_paused = true)]
async fn invalid_class_parameters_are_reported_without_calls() {
    let fixture = Fixture::new();
    fixture.class("bad", json!({"csi.storage.k8s.io/unknown": "x"}));
    let _running = fixture.start(1).await;
    fixture.claim("a", "bad", json!({}));
    fixture.wait_for_event("a", "unknown parameter csi.storage.k8s.io/unknown").await;
    sleep(Duration::from_secs(600)).await;
    assert!(fixture.creations().is_empty() && !fixture.is_bound("a"));
}

/// This happens when a release moves to another namespace. The driver's name is unique in the cluster.
#[tokio::test(start_paused = true)]
async fn provisioner_moved_to_another_namespace_deletes_older_volumes() {
    let fixture = Fixture::new();
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "storage"}}));
    let before = fixture.start_with(1, |options| options.sidecar_rbac = true).await;
    let name = fixture.claim("a", "fast", json!({}));
    fixture.until("bound", || fixture.is_bound("a")).await;
    before.abort();
    let moved = |options: &mut Options| {
        options.sidecar_rbac = true;
        options.namespace = Some("storage".to_owned());
    };
    let _running = fixture.start_with(2, moved).await;
    fixture.delete_claim("a");
    fixture.until("deleted", || fixture.volume(&name).is_none()).await;
    assert!(fixture.driver.volumes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn provisions_and_deletes_a_volume() {
    let mut fixture = Fixture::new();
    fixture.settings.extra_create_metadata = true;
    fixture.settings.controller_publish_read_only = true;
    fixture.class(
        "secret",
        json!({
            "csi.storage.k8s.io/fstype": "xfs", "pool": "a",
            "csi.storage.k8s.io/secret-name": "${pvc.annotations['example.com/team']}",
            "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
        }),
    );
    fixture.secret("red", "hunter2");
    let _running = fixture.start(1).await;
    let change = json!({
        "metadata": {"annotations": {"example.com/team": "red"}}, "spec": {"accessModes": ["ReadOnlyMany"]},
    });
    let name = fixture.claim("a", "secret", change);
    fixture.until("bound", || fixture.is_bound("a")).await;

    let request = fixture.creations().remove(0);
    assert_eq!(request.name, name);
    assert_eq!(request.secrets.get("password"), Some("hunter2"));
    let parameters = [
        ("csi.storage.k8s.io/pv/name", &*name),
        ("csi.storage.k8s.io/pvc/name", "a"),
        ("csi.storage.k8s.io/pvc/namespace", "default"),
        ("pool", "a"),
    ];
    let sent: Vec<_> = request.parameters.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(sent, parameters);

    let volume = fixture.volume(&name).unwrap();
    let secret = json!({"name": "red", "namespace": "default"});
    let expected = json!({
        "driver": "csi-sim.example.com", "volumeHandle": fixture.driver.volumes()[0].volume_id, "fsType": "xfs", "readOnly": true,
        "volumeAttributes": {"pool": "pool-1", "storage.kubernetes.io/csiProvisionerIdentity": "process-1"},
        "controllerPublishSecretRef": secret, "nodeStageSecretRef": secret, "nodePublishSecretRef": secret,
        "controllerExpandSecretRef": secret, "nodeExpandSecretRef": secret,
    });
    assert_eq!(volume["spec"]["csi"], expected);
    let annotations = &volume["metadata"]["annotations"];
    for (key, value) in [("provisioner-deletion-secret-name", "red"), ("controller-modify-secret-namespace", "default")]
    {
        assert_eq!(annotations[format!("volume.kubernetes.io/{key}")], value);
    }

    fixture.delete_claim("a");
    fixture.until("gone", || fixture.volume(&name).is_none()).await;
    assert!(fixture.driver.volumes().is_empty());
    let deletions: Vec<DeleteVolumeRequest> = fixture.driver.requests();
    assert_eq!((deletions.len(), deletions[0].secrets.get("password")), (1, Some("hunter2")));
}

#[tokio::test(start_paused = true)]
async fn claim_deleted_during_a_crash_leaves_no_volume() {
    for latency in [0, 3, 30] {
        let fixture = Fixture::new();
        let running = fixture.start(1).await;
        fixture.driver.configure(|settings| settings.latency = Duration::from_secs(latency));
        let name = fixture.claim("a", "fast", json!({}));
        fixture.until("asked", || !fixture.creations().is_empty()).await;
        running.abort();
        fixture.delete_claim("a");
        sleep(Duration::from_secs(latency + 60)).await;
        fixture.driver.configure(|settings| settings.latency = Duration::ZERO);
        let _running = fixture.start(2).await;
        fixture.until("no volume", || fixture.driver.volumes().is_empty() && fixture.volume(&name).is_none()).await;
        sleep(Duration::from_secs(900)).await;
        assert!(fixture.driver.volumes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_deletions_do_not_delay_a_new_volume() {
    let fixture = Fixture::new();
    let _running = fixture.start_with(1, |options| options.max_concurrent_calls = 1).await;
    fixture.claim("old", "fast", json!({}));
    fixture.until("bound", || fixture.is_bound("old")).await;
    fixture.driver.script(Method::DeleteVolume, vec![Step::hang(); 100]);
    fixture.delete_claim("old");
    fixture.until("called", || !fixture.driver.requests::<DeleteVolumeRequest>().is_empty()).await;
    let start = Instant::now();
    fixture.claim("new", "fast", json!({}));
    fixture.wait_for_event("new", "ProvisioningSucceeded").await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unusable_volume_is_deleted() {
    let fixture = Fixture::new();
    let small = Volume { volume_id: "small".into(), capacity_bytes: 1, ..Volume::default() };
    fixture.driver.script(Method::CreateVolume, [Step::answer(CreateVolumeResponse { volume: Some(small) })]);
    let _running = fixture.start(1).await;
    fixture.claim("a", "fast", json!({}));
    fixture.until("bound", || fixture.is_bound("a")).await;
    fixture.wait_for_event("a", "created a volume of 1 bytes, but the claim asks for 1073741824").await;
    let deletions: Vec<DeleteVolumeRequest> = fixture.driver.requests();
    assert_eq!(deletions.iter().map(|one| &*one.volume_id).collect::<Vec<_>>(), ["small"]);
}

#[tokio::test(start_paused = true)]
async fn missing_secret_is_reported_and_the_driver_is_not_called() {
    let fixture = Fixture::new();
    fixture.class_with_secret("secret", "late");
    let _running = fixture.start(1).await;
    let name = fixture.claim("a", "secret", json!({}));
    fixture.wait_for_event("a", "the Secret default/late does not exist; create it").await;
    assert!(fixture.creations().is_empty());
    fixture.secret("late", "hunter2");
    fixture.until("bound", || fixture.is_bound("a")).await;
    // A driver may delete without the Secret, as some drivers do with external-provisioner.
    fixture.delete("", "secrets", "default", "late");
    fixture.driver.script(Method::DeleteVolume, [Step::refuse(Code::Unauthenticated, "no password")]);
    fixture.delete_claim("a");
    fixture.wait_for_event(&name, "the Secret default/late, which the volume or its class names, does not exist").await;
    fixture.until("gone", || fixture.volume(&name).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn secret_that_is_not_utf8_is_reported() {
    let fixture = Fixture::new();
    fixture.class_with_secret("secret", "raw");
    fixture.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "raw", "namespace": "default"}, "data": {"key": "/w=="},
    }));
    let _running = fixture.start(1).await;
    fixture.claim("a", "secret", json!({}));
    fixture.wait_for_event("a", "the value of key in the Secret default/raw is not valid UTF-8").await;
    assert!(fixture.creations().is_empty());
}

/// A chart's new version may have other flags, and another driver.
#[tokio::test(start_paused = true)]
async fn attempt_repeats_its_request_after_flags_and_driver_changed() {
    let mut fixture = Fixture::new();
    let busy = Step::refuse(Code::Aborted, "the volume is at 5 %").working();
    fixture.driver.script(Method::CreateVolume, vec![busy; 5]);
    let former = fixture.start(1).await;
    fixture.claim("a", "fast", json!({}));
    fixture.wait_for_event("a", "the volume is at 5 %").await;
    former.abort();
    fixture.settings.default_fs_type = Some("xfs".to_owned());
    fixture.settings.extra_create_metadata = true;
    let single_node = Capability::Controller(Rpc::SingleNodeMultiWriter);
    fixture.driver.configure(|settings| settings.capabilities.retain(|one| *one != single_node));
    let _running = fixture.start(2).await;
    fixture.until("bound", || fixture.is_bound("a")).await;
    let calls = fixture.creations();
    assert!(calls.len() > 5 && calls.iter().all(|call| *call == calls[0]), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn event_contains_the_drivers_message_once() {
    let fixture = Fixture::new();
    fixture.driver.script(Method::CreateVolume, [Step::refuse(Code::Internal, "the pool is on fire")]);
    let _running = fixture.start(1).await;
    fixture.claim("a", "fast", json!({"spec": {"volumeAttributesClassName": ""}}));
    fixture.wait_for_event("a", "Internal: the pool is on fire").await;
    assert!(fixture.events("a").iter().all(|event| event.matches("on fire").count() <= 1), "{:?}", fixture.events("a"));
    // The API server would reject a volume with an empty VolumeAttributesClass name.
    fixture.until("bound", || fixture.is_bound("a")).await;
}

#[tokio::test(start_paused = true)]
async fn status_code_determines_whether_an_attempt_has_ended() {
    for (code, is_over) in [
        (Code::ResourceExhausted, true),
        (Code::PermissionDenied, true),
        (Code::Internal, false),
        (Code::Unavailable, false),
        (Code::DeadlineExceeded, false),
    ] {
        let fixture = Fixture::new();
        fixture.driver.script(Method::CreateVolume, vec![Step::refuse(code, "not now"); 3]);
        let _running = fixture.start(1).await;
        fixture.claim("a", "fast", json!({}));
        fixture.wait_for_event("a", "not now").await;
        let asked = fixture.creations().len();
        fixture.delete_claim("a");
        sleep(Duration::from_secs(1800)).await;
        assert_eq!(fixture.creations().len() == asked, is_over, "{code:?}");
        assert!(fixture.driver.volumes().is_empty(), "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_request_is_retried_after_the_longest_pause() {
    let fixture = Fixture::new();
    fixture.driver.script(Method::CreateVolume, [Step::refuse(Code::InvalidArgument, "no such pool")]);
    let _running = fixture.start(1).await;
    fixture.claim("a", "fast", json!({}));
    fixture.wait_for_event("a", "no such pool").await;
    sleep(Duration::from_secs(280)).await;
    assert_eq!(fixture.creations().len(), 1);
    fixture.until("bound", || fixture.is_bound("a")).await;
}

#[tokio::test(start_paused = true)]
async fn does_not_delete_an_attached_volume() {
    let fixture = Fixture::new();
    let _running = fixture.start(1).await;
    let name = fixture.claim("a", "fast", json!({}));
    fixture.until("bound", || fixture.is_bound("a")).await;
    fixture.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-1"},
        "spec": {"attacher": "csi-sim.example.com", "nodeName": "node-7", "source": {"persistentVolumeName": name}},
    }));
    fixture.delete_claim("a");
    fixture.wait_for_event(&name, "still attached to node node-7").await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.driver.volumes().len(), 1);
    fixture.delete("storage.k8s.io", "volumeattachments", "", "csi-1");
    // After ten minutes the back-off is long, but deletion does not wait for it.
    let detached = Instant::now();
    fixture.until("gone", || fixture.volume(&name).is_none()).await;
    assert!(detached.elapsed() < Duration::from_secs(2), "{:?}", detached.elapsed());
    assert!(fixture.driver.volumes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn retries_use_the_volume_attributes_class_of_the_first_call() {
    let fixture = Fixture::new();
    fixture.driver.script(Method::CreateVolume, [Step::break_connection()]);
    fixture.driver.configure(|settings| settings.latency = Duration::from_secs(5));
    let running = fixture.start(1).await;
    fixture.claim("a", "fast", json!({"spec": {"volumeAttributesClassName": "silver"}}));
    fixture.wait_for_event("a", "the VolumeAttributesClass silver does not exist; create it").await;
    fixture.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "silver"},
        "driverName": "csi-sim.example.com", "parameters": {"iops": "100"},
    }));
    fixture.until("asked", || !fixture.creations().is_empty()).await;
    running.abort();
    // The class is removed by force.
    let target = Target { group: "storage.k8s.io", plural: "volumeattributesclasses", namespace: "", name: "silver" };
    fixture.cluster.delete(&target, DeleteOptions::default()).unwrap();
    let patch = json!({"metadata": {"finalizers": null}});
    fixture.cluster.patch(&target, None, PatchKind::Merge, &patch).unwrap();
    let _running = fixture.start(2).await;
    fixture.until("bound", || fixture.is_bound("a")).await;
    let parameters: Vec<_> = fixture.creations().iter().map(|one| one.mutable_parameters["iops"].clone()).collect();
    assert!(parameters.len() > 1 && parameters.iter().all(|iops| iops == "100"), "{parameters:?}");
}

/// Returns a claim with much text in annotations, labels and other fields.
fn large(name: &str, namespace: &str, class: &str) -> serde_json::Value {
    let labels: serde_json::Map<_, _> = (0..300).map(|number| (format!("l{number}"), json!("x".repeat(60)))).collect();
    let limits: serde_json::Map<_, _> =
        (0..300).map(|number| (format!("example.com/{}{number}", "x".repeat(50)), json!("1"))).collect();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels, "annotations": {"notes": "x".repeat(20_000), "team": "blue"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}, "limits": limits},
        },
    })
}

/// The journal is a Lease, which has the least space.
#[tokio::test(start_paused = true)]
async fn large_claims_leave_journal_space_to_other_namespaces() {
    let fixture = Fixture::new();
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    let _running = fixture.start_with(1, |options| options.sidecar_rbac = true).await;
    fixture.driver.script(Method::CreateVolume, vec![Step::hang(); 26]);
    for number in 0..26 {
        fixture.create(large(&format!("a{number}"), "default", "fast"));
    }
    fixture.until("asked", || fixture.creations().len() >= 26).await;
    fixture.create(large("b", "other", "fast"));
    let is_bound = || {
        let claim = fixture.cluster.get("", "persistentvolumeclaims", "other", "b").unwrap();
        claim["status"]["phase"] == "Bound"
    };
    let asked = Instant::now();
    fixture.until("bound", is_bound).await;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

/// Creates the class `secret`, whose Secret is named by the claim's annotation `team`, and the Secret of the team blue.
fn class_with_secret_of_team(fixture: &Fixture) {
    fixture.secret("of-blue", "sesame");
    fixture.class_with_secret("secret", "of-${pvc.annotations['team']}");
}

/// The record contains the annotation that the class names.
#[tokio::test(start_paused = true)]
async fn next_process_uses_the_recorded_annotations() {
    let fixture = Fixture::new();
    class_with_secret_of_team(&fixture);
    let before = fixture.start_with(1, |options| options.sidecar_rbac = true).await;
    fixture.driver.script(Method::CreateVolume, [Step::hang()]);
    fixture.create(large("a", "default", "secret"));
    fixture.until("asked", || fixture.creations().len() == 1).await;
    before.abort();
    fixture.delete_claim("a");
    let _running = fixture.start_with(2, |options| options.sidecar_rbac = true).await;
    fixture.until("asked again", || fixture.creations().len() > 1).await;
    let [first, next] = &fixture.creations()[..2] else { panic!() };
    assert_eq!(first, next);
    assert_eq!(next.secrets.get("password"), Some("sesame"));
    fixture.until("removed", || fixture.driver.volumes().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn missing_annotation_is_noticed_as_soon_as_it_is_set() {
    let fixture = Fixture::new();
    class_with_secret_of_team(&fixture);
    let _running = fixture.start(1).await;
    fixture.claim("a", "secret", json!({}));
    fixture.wait_for_event("a", "has tokens without a value: pvc.annotations['team']").await;
    sleep(Duration::from_secs(4000)).await;
    fixture.change_claim("a", json!({"metadata": {"annotations": {"team": "blue"}}}));
    fixture.soon("bound", || fixture.is_bound("a")).await;
    assert_eq!(fixture.creations()[0].secrets.get("password"), Some("sesame"));
}

#[tokio::test(start_paused = true)]
async fn awaited_objects_are_noticed_within_ten_seconds_at_low_cost() {
    let requests = Arc::new([0, 0].map(AtomicUsize::new));
    let counted = requests.clone();
    let count = before(move |request| {
        match (&*request.resource.plural, request.verb) {
            ("secrets", Verb::Get) => counted[0].fetch_add(1, Ordering::Relaxed),
            ("configmaps", Verb::Update) => counted[1].fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Before::Handle
    });
    let mut fixture = Fixture::on(cluster().interceptor(count).build());
    fixture.settings.retry_interval_max = Duration::from_secs(1800);
    fixture.class_with_secret("locked", "admin");
    let _running = fixture.start(1).await;
    let names: Vec<String> = (0..50).map(|number| format!("a{number}")).collect();
    names.iter().for_each(|name| drop(fixture.claim(name, "locked", json!({}))));
    fixture.claim("gold", "fast", json!({"spec": {"volumeAttributesClassName": "gold"}}));
    fixture.wait_for_event("a7", "the Secret default/admin does not exist; create it").await;
    fixture.wait_for_event("gold", "the VolumeAttributesClass gold does not exist; create it").await;
    sleep(Duration::from_secs(60)).await;
    let counts = || [0, 1].map(|kind: usize| requests[kind].load(Ordering::Relaxed));
    let before = counts();
    sleep(Duration::from_secs(600)).await;
    let [secrets, journal] = [0, 1].map(|at| counts()[at] - before[at]);
    assert!(secrets <= 160 && journal == 0, "{secrets} {journal}");
    fixture.secret("admin", "sesame");
    let since = Instant::now();
    fixture.until("bound", || names.iter().all(|name| fixture.is_bound(name))).await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    fixture.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
        "driverName": "csi-sim.example.com", "parameters": {"tier": "gold"},
    }));
    let since = Instant::now();
    fixture.until("bound", || fixture.is_bound("gold")).await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}
