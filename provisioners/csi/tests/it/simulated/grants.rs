//! Volumes that are copied from a source in another namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csi_sim::{Method, Step};
use driver_rpc::Code;
use driver_rpc::csi::volume_content_source::Type;
use kube_sim::{Attributes, Authorizer, Before, Builder, Cluster, Decision, DeleteOptions, Verb};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, before, cluster};
use super::sources;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// Returns the changes for a claim in this namespace with a source in `default`.
fn across(namespace: &str, group: &str, kind: &str, name: &str) -> Value {
    let group = Some(group).filter(|group| !group.is_empty());
    let source = json!({"apiGroup": group, "kind": kind, "name": name, "namespace": "default"});
    json!({"metadata": {"namespace": namespace}, "spec": {"dataSourceRef": source}})
}

fn of_snapshot(namespace: &str) -> Value {
    across(namespace, SNAPSHOTS, "VolumeSnapshot", "monday")
}

fn of_claim(namespace: &str) -> Value {
    across(namespace, "", "PersistentVolumeClaim", "source")
}

impl Fixture {
    /// Adds the API server's feature gate, snapshots, and the namespaces `dev` and `test`.
    fn across_namespaces(cluster: Cluster) -> Self {
        let mut fixture = Self::on(cluster);
        fixture.settings.cross_namespace_data_sources = true;
        fixture.define_snapshots();
        for name in ["dev", "test"] {
            fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        fixture
    }

    fn with_grants() -> Self {
        let fixture = Self::across_namespaces(gated().build());
        fixture.define_grants();
        fixture
    }

    fn define_grants(&self) {
        self.define("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "Namespaced");
    }

    /// Creates a grant in `default` for the claims in a namespace.
    fn grant(&self, namespace: &str, group: &str, kind: &str) {
        self.create(json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": format!("for-{namespace}"), "namespace": "default"},
            "spec": {
                "from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}],
                "to": [{"group": group, "kind": kind}],
            },
        }));
    }

    fn remove_grant(&self, namespace: &str) {
        let name = format!("for-{namespace}");
        self.delete("gateway.networking.k8s.io", "referencegrants", "default", &name);
    }

    fn delete_claim_of(&self, namespace: &str, name: &str) {
        self.delete("", "persistentvolumeclaims", namespace, name);
    }

    fn is_bound_in(&self, namespace: &str, name: &str) -> bool {
        let claim = self.cluster.get("", "persistentvolumeclaims", namespace, name);
        claim.is_ok_and(|claim| claim["status"]["phase"] == "Bound")
    }

    /// Returns true if no attempt is recorded.
    pub(super) fn is_idle(&self) -> bool {
        let journals = self.cluster.list("", "configmaps", Some("default")).unwrap();
        journals.iter().all(|journal| journal["data"].get("entries").is_none())
    }

    /// Returns the ids of the sources in the CreateVolume calls.
    fn copied(&self) -> Vec<String> {
        let contents = self.creations().into_iter().filter_map(|request| request.volume_content_source?.r#type);
        let ids = contents.map(|content| match content {
            Type::Snapshot(snapshot) => snapshot.snapshot_id,
            Type::Volume(volume) => volume.volume_id,
        });
        ids.collect()
    }
}

fn gated() -> Builder {
    cluster().cross_namespace_data_sources()
}

#[tokio::test(start_paused = true)]
async fn provisions_as_soon_as_the_source_is_granted() {
    for (group, kind) in [(SNAPSHOTS, "VolumeSnapshot"), ("", "PersistentVolumeClaim")] {
        let fixture = Fixture::with_grants();
        let _running = fixture.start(1).await;
        let source = fixture.source().await;
        fixture.snapshot("source", &source, json!({})).await;
        fixture.claim("copy", "fast", across("dev", group, kind, "source"));
        let text = format!(
            "no ReferenceGrant in the namespace default allows claims in the namespace dev to use the {kind} source; \
             create one there, of gateway.networking.k8s.io/v1beta1, from {{group: \"\", kind: PersistentVolumeClaim, \
             namespace: dev}} to {{group: \"{group}\", kind: {kind}, name: source}}"
        );
        fixture.wait_for_event("copy", &text).await;
        // A grant for other claims does not help.
        fixture.grant("test", group, kind);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(fixture.creations().len(), 1, "{kind}");
        assert!(!fixture.is_claim_held("source") && !fixture.is_snapshot_held("source"), "{kind}");
        fixture.grant("dev", group, kind);
        let since = Instant::now();
        fixture.until("bound", || fixture.is_bound_in("dev", "copy")).await;
        assert!(since.elapsed() < Duration::from_secs(2), "{kind}: {:?}", since.elapsed());
        let id = match group {
            "" => fixture.driver.volumes()[0].volume_id.clone(),
            _ => fixture.driver.snapshots()[0].snapshot_id.clone(),
        };
        assert_eq!(fixture.copied(), [id], "{kind}");
        fixture.until("released", || !fixture.is_claim_held("source") && !fixture.is_snapshot_held("source")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn disabled_gate_does_not_copy_a_local_object_instead() {
    // Depending on its feature gate, the API server keeps or drops the reference.
    for (cluster, is_kept) in [(gated(), true), (cluster(), false)] {
        let mut fixture = Fixture::across_namespaces(cluster.build());
        fixture.settings.cross_namespace_data_sources = false;
        fixture.define_grants();
        fixture.grant("dev", "", "PersistentVolumeClaim");
        let _running = fixture.start(1).await;
        fixture.source().await;
        // The claim's own namespace contains an object with the same name.
        fixture.claim("source", "fast", json!({"metadata": {"namespace": "dev"}}));
        fixture.until("bound", || fixture.is_bound_in("dev", "source")).await;
        fixture.claim("copy", "fast", of_claim("dev"));
        if is_kept {
            let text = "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled";
            fixture.wait_for_event("copy", text).await;
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(fixture.creations().len(), 2);
        } else {
            fixture.until("bound", || fixture.is_bound_in("dev", "copy")).await;
        }
        assert_eq!(fixture.copied(), [""; 0], "{is_kept}");
    }
}

#[tokio::test(start_paused = true)]
async fn source_in_the_claims_namespace_needs_no_grant() {
    let fixture = Fixture::with_grants();
    let _running = fixture.start(1).await;
    fixture.source().await;
    fixture.claim("copy", "fast", of_claim("default"));
    fixture.until("bound", || fixture.is_bound("copy")).await;
    assert_eq!(fixture.copied().len(), 1);
}

/// The cases combine these: the first call has copied, the claim is deleted in the meantime, another process continues.
#[tokio::test(start_paused = true)]
async fn attempt_without_grant_stops_copying_and_releases_its_source() {
    for case in 0..8 {
        let [has_copied, is_deleted, is_killed] = [1, 2, 4].map(|bit| case & bit != 0);
        let fixture = Fixture::with_grants();
        let mut running = fixture.start(1).await;
        let source = fixture.source().await;
        fixture.snapshot("monday", &source, json!({})).await;
        fixture.grant("dev", SNAPSHOTS, "VolumeSnapshot");
        let refused = Step::refuse(Code::Unavailable, "the connection is lost");
        let first = if has_copied { refused.clone().working() } else { refused.clone() };
        fixture.driver.script(Method::CreateVolume, [vec![first], vec![refused; 8]].concat());
        fixture.claim("copy", "fast", of_snapshot("dev"));
        // The next attempt is minutes away.
        fixture.until("asked", || fixture.copied().len() == 9).await;
        sleep(Duration::from_secs(5)).await;
        if is_deleted {
            let refused = Step::refuse(Code::Unavailable, "the connection is lost");
            fixture.driver.script(Method::CreateVolume, vec![refused; 9]);
            fixture.delete_claim_of("dev", "copy");
            fixture.until("asked", || fixture.copied().len() == 18).await;
        }
        assert!(fixture.is_snapshot_held("monday"));
        let calls = fixture.copied().len();
        fixture.remove_grant("dev");
        let since = Instant::now();
        if is_killed {
            running.abort();
            running = fixture.start(2).await;
        }
        fixture.until("released", || !fixture.is_snapshot_held("monday")).await;
        fixture.until("removed", || fixture.driver.volumes().len() == 1 && fixture.is_idle()).await;
        assert!(since.elapsed() < Duration::from_secs(40), "{case}: {:?}", since.elapsed());
        if !is_deleted {
            fixture.wait_for_event("copy", "no ReferenceGrant in the namespace default").await;
        }
        // At most one more call with the source finds the existing volume.
        sleep(Duration::from_secs(600)).await;
        assert_eq!(fixture.copied().len() - calls, usize::from(has_copied), "{case}");
        assert!(!fixture.is_snapshot_held("monday") && fixture.driver.volumes().len() == 1, "{case}");
        running.abort();
    }
}

/// The driver works for longer than the source's owner is willing to wait.
#[tokio::test(start_paused = true)]
async fn source_without_grant_is_released_while_the_driver_works() {
    let fixture = Fixture::with_grants();
    let _running = fixture.start(1).await;
    let source = fixture.source().await;
    fixture.snapshot("monday", &source, json!({})).await;
    fixture.grant("dev", SNAPSHOTS, "VolumeSnapshot");
    fixture.driver.script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "the copy is at 5 %"); 20]);
    fixture.claim("copy", "fast", of_snapshot("dev"));
    fixture.wait_for_event("copy", "the copy is at 5 %").await;
    fixture.remove_grant("dev");
    sleep(Duration::from_secs(2)).await;
    assert!(!fixture.is_snapshot_held("monday"));
    // The attempt continues while the driver is working. With a new grant it can use the copy.
    fixture.grant("dev", SNAPSHOTS, "VolumeSnapshot");
    fixture.until("bound", || fixture.is_bound_in("dev", "copy")).await;
}

#[tokio::test(start_paused = true)]
async fn source_of_two_namespaces_is_protected_until_the_last_copy() {
    let fixture = Fixture::with_grants();
    let _running = fixture.start(1).await;
    fixture.source().await;
    for (namespace, seconds) in [("dev", 5), ("test", 60)] {
        fixture.grant(namespace, "", "PersistentVolumeClaim");
        let calls = fixture.creations().len();
        fixture.driver.script(Method::CreateVolume, [Step::work().after(Duration::from_secs(seconds))]);
        fixture.claim(namespace, "fast", of_claim(namespace));
        fixture.until("asked", || fixture.creations().len() > calls).await;
    }
    fixture.delete_claim("source");
    fixture.until("the first", || fixture.is_bound_in("dev", "dev")).await;
    sleep(Duration::from_secs(10)).await;
    assert!(!fixture.is_bound_in("test", "test") && fixture.is_claim_held("source"));
    fixture.until("the second", || fixture.is_bound_in("test", "test")).await;
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
    assert_eq!(fixture.copied().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn source_stays_protected_while_another_process_finishes_its_copies() {
    let fixture = Fixture::with_grants();
    let first = fixture.start(1).await;
    fixture.source().await;
    fixture.driver.script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "the copy is at 5 %"); 2]);
    for namespace in ["dev", "test"] {
        fixture.grant(namespace, "", "PersistentVolumeClaim");
        fixture.claim(namespace, "fast", of_claim(namespace));
    }
    fixture.until("asked", || fixture.copied().len() == 2).await;
    fixture.delete_claim("source");
    first.abort();
    // Calls are made one at a time.
    fixture.driver.configure(|settings| settings.latency = Duration::from_secs(8));
    let _second = fixture.start_with(2, |options| options.max_concurrent_calls = 1).await;
    let bound = || ["dev", "test"].into_iter().filter(|name| fixture.is_bound_in(name, name)).count();
    fixture.until("the first", || bound() == 1).await;
    sleep(Duration::from_secs(4)).await;
    assert!(bound() == 1 && fixture.is_claim_held("source"));
    fixture.until("the second", || bound() == 2).await;
    fixture.until("gone", || !fixture.is_claim_there("source")).await;
}

#[tokio::test(start_paused = true)]
async fn crash_between_finalizer_and_call_leaves_no_finalizer() {
    for is_deleted in [false, true] {
        let is_silent = Arc::new(AtomicBool::new(true));
        let silent = is_silent.clone();
        let hide_secrets = before(move |request| {
            let is_secret = request.verb == Verb::Get && request.resource.plural == "secrets";
            if is_secret && silent.load(Ordering::Relaxed) { Before::Hang } else { Before::Handle }
        });
        let fixture = Fixture::across_namespaces(gated().interceptor(hide_secrets).build());
        fixture.define_grants();
        fixture.grant("dev", "", "PersistentVolumeClaim");
        fixture.secret("admin", "s3cret");
        fixture.class_with_secret("locked", "admin");
        let first = fixture.start(1).await;
        fixture.source().await;
        fixture.claim("copy", "locked", of_claim("dev"));
        fixture.until("held", || fixture.is_claim_held("source")).await;
        first.abort();
        assert_eq!(fixture.copied(), [""; 0]);
        if is_deleted {
            fixture.delete_claim_of("dev", "copy");
        }
        is_silent.store(false, Ordering::Relaxed);
        let _second = fixture.start(2).await;
        fixture.until("released", || !fixture.is_claim_held("source")).await;
        sleep(Duration::from_secs(600)).await;
        assert!(!fixture.is_claim_held("source") && fixture.is_bound_in("dev", "copy") != is_deleted);
        assert_eq!(fixture.driver.volumes().len(), if is_deleted { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_claim_releases_its_source() {
    for code in [Code::Aborted, Code::Internal, Code::ResourceExhausted] {
        let fixture = Fixture::with_grants();
        let _running = fixture.start(1).await;
        let source = fixture.source().await;
        fixture.snapshot("monday", &source, json!({})).await;
        fixture.grant("dev", SNAPSHOTS, "VolumeSnapshot");
        let refused = Step::refuse(code, "not now");
        let refused = if code == Code::ResourceExhausted { refused } else { refused.working() };
        fixture.driver.script(Method::CreateVolume, vec![refused; 2]);
        fixture.claim("copy", "fast", of_snapshot("dev"));
        fixture.wait_for_event("copy", "not now").await;
        fixture.cluster.delete(&Fixture::snapshot_target("monday"), DeleteOptions::default()).unwrap();
        fixture.delete_claim_of("dev", "copy");
        sleep(Duration::from_secs(600)).await;
        assert!(!fixture.is_snapshot_held("monday"), "{code:?}");
        assert_eq!(fixture.driver.volumes().len(), 1, "{code:?}");
    }
}

/// Denies access to ReferenceGrants.
struct NoGrants;

impl Authorizer for NoGrants {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let allowed = !attributes.user.starts_with("sidecar") || attributes.resource != "referencegrants";
        Decision { allowed, reason: String::new() }
    }

    fn rules(&self, _: &str, _: &[String], _: &str) -> Value {
        Value::Null
    }
}

#[tokio::test(start_paused = true)]
async fn missing_grant_support_is_reported_and_blocks_no_other_claim() {
    let no_kind = ["the cluster does not have the ReferenceGrant API gateway.networking.k8s.io/v1beta1"];
    let no_right = [
        "the ReferenceGrants of the namespace default cannot be read: ",
        "; grant csi-provisioner the permissions list and watch for referencegrants in the API group gateway.networking.k8s.io",
    ];
    for (cluster, has_kind, texts) in
        [(gated(), false, &no_kind[..]), (gated().authorizer(Arc::new(NoGrants)), true, &no_right[..])]
    {
        let fixture = Fixture::across_namespaces(cluster.build());
        let grant = || {
            fixture.define_grants();
            fixture.grant("dev", "", "PersistentVolumeClaim");
        };
        if has_kind {
            grant();
        }
        let _running = fixture.start(1).await;
        fixture.source().await;
        fixture.claim("copy", "fast", of_claim("dev"));
        for text in texts {
            fixture.wait_for_event("copy", text).await;
        }
        fixture.claim("other", "fast", sources::of_claim("source"));
        fixture.until("bound", || fixture.is_bound("other")).await;
        assert_eq!(fixture.copied().len(), 1);
        if !has_kind {
            sleep(Duration::from_secs(3600)).await;
            grant();
            let since = Instant::now();
            fixture.until("bound", || fixture.is_bound_in("dev", "copy")).await;
            // The claim is bound when the watch has retried.
            assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
        }
    }
}
