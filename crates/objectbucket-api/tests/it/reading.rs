//! Tests that objects of other provisioners are read, and written back without `null`.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::core::ObjectList;
use objectbucket_api::{
    BucketPhase, ClaimPhase, ClaimReference, Endpoint, ObjectBucket, ObjectBucketClaim, ReclaimPolicy, names,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The families in `fixtures/`, each with its provisioner.
const FAMILIES: [(&str, &str); 4] = [
    ("rook", "rook-ceph.ceph.rook.io/bucket"),
    ("rook-existing", "rook-ceph.ceph.rook.io/bucket"),
    ("noobaa", "openshift-storage.noobaa.io/obc"),
    ("aws", "aws-s3.io/bucket"),
];

fn fixture<T: DeserializeOwned>(name: &str) -> T {
    let path = format!("{}/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn written(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn fixtures_of_a_family_are_consistent() {
    for (family, provisioner) in FAMILIES {
        let claim: ObjectBucketClaim = fixture(&format!("{family}/claim"));
        let bucket: ObjectBucket = fixture(&format!("{family}/bucket"));
        let secret: Secret = fixture(&format!("{family}/secret"));
        let config: ConfigMap = fixture(&format!("{family}/configmap"));
        let namespace = claim.namespace().unwrap();

        assert_eq!(claim.status.as_ref().unwrap().phase, Some(ClaimPhase::Bound), "{family}");
        assert_eq!(bucket.status.as_ref().unwrap().phase, Some(BucketPhase::Bound), "{family}");
        assert_eq!(bucket.name_any(), names::object_bucket_name(&namespace, &claim.name_any()));
        assert_eq!(bucket.spec.storage_class_name, claim.spec.storage_class_name);
        let endpoint = bucket.spec.endpoint.as_ref().unwrap();
        assert_eq!(Some(&endpoint.bucket_name), claim.spec.bucket_name.as_ref(), "{family}");

        let data = config.data.as_ref().unwrap();
        assert_eq!(data[names::BUCKET_NAME], endpoint.bucket_name);
        assert_eq!(data[names::BUCKET_HOST], endpoint.bucket_host);
        assert_eq!(data[names::BUCKET_PORT], endpoint.bucket_port.to_string());
        assert_eq!(data[names::BUCKET_REGION], endpoint.region);
        assert_eq!(data[names::BUCKET_SUBREGION], endpoint.sub_region);
        let keys: Vec<_> = secret.data.as_ref().unwrap().keys().collect();
        assert_eq!(keys, [names::AWS_ACCESS_KEY_ID, names::AWS_SECRET_ACCESS_KEY]);

        for (finalizers, labels) in [
            (claim.finalizers(), claim.labels()),
            (bucket.finalizers(), bucket.labels()),
            (secret.finalizers(), secret.labels()),
            (config.finalizers(), config.labels()),
        ] {
            assert_eq!(finalizers, [names::FINALIZER], "{family}");
            assert_eq!(labels[names::PROVISIONER_LABEL], names::provisioner_label(provisioner));
        }
        for owners in [secret.owner_references(), config.owner_references()] {
            assert_eq!(Some(&owners[0].uid), claim.metadata.uid.as_ref(), "{family}");
            assert_eq!(owners[0].api_version, objectbucket_api::API_VERSION);
        }
    }
}

/// A controller that reads an object and writes it back must not lose data.
#[test]
fn writing_back_drops_only_empty_objects() {
    for (family, _) in FAMILIES {
        for kind in ["claim", "bucket"] {
            let mut found: Value = fixture(&format!("{family}/{kind}"));
            let back = match kind {
                "claim" => written(&read::<ObjectBucketClaim>(found.clone())),
                _ => written(&read::<ObjectBucket>(found.clone())),
            };
            drop_empty_objects(&mut found["spec"]);
            assert_eq!(back, found, "{family}/{kind}");
        }
    }
}

fn drop_empty_objects(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.values_mut().for_each(drop_empty_objects);
    fields.retain(|_, value| *value != json!({}));
}

#[test]
fn reads_the_claim_of_rook_buckets() {
    let bucket: ObjectBucket = fixture("rook/bucket");
    let claim: ObjectBucketClaim = fixture("rook/claim");
    let reference = bucket.spec.claim_ref.unwrap();
    assert_eq!((reference.uid, reference.name), (claim.metadata.uid.clone(), claim.metadata.name));
    assert_eq!(bucket.spec.additional_state["cephUser"], format!("obc-gallery-photos-{}", claim.metadata.uid.unwrap()));
    assert_eq!(bucket.spec.reclaim_policy, Some(ReclaimPolicy::Delete));
}

#[test]
fn treats_empty_references_as_missing() {
    let bucket: ObjectBucket = fixture("noobaa/bucket");
    assert_eq!(bucket.spec.claim_ref, None);
    let bucket: ObjectBucket = read(json!({"metadata": {}, "spec": {"claimRef": {"kind": null, "name": ""}}}));
    assert_eq!(bucket.spec.claim_ref, None);
    let bucket: ObjectBucket = read(json!({"metadata": {}, "spec": {"claimRef": {"name": "a", "more": 1}}}));
    assert_eq!(bucket.spec.claim_ref, Some(ClaimReference { name: Some("a".to_owned()), ..ClaimReference::default() }));
}

#[test]
fn treats_nulls_as_missing_and_never_writes_them() {
    let claim: ObjectBucketClaim = fixture("rook/claim-new");
    assert_eq!(claim.spec.bucket_name, None);
    assert!(claim.spec.additional_config.is_empty());
    assert_eq!(written(&claim)["spec"], json!({"storageClassName": "rook-ceph-bucket", "generateBucketName": "inbox"}));

    let bucket: ObjectBucket = fixture("rook/bucket-nulls");
    assert_eq!(bucket.status.as_ref().unwrap().phase, None);
    assert_eq!(written(&bucket)["spec"], json!({"storageClassName": "rook-ceph-bucket"}));
    assert_eq!(written(&bucket)["status"], json!({}));

    let bucket: ObjectBucket = fixture("aws/bucket-nulls");
    let endpoint = Endpoint { bucket_name: "inbox".to_owned(), ..Endpoint::default() };
    assert_eq!(bucket.spec.endpoint, Some(endpoint));
}

#[test]
fn keeps_unknown_words() {
    let bucket: ObjectBucket =
        read(json!({"metadata": {}, "spec": {"reclaimPolicy": "Archive"}, "status": {"phase": "Melted"}}));
    assert_eq!(bucket.spec.reclaim_policy, Some(ReclaimPolicy::Unknown("Archive".to_owned())));
    assert_eq!(written(&bucket)["spec"]["reclaimPolicy"], "Archive");
    assert_eq!(written(&bucket)["status"]["phase"], "Melted");
    let claim: ObjectBucketClaim = read(json!({"metadata": {}, "status": {"phase": "Pending"}}));
    assert_eq!(claim.status.unwrap().phase, Some(ClaimPhase::Pending));
}

/// The lenient existing CRDs accept all of these objects.
#[test]
fn malformed_objects_do_not_break_their_list() {
    let list = |kind: &str, items: Vec<Value>| json!({"apiVersion": "objectbucket.io/v1alpha1", "kind": format!("{kind}List"), "metadata": {}, "items": items});
    let claims: ObjectList<ObjectBucketClaim> = read(list(
        "ObjectBucketClaim",
        vec![
            json!({"metadata": {"name": "no-spec"}}),
            json!({"metadata": {"name": "nulls"}, "spec": null, "status": null}),
            json!({"metadata": {"name": "numbers"},
                "spec": {"additionalConfig": {"maxObjects": 1000, "on": true, "none": null, "policy": {"a": [1]}}}}),
            json!({"metadata": {"name": "status"},
                "status": {"phase": 7, "conditions": [{"type": "Ready"}, 3], "observedGeneration": "x"}}),
            json!({"metadata": {"name": "conditions"}, "status": {"conditions": {"Ready": "True"}}}),
        ],
    ));
    let config = &claims.items[2].spec.additional_config;
    assert_eq!(written(config), json!({"maxObjects": "1000", "on": "true", "none": "", "policy": "{\"a\":[1]}"}));
    assert_eq!(claims.items[3].status, Some(objectbucket_api::ObjectBucketClaimStatus::default()));

    let buckets: ObjectList<ObjectBucket> = read(list(
        "ObjectBucket",
        vec![
            json!({"metadata": {"name": "no-spec"}}),
            json!({"metadata": {"name": "reference"}, "spec": {"claimRef": {"name": ["a"], "uid": {}}}}),
            json!({"metadata": {"name": "state"}, "spec": {"additionalState": {"generation": 7}}}),
            json!({"metadata": {"name": "port"}, "spec": {"endpoint": {"bucketPort": 99_999_999_999_i64, "bucketName": "b"}}}),
        ],
    ));
    assert_eq!(buckets.items[2].spec.additional_state["generation"], "7");
    assert_eq!(buckets.items[3].spec.endpoint.as_ref().unwrap().bucket_port, 0);
}

#[test]
fn omits_malformed_conditions() {
    let ready = json!({"type": "Ready", "status": "False", "reason": "Denied", "message": "no room",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3});
    let claim: ObjectBucketClaim = read(
        json!({"metadata": {}, "status": {"phase": "Pending", "conditions": [{"type": "x"}, ready], "observedGeneration": 3}}),
    );
    let status = json!({"phase": "Pending", "conditions": [ready], "observedGeneration": 3});
    assert_eq!(written(&claim)["status"], status);
}
