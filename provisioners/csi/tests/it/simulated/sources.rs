//! Volumes that are copied from a snapshot or another claim.

use std::sync::Arc;
use std::time::Duration;

use csi_sim::{Method, Step};
use driver_rpc::Code;
use driver_rpc::csi::Controller;
use driver_rpc::csi::volume_content_source::Type;
use driver_rpc::csi::{CreateSnapshotRequest, CreateVolumeRequest, CreateVolumeResponse, Volume};
use kube_sim::{DeleteOptions, Interceptor, PatchKind, Request, Status, Stored, Target, WatchInterceptor, WatchStep};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, cluster};

pub(super) const SNAPSHOT_FINALIZER: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
pub(super) const CLAIM_FINALIZER: &str = "provisioner.storage.kubernetes.io/cloning-protection";

pub(super) fn of_snapshot(name: &str) -> Value {
    json!({"spec": {"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}}})
}

pub(super) fn of_claim(name: &str) -> Value {
    json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": name}}})
}

impl Fixture {
    fn with_snapshots() -> Self {
        let fixture = Self::new();
        fixture.define_snapshots();
        fixture
    }

    pub(super) fn define_snapshots(&self) {
        const GROUP: &str = "snapshot.storage.k8s.io";
        self.define(GROUP, "v1", "VolumeSnapshot", "Namespaced");
        self.define(GROUP, "v1", "VolumeSnapshotContent", "Cluster");
    }

    /// Creates a snapshot of the claim's volume in external-snapshotter's format, with some changes.
    pub(super) async fn snapshot(&self, name: &str, volume: &str, change: Value) {
        let volume = self.volume(volume).unwrap();
        let source_volume_id = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned();
        let request = CreateSnapshotRequest { source_volume_id, name: name.to_owned(), ..Default::default() };
        let made = self.driver.create_snapshot(request).await.unwrap().snapshot.unwrap();
        let mut object = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": name, "namespace": "default", "finalizers": ["example.com/hold"]},
            "status": {"boundVolumeSnapshotContentName": format!("content-{name}"), "readyToUse": true, "restoreSize": "1Gi"},
        });
        kube_sim::merge_patch(&mut object, change.get("snapshot").cloned().unwrap_or_else(|| json!({})));
        let object = self.cluster.create(&object).unwrap();
        let mut content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": format!("content-{name}")},
            "spec": {
                "driver": "csi-sim.example.com", "sourceVolumeMode": "Filesystem",
                "volumeSnapshotRef": {"namespace": "default", "name": name, "uid": object["metadata"]["uid"]},
            },
            "status": {"snapshotHandle": made.snapshot_id},
        });
        kube_sim::merge_patch(&mut content, change.get("content").cloned().unwrap_or_else(|| json!({})));
        self.create(content);
    }

    pub(super) fn snapshot_target<'a>(name: &'a str) -> Target<'a> {
        Target { group: "snapshot.storage.k8s.io", plural: "volumesnapshots", namespace: "default", name }
    }

    fn finalizers(&self, group: &str, plural: &str, name: &str) -> Vec<String> {
        let object = self.cluster.get(group, plural, "default", name).unwrap();
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn is_snapshot_held(&self, name: &str) -> bool {
        self.finalizers("snapshot.storage.k8s.io", "volumesnapshots", name).iter().any(|one| one == SNAPSHOT_FINALIZER)
    }

    pub(super) fn is_claim_held(&self, name: &str) -> bool {
        self.finalizers("", "persistentvolumeclaims", name).iter().any(|one| one == CLAIM_FINALIZER)
    }

    pub(super) async fn source(&self) -> String {
        let name = self.claim("source", "fast", json!({}));
        self.until("bound", || self.is_bound("source")).await;
        name
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_protected_until_it_is_restored() {
    let fixture = Fixture::with_snapshots();
    let running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({})).await;
    let monday = fixture.driver.snapshots()[0].snapshot_id.clone();
    fixture.driver.configure(|settings| settings.latency = Duration::from_secs(8));
    fixture.claim("copy", "fast", of_snapshot("monday"));
    fixture.until("asked", || fixture.creations().len() == 2).await;
    assert!(fixture.is_snapshot_held("monday"));
    // The snapshot is deleted, and the process dies.
    fixture.cluster.delete(&Fixture::snapshot_target("monday"), DeleteOptions::default()).unwrap();
    running.abort();
    let _running = fixture.start(2).await;
    fixture.until("bound", || fixture.is_bound("copy")).await;
    fixture.until("released", || !fixture.is_snapshot_held("monday")).await;
    for request in &fixture.creations()[1..] {
        let Some(Type::Snapshot(snapshot)) = request.volume_content_source.clone().unwrap().r#type else { panic!() };
        assert_eq!(snapshot.snapshot_id, monday);
    }
}

#[tokio::test(start_paused = true)]
async fn claim_is_protected_until_the_last_clone_exists() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    fixture.source().await;
    let again = |code| Step::refuse(code, "the copy is at 5 %").working();
    fixture.driver.script(Method::CreateVolume, [again(Code::Aborted), again(Code::Aborted)]);
    fixture.claim("one", "fast", of_claim("source"));
    fixture.claim("two", "fast", of_claim("source"));
    fixture.wait_for_event("two", "the copy is at 5 %").await;
    assert!(fixture.is_claim_held("source"));
    fixture.delete_claim("source");
    for claim in ["one", "two"] {
        fixture.until("bound", || fixture.is_bound(claim)).await;
    }
    // The source is no longer protected.
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
    let clones = fixture.creations().iter().filter(|one| one.volume_content_source.is_some()).count();
    assert!(clones >= 2);
}

#[tokio::test(start_paused = true)]
async fn attempt_without_a_volume_releases_its_source() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({})).await;
    for (claim, code) in [("full", Code::ResourceExhausted), ("lost", Code::Unavailable)] {
        fixture.driver.script(Method::CreateVolume, vec![Step::refuse(code, "not now"); 2]);
        fixture.claim(claim, "fast", of_snapshot("monday"));
        fixture.wait_for_event(claim, "not now").await;
        fixture.delete_claim(claim);
        sleep(Duration::from_secs(600)).await;
        assert!(!fixture.is_snapshot_held("monday"), "{claim}");
        assert_eq!(fixture.driver.volumes().len(), 1, "{claim}");
    }
}

/// Each attempt adds its finalizer to the snapshot and removes it, which the watch shows.
#[tokio::test(start_paused = true)]
async fn our_finalizers_on_a_snapshot_do_not_end_the_back_off() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({})).await;
    let calls = || fixture.driver.requests::<CreateVolumeRequest>().len();
    let before = calls();
    fixture.driver.script(Method::CreateVolume, vec![Step::refuse(Code::InvalidArgument, "wrong"); 1000]);
    fixture.claim("data", "fast", of_snapshot("monday"));
    fixture.wait_for_event("data", "wrong").await;
    sleep(Duration::from_secs(240)).await;
    assert_eq!(calls() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn unsuitable_source_is_reported_and_the_driver_is_not_called() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    for (name, change) in [
        ("busy", json!({"snapshot": {"status": {"readyToUse": false}}})),
        ("unbound", json!({"snapshot": {"status": {"boundVolumeSnapshotContentName": null}}})),
        ("other", json!({"content": {"spec": {"driver": "other.example.com"}}})),
        ("stolen", json!({"content": {"spec": {"volumeSnapshotRef": {"uid": "x"}}}})),
        ("large", json!({"snapshot": {"status": {"restoreSize": "2Gi"}}})),
        ("number", json!({"snapshot": {"status": {"restoreSize": 3_u64 << 30}}})),
        ("block", json!({"content": {"spec": {"sourceVolumeMode": "Block"}}})),
        ("raw", json!({"content": {"status": {"snapshotHandle": null}}})),
    ] {
        fixture.snapshot(name, &source, change).await;
    }
    fixture.claim("waits", "fast", json!({"spec": {"storageClassName": "none"}}));
    for (claim, source, text) in [
        ("busy", of_snapshot("busy"), "the VolumeSnapshot busy is not ready yet"),
        ("unbound", of_snapshot("unbound"), "has no VolumeSnapshotContent yet"),
        ("other", of_snapshot("other"), "is of the driver other.example.com"),
        ("stolen", of_snapshot("stolen"), "belongs to another VolumeSnapshot"),
        ("large", of_snapshot("large"), "has 2147483648 bytes, and the claim asks for 1073741824; ask for more"),
        ("number", of_snapshot("number"), "has 3221225472 bytes, and the claim asks for 1073741824; ask for more"),
        ("block", of_snapshot("block"), "is of a volume of mode Block"),
        ("raw", of_snapshot("raw"), "has no snapshot handle yet"),
        ("missing", of_snapshot("missing"), "the VolumeSnapshot missing does not exist"),
        ("clone-of-waits", of_claim("waits"), "the source claim waits is not bound yet"),
        ("clone-of-nothing", of_claim("nothing"), "the source claim nothing does not exist"),
    ] {
        fixture.claim(claim, "fast", source);
        fixture.wait_for_event(claim, text).await;
        fixture.delete_claim(claim);
    }
    assert_eq!(fixture.creations().len(), 1);
    // A source that becomes ready is used.
    fixture.claim("late", "fast", of_snapshot("busy"));
    fixture.wait_for_event("late", "is not ready yet").await;
    let patch = json!({"status": {"readyToUse": true}});
    fixture.cluster.patch(&Fixture::snapshot_target("busy"), None, PatchKind::Merge, &patch).unwrap();
    fixture.until("bound", || fixture.is_bound("late")).await;
}

#[tokio::test(start_paused = true)]
async fn empty_volume_is_not_accepted_as_a_copy() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    fixture.source().await;
    let empty = Volume { volume_id: "empty".into(), capacity_bytes: 1 << 30, ..Volume::default() };
    fixture.driver.script(Method::CreateVolume, [Step::answer(CreateVolumeResponse { volume: Some(empty) })]);
    fixture.claim("copy", "fast", of_claim("source"));
    fixture.wait_for_event("copy", "created an empty volume, but the claim asks for a copy").await;
    fixture.until("bound", || fixture.is_bound("copy")).await;
}

#[tokio::test(start_paused = true)]
async fn provisions_as_soon_as_the_snapshot_is_ready() {
    let fixture = Fixture::with_snapshots();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({"snapshot": {"status": {"readyToUse": false}}})).await;
    fixture.claim("copy", "fast", of_snapshot("monday"));
    fixture.wait_for_event("copy", "not ready yet").await;
    sleep(Duration::from_secs(600)).await;
    let ready = json!({"status": {"readyToUse": true}});
    fixture.cluster.patch(&Fixture::snapshot_target("monday"), None, PatchKind::Merge, &ready).unwrap();
    let since = Instant::now();
    fixture.until("bound", || fixture.is_bound("copy")).await;
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
}

/// Ends each watch of snapshots at a change, as if its position were too old.
struct Gap;

impl WatchInterceptor for Gap {
    fn event(&mut self, kind: &'static str, _: &Stored) -> WatchStep {
        if kind == "MODIFIED" {
            WatchStep::Refuse(Status::expired("too old resource version"))
        } else {
            WatchStep::Deliver
        }
    }
}

impl Interceptor for Gap {
    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.resource.plural == "volumesnapshots").then(|| Box::new(Self) as Box<dyn WatchInterceptor>)
    }
}

#[tokio::test(start_paused = true)]
async fn notices_a_snapshot_that_became_ready_during_a_watch_gap() {
    let fixture = Fixture::on(cluster().interceptor(Arc::new(Gap)).build());
    fixture.define_snapshots();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({"snapshot": {"status": {"readyToUse": false}}})).await;
    fixture.claim("copy", "fast", of_snapshot("monday"));
    fixture.wait_for_event("copy", "not ready yet").await;
    sleep(Duration::from_secs(600)).await;
    let ready = json!({"status": {"readyToUse": true}});
    fixture.cluster.patch(&Fixture::snapshot_target("monday"), None, PatchKind::Merge, &ready).unwrap();
    let since = Instant::now();
    fixture.until("bound", || fixture.is_bound("copy")).await;
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

/// Another driver's sidecar removes the clone finalizer from every deleted claim as soon as no claim waits for it.
#[tokio::test(start_paused = true)]
async fn attempt_ends_after_its_source_is_deleted() {
    for has_copied in [false, true] {
        let fixture = Fixture::new();
        let _running = fixture.start(1).await;
        fixture.source().await;
        let refused = Step::refuse(Code::Unavailable, "the connection is lost");
        let first = if has_copied { refused.clone().working() } else { refused.clone() };
        fixture.driver.script(Method::CreateVolume, [first, refused]);
        fixture.claim("copy", "fast", of_claim("source"));
        fixture.wait_for_event("copy", "the connection is lost").await;
        fixture.delete_claim("source");
        fixture.delete_claim("copy");
        let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "source" };
        let patch = json!({"metadata": {"finalizers": null}});
        fixture.cluster.patch(&target, None, PatchKind::Merge, &patch).unwrap();
        fixture.until("ended", || fixture.is_idle()).await;
        assert!(fixture.driver.volumes().is_empty(), "{has_copied}");
    }
}

/// The finalizer is removed from a source that continues to exist.
#[tokio::test(start_paused = true)]
async fn restores_a_removed_finalizer_before_the_next_call() {
    let fixture = Fixture::new();
    let _running = fixture.start(1).await;
    fixture.source().await;
    fixture.driver.script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "the copy is at 5 %"); 20]);
    fixture.claim("copy", "fast", of_claim("source"));
    fixture.wait_for_event("copy", "the copy is at 5 %").await;
    let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "source" };
    fixture.cluster.patch(&target, None, PatchKind::Merge, &json!({"metadata": {"finalizers": null}})).unwrap();
    let calls = fixture.creations().len();
    fixture.until("asked again", || fixture.creations().len() > calls).await;
    assert!(fixture.is_claim_held("source"));
}
