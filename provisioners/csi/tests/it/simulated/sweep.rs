//! Finalizers that another process has left on sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csi_sim::{Method, Step};
use driver_rpc::Code;
use kube_sim::{Before, DeleteOptions, PatchKind, Target, Verb};
use provisioner_runtime::journal::{JournalKind, request_drop};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{Fixture, before, cluster};
use super::sources::{CLAIM_FINALIZER, SNAPSHOT_FINALIZER, of_claim, of_snapshot};

impl Fixture {
    /// Adds the finalizer that external-provisioner leaves on a copied claim.
    fn protect(&self, target: &Target<'_>, finalizer: &str) {
        let patch = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]);
        self.cluster.patch(target, None, PatchKind::Json, &patch).unwrap();
    }

    pub(super) fn protect_claim(&self, name: &str) {
        let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name };
        self.protect(&target, CLAIM_FINALIZER);
    }

    pub(super) fn is_claim_there(&self, name: &str) -> bool {
        self.cluster.get("", "persistentvolumeclaims", "default", name).is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn removes_finalizers_left_by_external_provisioner() {
    let fixture = Fixture::new();
    fixture.define_snapshots();
    let running = fixture.start(1).await;
    let source = fixture.source().await;
    let [_, lost] = ["other", "lost"].map(|claim| fixture.claim(claim, "fast", json!({})));
    fixture.until("bound", || fixture.is_bound("other") && fixture.is_bound("lost")).await;
    for (snapshot, driver) in [("monday", "csi-sim.example.com"), ("foreign", "other.example.com")] {
        fixture.snapshot(snapshot, &source, json!({"content": {"spec": {"driver": driver}}})).await;
        fixture.protect(&Fixture::snapshot_target(snapshot), SNAPSHOT_FINALIZER);
    }
    running.abort();
    fixture.protect_claim("source");
    fixture.protect_claim("other");
    // The volume of a lost claim no longer exists.
    fixture.protect_claim("lost");
    let volume = Target { group: "", plural: "persistentvolumes", namespace: "", name: &lost };
    fixture.cluster.delete(&volume, DeleteOptions::default()).unwrap();
    fixture.cluster.patch(&volume, None, PatchKind::Merge, &json!({"metadata": {"finalizers": null}})).unwrap();
    // The volume belongs to another driver, which uses the same finalizers.
    let foreign = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "foreign"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "slow",
            "csi": {"driver": "other.example.com", "volumeHandle": "1"},
        },
    });
    fixture.create(foreign);
    fixture.claim("foreign", "slow", json!({"spec": {"volumeName": "foreign"}}));
    fixture.until("bound", || fixture.is_bound("foreign")).await;
    fixture.protect_claim("foreign");
    for claim in ["source", "lost", "foreign"] {
        fixture.delete_claim(claim);
    }
    sleep(Duration::from_secs(60)).await;
    assert!(fixture.is_claim_there("source"));

    let _running = fixture.start(2).await;
    for claim in ["source", "lost"] {
        fixture.until("gone", || !fixture.is_claim_there(claim)).await;
    }
    fixture.until("unprotected", || !fixture.is_claim_held("other")).await;
    fixture.until("unprotected", || !fixture.is_snapshot_held("monday")).await;
    sleep(Duration::from_secs(7200)).await;
    assert!(fixture.is_claim_held("foreign") && fixture.is_snapshot_held("foreign"));
}

/// external-provisioner may have begun to restore it.
#[tokio::test(start_paused = true)]
async fn a_source_stays_protected_while_a_claim_waits_for_it() {
    let fixture = Fixture::new();
    fixture.define_snapshots();
    let running = fixture.start(1).await;
    let source = fixture.source().await;
    // The claim is too small, so no attempt of ours begins.
    fixture.snapshot("monday", &source, json!({"snapshot": {"status": {"restoreSize": "2Gi"}}})).await;
    running.abort();
    fixture.protect(&Fixture::snapshot_target("monday"), SNAPSHOT_FINALIZER);
    fixture.claim("copy", "fast", of_snapshot("monday"));
    let _running = fixture.start(2).await;
    fixture.wait_for_event("copy", "ask for more").await;
    sleep(Duration::from_secs(7200)).await;
    assert!(fixture.is_snapshot_held("monday"));
    fixture.delete_claim("copy");
    fixture.until("unprotected", || !fixture.is_snapshot_held("monday")).await;
}

#[tokio::test(start_paused = true)]
async fn protected_claim_is_copied_before_its_deletion() {
    let fixture = Fixture::new();
    let running = fixture.start(1).await;
    fixture.source().await;
    running.abort();
    fixture.protect_claim("source");
    fixture.claim("copy", "fast", of_claim("source"));
    fixture.delete_claim("source");
    let _running = fixture.start(2).await;
    fixture.until("bound", || fixture.is_bound("copy")).await;
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
}

#[tokio::test(start_paused = true)]
async fn needed_source_stays_protected_across_a_restart() {
    let fixture = Fixture::new();
    let running = fixture.start(1).await;
    fixture.source().await;
    let at_work = || Step::refuse(Code::Aborted, "the copy is at 5 %");
    fixture.driver.script(Method::CreateVolume, std::iter::repeat_with(at_work).take(10));
    fixture.claim("copy", "fast", of_claim("source"));
    fixture.wait_for_event("copy", "the copy is at 5 %").await;
    running.abort();
    fixture.delete_claim("source");
    let _running = fixture.start(2).await;
    while !fixture.is_bound("copy") {
        assert!(fixture.is_claim_held("source"));
        sleep(Duration::from_millis(20)).await;
    }
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
}

#[tokio::test(start_paused = true)]
async fn source_of_a_dropped_attempt_is_released() {
    let fixture = Fixture::new();
    let _running = fixture.start(1).await;
    fixture.source().await;
    let refused = || Step::refuse(Code::Internal, "the pool is on fire");
    fixture.driver.script(Method::CreateVolume, std::iter::repeat_with(refused).take(1000));
    let copy = fixture.claim("copy", "fast", of_claim("source"));
    fixture.wait_for_event("copy", "the pool is on fire").await;
    for claim in ["copy", "source"] {
        fixture.delete_claim(claim);
    }
    sleep(Duration::from_secs(60)).await;
    let journals = fixture.cluster.list("", "configmaps", Some("default")).unwrap();
    let journal = journals.iter().find(|journal| journal["data"].get("entries").is_some()).unwrap();
    let (client, journal) = (fixture.cluster.client("administrator"), journal["metadata"]["name"].as_str().unwrap());
    request_drop(&client, JournalKind::ConfigMap, "default", journal, &copy).await.unwrap();
    assert!(fixture.is_claim_held("source"));
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
}

#[tokio::test(start_paused = true)]
async fn failing_update_of_a_source_does_not_block_others() {
    let is_stubborn = Arc::new(AtomicBool::new(true));
    let stubborn = is_stubborn.clone();
    let break_updates = before(move |request| {
        let breaks = request.verb == Verb::Update && request.name == "broken" && stubborn.load(Ordering::Relaxed);
        if breaks { Before::Break } else { Before::Handle }
    });
    let fixture = Fixture::on(cluster().interceptor(break_updates).build());
    let running = fixture.start(1).await;
    for claim in ["broken", "source"] {
        fixture.claim(claim, "fast", json!({}));
        fixture.until("bound", || fixture.is_bound(claim)).await;
    }
    running.abort();
    for claim in ["broken", "source"] {
        fixture.protect_claim(claim);
    }
    let _running = fixture.start(2).await;
    fixture.until("unprotected", || !fixture.is_claim_held("source")).await;
    assert!(fixture.is_claim_held("broken"));
    // The sweep retries soon.
    is_stubborn.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(120)).await;
    assert!(!fixture.is_claim_held("broken"));
}
