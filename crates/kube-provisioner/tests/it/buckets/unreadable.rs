//! Claims and ObjectBuckets that cannot be read are treated as present.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{
    Before, Cluster, Interceptor, PatchKind, Request, Status, Stored, Subresource, Verb, WatchInterceptor, WatchStep,
};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture, target};
use super::ownership::{HOUR, OBJECT, ROOK, fixture, is_reported};

// Rules: Z18.
#[tokio::test(start_paused = true)]
async fn settings_without_quotes_are_read_as_strings() {
    let fixture = fixture(ROOK);
    fixture.claim("photos", json!({"additionalConfig": {"maxObjects": 1000}}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let bucket = fixture.get(BUCKETS, OBJECT).unwrap()["spec"]["endpoint"]["bucketName"].as_str().unwrap().to_owned();
    assert_eq!(fixture.store.state().configs[&bucket], Some(1000));
    running.abort();
    let _another = fixture.start(2);
    sleep(HOUR).await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.phase("photos")), (0, "Bound".to_owned()));
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

/// Returns definitions that accept any object.
fn permissive_definitions() -> String {
    ["objectbucketclaims ObjectBucketClaim Namespaced", "objectbuckets ObjectBucket Cluster"]
        .map(|names| {
            let [plural, kind, scope] = names.split(' ').collect::<Vec<_>>()[..] else { unreachable!("three words") };
            format!(
                "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.objectbucket.io}}
spec:
  group: objectbucket.io
  names: {{kind: {kind}, listKind: {kind}List, plural: {plural}, singular: {}}}
  scope: {scope}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
",
                &plural[..plural.len() - 1]
            )
        })
        .join("---\n")
}

// Rules: Z19.
#[tokio::test(start_paused = true)]
async fn an_unreadable_claim_is_treated_as_present() {
    let fixture = fixture(&permissive_definitions());
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let spec = fixture.get(CLAIMS, "photos").unwrap()["spec"].clone();
    fixture.patch(CLAIMS, "photos", json!({"spec": "nonsense"}));
    running.abort();
    let _another = fixture.start(2);
    fixture.until("it is reported", || is_reported(&fixture, "photos", "Unreadable")).await;
    sleep(HOUR).await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.state().buckets.len()), (0, 1));
    fixture.patch(CLAIMS, "photos", json!({"spec": spec}));
    fixture.until("it is repaired", || fixture.ready("photos").0 == "Bound").await;
    // The deletion does not need the unreadable fields.
    fixture.patch(CLAIMS, "photos", json!({"spec": "nonsense"}));
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

/// Breaks the status of a claim right before the controller reads the claim, refuses the write that follows, and delays
/// watch events.
#[derive(Clone, Default)]
struct BreaksStatus {
    cluster: Arc<OnceLock<Cluster>>,
    spoilt: Arc<OnceLock<()>>,
    refused: Arc<OnceLock<()>>,
}

impl Interceptor for BreaksStatus {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let is = |plural, verb| request.resource.plural == plural && request.verb == verb;
        if let Some(cluster) = self.cluster.get().filter(|_| is(CLAIMS, Verb::Get) && self.spoilt.set(()).is_ok()) {
            let (claim, spoilt) = (target(CLAIMS, "photos"), json!({"status": "none"}));
            cluster.patch(&claim, Some(Subresource::Status), PatchKind::Merge, &spoilt).unwrap();
        }
        let follows = self.spoilt.get().is_some() && is(BUCKETS, Verb::Patch);
        let answer = if follows && self.refused.set(()).is_ok() {
            Before::Refuse(Status::internal("the disk is full"))
        } else {
            Before::Handle
        };
        Box::pin(async { answer })
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.resource.plural == CLAIMS).then(|| Box::new(self.clone()) as _)
    }
}

impl WatchInterceptor for BreaksStatus {
    fn event(&mut self, kind: &'static str, _: &Stored) -> WatchStep {
        if kind == "MODIFIED" { WatchStep::Delay(Duration::from_secs(20)) } else { WatchStep::Deliver }
    }
}

// Rules: Z19.
/// The controller reports the problem in the status, which repairs the status before a watch delivers it.
#[tokio::test(start_paused = true)]
async fn a_temporarily_unreadable_claim_is_provisioned() {
    let spoils = BreaksStatus::default();
    let cluster = Cluster::builder().hide_managed_fields().interceptor(Arc::new(spoils.clone())).build();
    cluster.create_yaml(&permissive_definitions()).unwrap();
    spoils.cluster.set(cluster.clone()).ok().unwrap();
    let fixture = Fixture::on(cluster);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it is reported", || is_reported(&fixture, "photos", "Unreadable")).await;
    fixture.until_bound("photos").await;
}

// Rules: Z19.
#[tokio::test(start_paused = true)]
async fn an_unreadable_object_bucket_keeps_its_claim() {
    let fixture = fixture(&permissive_definitions());
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let spec = fixture.get(BUCKETS, OBJECT).unwrap()["spec"].clone();
    fixture.patch(BUCKETS, OBJECT, json!({"spec": "nonsense"}));
    running.abort();
    fixture.delete(CLAIMS, "photos");
    let _another = fixture.start(2);
    fixture.until("it is reported", || is_reported(&fixture, "photos", "Unreadable")).await;
    sleep(HOUR).await;
    assert!(fixture.get(CLAIMS, "photos").is_some());
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.state().buckets.len()), (0, 1));
    fixture.patch(BUCKETS, OBJECT, json!({"spec": spec}));
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

// Rules: Z19.
#[tokio::test(start_paused = true)]
async fn keeps_a_claim_while_it_and_its_object_bucket_are_unreadable() {
    let fixture = fixture(&permissive_definitions());
    let claim = fixture.claim("photos", json!({}));
    fixture.create(json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
        "metadata": {"name": OBJECT, "finalizers": ["objectbucket.io/finalizer"]},
        "spec": {
            "storageClassName": "class", "reclaimPolicy": "Delete",
            "endpoint": {"bucketHost": "h", "bucketPort": 80, "bucketName": "photos-1"},
            "claimRef": {"namespace": "default", "name": "photos", "uid": claim},
        },
    }));
    fixture.patch(
        CLAIMS,
        "photos",
        json!({
            "metadata": {
                "finalizers": ["objectbucket.io/finalizer"], "labels": {"bucket-provisioner": "example.com-bucket"},
            },
            "spec": "nonsense",
        }),
    );
    let spec = fixture.get(BUCKETS, OBJECT).unwrap()["spec"].clone();
    fixture.patch(BUCKETS, OBJECT, json!({"spec": "nonsense"}));
    fixture.delete(CLAIMS, "photos");
    let _running = fixture.start(1);
    fixture.until("it is reported", || is_reported(&fixture, "photos", "ObjectBucketNotProven")).await;
    sleep(HOUR).await;
    assert!(fixture.get(CLAIMS, "photos").is_some());
    fixture.patch(BUCKETS, OBJECT, json!({"spec": spec}));
    fixture.until_gone("photos").await;
    assert!(fixture.get(BUCKETS, OBJECT).is_none());
}
