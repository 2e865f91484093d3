//! Claims and ObjectBuckets that cannot be read are present.

use serde_json::json;
use tokio::time::sleep;

use super::ownership::{HOUR, OBJECT, ROOK, stand, told};
use super::stand::{BUCKETS, CLAIMS};

#[tokio::test(start_paused = true)]
async fn z18_settings_without_quotes_are_read_as_texts() {
    let stand = stand(ROOK);
    stand.claim("photos", json!({"additionalConfig": {"maxObjects": 1000}}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let bucket = stand.get(BUCKETS, OBJECT).unwrap()["spec"]["endpoint"]["bucketName"].as_str().unwrap().to_owned();
    assert_eq!(stand.store.state().configs[&bucket], Some(1000));
    running.abort();
    let _another = stand.start(2);
    sleep(HOUR).await;
    assert_eq!((stand.store.calls("delete"), stand.phase("photos")), (0, "Bound".to_owned()));
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

/// Definitions that let anything pass.
fn lax() -> String {
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

#[tokio::test(start_paused = true)]
async fn z19_a_claim_that_cannot_be_read_is_present() {
    let stand = stand(&lax());
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let spec = stand.get(CLAIMS, "photos").unwrap()["spec"].clone();
    stand.patch(CLAIMS, "photos", json!({"spec": "nonsense"}));
    running.abort();
    let _another = stand.start(2);
    stand.until("it is told", || told(&stand, "photos", "Unreadable")).await;
    sleep(HOUR).await;
    assert_eq!((stand.store.calls("delete"), stand.store.state().buckets.len()), (0, 1));
    stand.patch(CLAIMS, "photos", json!({"spec": spec}));
    stand.until("it is mended", || stand.ready("photos").0 == "Bound").await;
    // Its deletion needs nothing that cannot be read.
    stand.patch(CLAIMS, "photos", json!({"spec": "nonsense"}));
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z19_an_object_bucket_that_cannot_be_read_holds_its_claim() {
    let stand = stand(&lax());
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let spec = stand.get(BUCKETS, OBJECT).unwrap()["spec"].clone();
    stand.patch(BUCKETS, OBJECT, json!({"spec": "nonsense"}));
    running.abort();
    stand.delete(CLAIMS, "photos");
    let _another = stand.start(2);
    stand.until("it is told", || told(&stand, "photos", "Unreadable")).await;
    sleep(HOUR).await;
    assert!(stand.get(CLAIMS, "photos").is_some());
    assert_eq!((stand.store.calls("delete"), stand.store.state().buckets.len()), (0, 1));
    stand.patch(BUCKETS, OBJECT, json!({"spec": spec}));
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z19_a_claim_stays_while_neither_it_nor_its_object_bucket_can_be_read() {
    let stand = stand(&lax());
    let claim = stand.claim("photos", json!({}));
    stand.create(json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
        "metadata": {"name": OBJECT, "finalizers": ["objectbucket.io/finalizer"]},
        "spec": {
            "storageClassName": "class", "reclaimPolicy": "Delete",
            "endpoint": {"bucketHost": "h", "bucketPort": 80, "bucketName": "photos-1"},
            "claimRef": {"namespace": "default", "name": "photos", "uid": claim},
        },
    }));
    stand.patch(
        CLAIMS,
        "photos",
        json!({
            "metadata": {
                "finalizers": ["objectbucket.io/finalizer"], "labels": {"bucket-provisioner": "example.com-bucket"},
            },
            "spec": "nonsense",
        }),
    );
    let spec = stand.get(BUCKETS, OBJECT).unwrap()["spec"].clone();
    stand.patch(BUCKETS, OBJECT, json!({"spec": "nonsense"}));
    stand.delete(CLAIMS, "photos");
    let _running = stand.start(1);
    stand.until("it is told", || told(&stand, "photos", "ObjectBucketNotProven")).await;
    sleep(HOUR).await;
    assert!(stand.get(CLAIMS, "photos").is_some());
    stand.patch(BUCKETS, OBJECT, json!({"spec": spec}));
    stand.gone("photos").await;
    assert!(stand.get(BUCKETS, OBJECT).is_none());
}
