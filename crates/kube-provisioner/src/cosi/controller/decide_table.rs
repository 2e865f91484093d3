//! The rules of `docs/book/pages/reference/behaviour.md` as tables.

use std::sync::Arc;

use provisioner_runtime::watch::FromJson as _;
use serde_json::{Value, json};

use super::decide::{AccessView, BucketState, BucketView, Decision, Facts, Refusal, decide};
use super::objects::{self, AccessFacts, BucketFacts, FINALIZER, WatchedAccess, WatchedBucket};
use super::secrets::{self, SecretFacts, SecretState};

const DRIVER: &str = "s3.example.com";
const ENDS: &str = "objectstorage.k8s.io/bucketclaim-being-deleted";
const MISSPELT: &str = "objectstorage.k8.io/bucketclaim-being-deleted";

/// A merge patch of an object.
type Change<'a> = (&'a str, Value);

fn changed(mut object: Value, changes: &[Change<'_>]) -> Value {
    for (path, value) in changes {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(parent.remove(name)),
            value => drop(parent.insert(name.to_owned(), value.clone())),
        }
    }
    object
}

/// Returns a Bucket that was just created for a claim.
fn bucket(changes: &[Change<'_>]) -> Option<Arc<BucketFacts>> {
    let bucket = json!({
        "metadata": {"name": "bc-1", "uid": "b", "resourceVersion": "1", "annotations": {}},
        "spec": {
            "driverName": DRIVER, "deletionPolicy": "Delete",
            "bucketClaimRef": {"namespace": "shop", "name": "photos", "uid": "u"},
        },
        "status": {},
    });
    let watched = WatchedBucket::from_json(&changed(bucket, changes).to_string()).unwrap();
    objects::bucket(&watched, DRIVER).unwrap().ours
}

fn about_bucket(changes: &[Change<'_>]) -> Decision {
    let view = |bucket| Facts::Bucket(BucketView { bucket, duplicate: None });
    decide(&bucket(changes).map_or(Facts::None, view))
}

/// Returns an access that was just handed over.
fn access(changes: &[Change<'_>]) -> Option<Arc<AccessFacts>> {
    let access = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "a", "resourceVersion": "1", "annotations": {}},
        "spec": {
            "bucketClaims": [{"bucketClaimName": "photos", "accessMode": "ReadWrite", "accessSecretName": "key"}],
            "bucketAccessClassName": "fast", "protocol": "S3",
        },
        "status": {
            "readyToUse": false, "driverName": DRIVER, "authenticationType": "Key",
            "accessedBuckets": [{"bucketName": "bc-1", "bucketID": "bc-1", "bucketClaimName": "photos"}],
        },
    });
    let watched = WatchedAccess::from_json(&changed(access, changes).to_string()).unwrap();
    objects::access(&watched, DRIVER).unwrap().ours
}

fn view(access: Arc<AccessFacts>) -> AccessView {
    let ready = BucketState::Ours(bucket(&[protected(), ready()]).unwrap());
    let targets = access.content.as_ref().map_or(0, |content| content.targets.len());
    AccessView { access, buckets: vec![ready; targets], secrets: vec![SecretState::Absent; targets] }
}

fn about_access(changes: &[Change<'_>]) -> Decision {
    decide(&access(changes).map_or(Facts::None, |access| Facts::Access(view(access))))
}

fn protected<'a>() -> Change<'a> {
    ("/metadata/finalizers", json!(["other", FINALIZER]))
}

fn ready<'a>() -> Change<'a> {
    ("/status", json!({"readyToUse": true, "bucketID": "bc-1", "protocols": ["S3"]}))
}

fn deleted<'a>() -> Change<'a> {
    ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
}

fn granted<'a>() -> Vec<Change<'a>> {
    vec![protected(), ("/status/readyToUse", json!(true)), ("/status/accountID", json!("ba-a"))]
}

fn annotated(name: &str) -> Change<'static> {
    ("/metadata/annotations", json!({name: ""}))
}

// Rules: J1.
#[test]
fn ignores_objects_of_other_drivers() {
    let other = |path| (path, json!("other.example.com"));
    for changes in [
        &[other("/spec/driverName")][..],
        &[other("/spec/driverName"), protected(), deleted(), annotated(ENDS)],
        &[("/spec/driverName", Value::Null)],
        &[("/spec", json!("nonsense"))],
    ] {
        assert_eq!(about_bucket(changes), Decision::NoAction, "{changes:?}");
    }
    assert_eq!(about_access(&[other("/status/driverName")]), Decision::NoAction);
    assert_eq!(about_access(&[other("/status/driverName"), protected(), deleted()]), Decision::NoAction);
}

// Rules: J2.
#[test]
fn refuses_other_protocols() {
    let protocols = |list: Value| about_bucket(&[("/spec/protocols", list)]);
    assert_eq!(protocols(json!(["S3", "Azure"])), Decision::Refuse(Refusal::Protocol("Azure".to_owned())));
    assert_eq!(protocols(json!(["S3"])), Decision::Protect);
    assert_eq!(protocols(json!(null)), Decision::Protect);
}

// Rules: J3.
#[test]
fn adds_the_finalizer_before_it_creates_the_bucket() {
    assert_eq!(about_bucket(&[]), Decision::Protect);
    assert_eq!(about_bucket(&[protected()]), Decision::Provision);
    assert_eq!(about_bucket(&[protected(), ready()]), Decision::NoAction);
    assert_eq!(about_bucket(&[ready()]), Decision::Protect, "our finalizer was removed");
    // Only half of the status has been written.
    assert_eq!(about_bucket(&[protected(), ("/status", json!({"readyToUse": true}))]), Decision::Provision);
    assert_eq!(
        about_bucket(&[protected(), ("/status", json!({"readyToUse": false, "bucketID": "bc-1"}))]),
        Decision::Provision
    );
    let other = ("/status", json!({"readyToUse": true, "bucketID": "elsewhere"}));
    assert!(matches!(about_bucket(&[protected(), other]), Decision::Refuse(Refusal::OtherId { .. })));
    // The driver does not create a bucket for a claim that is about to be deleted.
    assert_eq!(about_bucket(&[protected(), annotated(ENDS)]), Decision::NoAction);
}

// Rules: J4.
#[test]
fn an_existing_bucket_may_be_unbound() {
    let existing = ("/spec/existingBucketID", json!("photos"));
    let unbound = ("/spec/bucketClaimRef", json!({"namespace": "shop", "name": "photos"}));
    assert_eq!(about_bucket(&[protected(), existing.clone(), unbound.clone()]), Decision::Provision);
    assert_eq!(about_bucket(&[protected(), unbound.clone()]), Decision::Refuse(Refusal::Unbound));
    let found = ("/status", json!({"readyToUse": true, "bucketID": "photos"}));
    assert_eq!(about_bucket(&[protected(), existing.clone(), unbound.clone(), found]), Decision::NoAction);
    // No claim ever owned the bucket.
    assert_eq!(about_bucket(&[protected(), existing, unbound, deleted()]), Decision::Release);
}

// Rules: J5.
#[test]
fn a_bucket_is_kept_until_its_claim_is_deleted() {
    let kept = Decision::Refuse(Refusal::ClaimRemains);
    assert_eq!(about_bucket(&[protected(), ready(), deleted()]), kept);
    let retain = ("/spec/deletionPolicy", json!("Retain"));
    assert_eq!(about_bucket(&[protected(), ready(), deleted(), retain]), kept);
    for name in [ENDS, MISSPELT] {
        assert_eq!(about_bucket(&[protected(), ready(), deleted(), annotated(name)]), Decision::Delete, "{name}");
    }
}

// Rules: J6.
#[test]
fn delete_needs_the_annotation_and_a_deletion_time() {
    assert_eq!(about_bucket(&[protected(), ready(), annotated(ENDS)]), Decision::NoAction);
    assert_eq!(about_bucket(&[protected(), ready(), annotated(ENDS), deleted()]), Decision::Delete);
    // The bucket may exist although the status does not say so.
    assert_eq!(about_bucket(&[protected(), annotated(ENDS), deleted()]), Decision::Delete);
    // Without our finalizer, the bucket was never created.
    assert_eq!(about_bucket(&[annotated(ENDS), deleted()]), Decision::NoAction);
}

// Rules: J7.
#[test]
fn retain_keeps_the_bucket() {
    let retain = || ("/spec/deletionPolicy", json!("Retain"));
    assert_eq!(about_bucket(&[protected(), ready(), retain(), annotated(ENDS)]), Decision::NoAction);
    assert_eq!(about_bucket(&[protected(), ready(), retain(), annotated(ENDS), deleted()]), Decision::Release);
}

// Rules: J8.
#[test]
fn keeps_a_bucket_that_another_object_represents() {
    let bucket = bucket(&[protected(), ready(), annotated(ENDS), deleted()]).unwrap();
    assert_eq!(decide(&Facts::Bucket(BucketView { bucket, duplicate: Some("static".into()) })), Decision::Release);
}

// Rules: J8.
#[test]
fn an_unreadable_object_still_shares_the_bucket() {
    let named = |name: &str, changes: &[Change<'_>]| {
        let named = [&[("/metadata/name", json!(name))], changes].concat();
        bucket(&named).unwrap()
    };
    let of_second = || ("/spec/existingBucketID", json!("bc-2"));
    let [first, second] = ["bc-1", "bc-2"].map(|name| named(name, &[]));
    let unreadable = named("static", &[of_second(), ("/spec/deletionPolicy", Value::Null)]);
    assert!(!first.is_duplicate(&unreadable) && second.is_duplicate(&unreadable));
    assert!(second.is_duplicate(&named("static", &[of_second(), protected(), deleted()])));
    let finished = named("static", &[of_second(), deleted(), ("/metadata/finalizers", json!(["other"]))]);
    assert!(!second.is_duplicate(&finished));
}

// Rules: J9.
#[test]
fn refuses_unreadable_objects() {
    let refused = |decision: Decision| match decision {
        Decision::Refuse(Refusal::Unreadable(problem)) => problem,
        decision => panic!("{decision:?}"),
    };
    for change in [
        ("/spec/deletionPolicy", json!("Recycle")),
        ("/spec/deletionPolicy", Value::Null),
        ("/spec/parameters", json!(["x"])),
        ("/spec/bucketClaimRef", Value::Null),
        ("/spec/existingBucketID", json!(7)),
        ("/status", json!("ready")),
    ] {
        let changes = [protected(), annotated(ENDS), deleted(), change];
        assert!(!refused(about_bucket(&changes)).is_empty(), "{changes:?}");
        assert!(!refused(about_bucket(&changes[3..])).is_empty(), "{changes:?}");
    }
    for change in [
        // The proposal defines this field, but no CRD contains it yet.
        ("/spec/bucketClaims/0/accessMode", Value::Null),
        ("/spec/bucketClaims/0/accessSecretName", Value::Null),
        ("/spec/bucketClaims", json!([])),
        ("/spec/bucketAccessClassName", Value::Null),
        ("/status/accessedBuckets", json!([])),
        ("/status/accessedBuckets/0/bucketClaimName", json!("films")),
        ("/status/authenticationType", Value::Null),
        ("/status/accountID", json!(7)),
    ] {
        let changes = [protected(), deleted(), change];
        assert!(!refused(about_access(&changes)).is_empty(), "{changes:?}");
        assert!(!refused(about_access(&changes[2..])).is_empty(), "{changes:?}");
    }
    // Unknown fields change nothing.
    assert_eq!(about_bucket(&[("/spec/quota", json!({}))]), Decision::Protect);
    assert_eq!(about_access(&[("/status/conditions", json!([]))]), Decision::Protect);
    // A Bucket that an access names.
    let mut view = view(access(&[protected()]).unwrap());
    view.buckets = vec![BucketState::Ours(bucket(&[ready(), ("/spec/deletionPolicy", json!("x"))]).unwrap())];
    assert!(refused(decide(&Facts::Access(view))).contains("bc-1"));
}

// Rules: J10.
#[test]
fn handles_an_access_from_handover_to_cleanup() {
    assert_eq!(about_access(&[("/status", json!({"readyToUse": false}))]), Decision::NoAction);
    assert_eq!(about_access(&[("/status", Value::Null)]), Decision::NoAction);
    assert_eq!(about_access(&[]), Decision::Protect);
    assert_eq!(about_access(&[protected()]), Decision::Grant);
    assert_eq!(about_access(&[protected(), deleted()]), Decision::Revoke);
    let finished = annotated("objectstorage.k8s.io/sidecar-cleanup-finished");
    assert_eq!(about_access(&[protected(), deleted(), finished]), Decision::NoAction);
    let overridden = || annotated("objectstorage.k8s.io/controller-management-override");
    assert_eq!(about_access(&[protected(), overridden()]), Decision::NoAction);
    assert_eq!(about_access(&[protected(), deleted(), overridden()]), Decision::NoAction);
}

// Rules: J11.
#[test]
fn refuses_an_access_that_cannot_be_granted() {
    let two = |secret: &str, id: &str| {
        let claim = |name: &str, secret: &str| json!({"bucketClaimName": name, "accessMode": "ReadOnly", "accessSecretName": secret});
        let of = |name: &str, id: &str| json!({"bucketName": id, "bucketID": id, "bucketClaimName": name});
        about_access(&[
            protected(),
            ("/spec/bucketClaims", json!([claim("photos", "key"), claim("films", secret)])),
            ("/status/accessedBuckets", json!([of("photos", "bc-1"), of("films", id)])),
        ])
    };
    assert_eq!(two("key", "bc-2"), Decision::Refuse(Refusal::SameSecret("key".to_owned())));
    assert_eq!(two("key-2", "bc-1"), Decision::Refuse(Refusal::SameBucket("bc-1".to_owned())));
    let kind = |kind: &str| about_access(&[protected(), ("/status/authenticationType", json!(kind))]);
    assert_eq!(kind("ServiceAccount"), Decision::Refuse(Refusal::Authentication("ServiceAccount".to_owned())));
    let protocol = about_access(&[protected(), ("/spec/protocol", json!("GCS"))]);
    assert_eq!(protocol, Decision::Refuse(Refusal::Protocol("GCS".to_owned())));
    let other = about_access(&[protected(), ("/status/accountID", json!("of-somebody"))]);
    assert!(matches!(other, Decision::Refuse(Refusal::OtherId { .. })));
    // An invalid access can still be deleted.
    for change in [("/spec/protocol", json!("GCS")), ("/status/accountID", json!("of-somebody"))] {
        assert_eq!(about_access(&[protected(), deleted(), change]), Decision::Revoke);
    }
}

// Rules: J12.
#[test]
fn grants_access_only_to_ready_buckets() {
    let with = |state: BucketState| {
        let view = AccessView { buckets: vec![state], ..view(access(&[protected()]).unwrap()) };
        decide(&Facts::Access(view))
    };
    let ours = |changes: &[Change<'_>]| with(BucketState::Ours(bucket(changes).unwrap()));
    let name = || "bc-1".to_owned();
    assert_eq!(with(BucketState::Absent), Decision::Refuse(Refusal::BucketAbsent(name())));
    assert_eq!(with(BucketState::Foreign), Decision::Refuse(Refusal::BucketForeign(name())));
    for change in [deleted(), annotated(ENDS), annotated(MISSPELT)] {
        assert_eq!(ours(&[protected(), ready(), change]), Decision::Refuse(Refusal::BucketDeleting(name())));
    }
    for status in [json!({}), json!({"readyToUse": false, "bucketID": "bc-1"})] {
        assert_eq!(ours(&[protected(), ("/status", status)]), Decision::Refuse(Refusal::BucketNotReady(name())));
    }
    let other = ("/status", json!({"readyToUse": true, "bucketID": "bc-2"}));
    assert!(matches!(ours(&[protected(), other]), Decision::Refuse(Refusal::OtherId { .. })));
    assert_eq!(ours(&[protected(), ready()]), Decision::Grant);
}

// Rules: J13, J15, J16.
#[test]
fn grants_again_if_a_secret_is_missing_or_changed() {
    let with = |changes: &[Change<'_>], state: SecretState| {
        let view = AccessView { secrets: vec![state], ..view(access(changes).unwrap()) };
        decide(&Facts::Access(view))
    };
    assert_eq!(with(&granted(), SecretState::Intact), Decision::NoAction);
    for state in [SecretState::Absent, SecretState::Changed, SecretState::Deleting] {
        assert_eq!(with(&granted(), state), Decision::Grant);
    }
    let foreign = Decision::Refuse(Refusal::SecretForeign("key".to_owned()));
    assert_eq!(with(&[protected()], SecretState::Foreign), foreign);
    assert_eq!(with(&granted(), SecretState::Foreign), foreign);
    // The Secret was written, but the status was not.
    assert_eq!(with(&[protected()], SecretState::Intact), Decision::Grant);
}

// Rules: J13.
#[test]
fn owns_only_secrets_that_the_access_controls() {
    let access = access(&[protected()]).unwrap();
    let state = |change: Value| {
        let mut secret = secrets::reserved(&access, "key", DRIVER);
        kube_sim::merge_patch(&mut secret["metadata"]["ownerReferences"][0], change);
        SecretFacts::of(&serde_json::from_value(secret).unwrap(), DRIVER).state(&access)
    };
    assert_eq!(state(json!({})), SecretState::Changed);
    // Secrets of a former access of the same name, and of objects that name the access but were not created for it.
    for change in [json!({"uid": "former"}), json!({"controller": null}), json!({"kind": "BucketClaim"})] {
        assert_eq!(state(change.clone()), SecretState::Foreign, "{change}");
    }
}
