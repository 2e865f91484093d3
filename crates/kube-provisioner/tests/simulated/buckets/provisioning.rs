//! From a claim to its bucket.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::stand::{BUCKETS, CLAIMS, Stand};
use super::store::Failure;

#[tokio::test(start_paused = true)]
async fn a_claim_gets_bucket_user_secret_and_config_map() {
    let stand = Stand::new();
    let uid = stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let (claim, object) = (stand.get(CLAIMS, "photos").unwrap(), stand.get(BUCKETS, "obc-default-photos").unwrap());
    let name = format!("b-{uid}");
    assert_eq!(claim["spec"]["bucketName"], name);
    assert_eq!(claim["spec"]["objectBucketName"], "obc-default-photos");
    assert_eq!(claim["metadata"]["finalizers"], json!(["objectbucket.io/finalizer"]));
    assert_eq!(claim["metadata"]["labels"]["bucket-provisioner"], "example.com-bucket");
    assert_eq!(object["status"]["phase"], "Bound");
    assert_eq!(object["spec"]["claimRef"]["uid"], uid);
    assert_eq!(object["spec"]["endpoint"]["bucketName"], name);
    assert_eq!(object["spec"]["reclaimPolicy"], "Delete");
    assert_eq!(object["spec"]["additionalState"]["user"], format!("obc-default-photos-{uid}"));
    let map = stand.get("configmaps", "photos").unwrap();
    for (key, value) in [
        ("BUCKET_NAME", &*name),
        ("BUCKET_HOST", "store.example.com"),
        ("BUCKET_PORT", "443"),
        ("BUCKET_REGION", ""),
        ("BUCKET_SUBREGION", ""),
        ("AWS_ENDPOINT_URL", "https://store.example.com"),
    ] {
        assert_eq!(map["data"][key], value, "{key}");
    }
    let secret = stand.get("secrets", "photos").unwrap();
    assert_eq!(secret["data"]["AWS_ACCESS_KEY_ID"], "aWQtMQ==");
    assert_eq!(secret["data"]["AWS_SECRET_ACCESS_KEY"], "c2VjcmV0LTE=");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], uid);
    assert_eq!(stand.ready("photos").0, "Bound");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        stand.events("photos"),
        [format!("Normal ProvisioningSucceeded: Successfully provisioned bucket {name}")]
    );
    assert_eq!(stand.store.calls("provision"), 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_name_is_refused_and_names_are_checked() {
    let stand = Stand::new();
    stand.claim("none", json!({"generateBucketName": ""}));
    let bad = ["ab", "UPPER", "192.168.0.1", "a..b", "-abc", &"x".repeat(64)];
    for (number, name) in bad.iter().enumerate() {
        stand.claim(&format!("bad-{number}"), json!({"bucketName": name}));
    }
    let _running = stand.start(1);
    stand
        .until("all are refused", || (0..bad.len()).all(|number| stand.phase(&format!("bad-{number}")) == "Failed"))
        .await;
    assert_eq!(stand.ready("bad-0").0, "InvalidBucketName");
    stand.until("no name", || stand.ready("none").0 == "NoBucketName").await;
    assert_eq!(stand.store.calls("provision"), 0);
    assert!(stand.cluster.list("objectbucket.io", BUCKETS, None).unwrap().is_empty());
    // The user mends it.
    stand.patch(CLAIMS, "none", json!({"spec": {"bucketName": "mended"}}));
    stand.bound("none").await;
    assert!(stand.store.state().buckets.contains_key("mended"));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_of_somebody_else_is_refused_and_survives() {
    let stand = Stand::new();
    stand.store.state().buckets.insert("taken".to_owned(), "somebody".to_owned());
    stand.claim("greedy", json!({"bucketName": "taken"}));
    let _running = stand.start(1);
    stand.until("it is refused", || stand.phase("greedy") == "Failed").await;
    assert!(stand.ready("greedy").1.contains("belongs to somebody"), "{:?}", stand.ready("greedy"));
    assert!(stand.cluster.list("objectbucket.io", BUCKETS, None).unwrap().is_empty(), "nothing was made");
    stand.delete(CLAIMS, "greedy");
    stand.gone("greedy").await;
    assert_eq!(stand.store.state().buckets["taken"], "somebody");
    assert_eq!(stand.store.calls("delete"), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_tried_again() {
    let stand = Stand::new();
    for failure in [Failure::Retry, Failure::Panic, Failure::NothingLeft, Failure::Late] {
        stand.store.fail("provision", failure);
    }
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.until("it is told", || stand.ready("photos").1 == "the store does not answer").await;
    assert_eq!(stand.phase("photos"), "Pending");
    stand.bound("photos").await;
    assert_eq!(stand.store.calls("provision"), 5);
    assert_eq!(stand.store.state().users.len(), 1);
    assert_eq!(stand.store.state().users.values().next().unwrap().len(), 1, "one key");
}

#[tokio::test(start_paused = true)]
async fn ambiguous_names_get_two_objects() {
    let stand = Stand::new();
    for namespace in ["a", "a-b"] {
        stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    stand.claim_in("a", "b-c", json!({}));
    let uid = stand.claim_in("a-b", "c", json!({}));
    let _running = stand.start(1);
    stand.bound("a/b-c").await;
    stand.bound("a-b/c").await;
    let first = stand.get(BUCKETS, "obc-a-b-c").unwrap();
    assert_eq!(stand.store.state().buckets.len(), 2);
    let victim = if first["spec"]["claimRef"]["namespace"] == "a" { "a-b/c" } else { "a/b-c" };
    let other = if victim == "a-b/c" { "a/b-c" } else { "a-b/c" };
    if victim == "a-b/c" {
        assert!(stand.get(BUCKETS, &format!("obc-{uid}")).is_some());
    }
    stand.delete(CLAIMS, victim);
    stand.gone(victim).await;
    assert_eq!(stand.phase(other), "Bound");
    assert_eq!(stand.store.state().buckets.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn config_is_applied_when_it_changes_and_only_then() {
    let mut stand = Stand::new();
    stand.options.allowed_additional_config = Some(vec!["maxObjects".to_owned()]);
    let uid = stand.claim("photos", json!({"additionalConfig": {"maxObjects": "2"}}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    let name = format!("b-{uid}");
    assert_eq!(stand.store.state().configs[&name], Some(2));
    stand.patch(CLAIMS, "photos", json!({"metadata": {"labels": {"mine": "x"}}}));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stand.store.calls("provision"), 1, "a label changes nothing");
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    stand.until("it is applied", || stand.store.state().configs[&name] == Some(3)).await;
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "many"}}}));
    stand.until("it is refused", || stand.ready("photos").0 == "InvalidConfig").await;
    assert_eq!((stand.phase("photos").as_str(), stand.store.state().configs[&name]), ("Bound", Some(3)));
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"bucketPolicy": "{}", "maxObjects": "3"}}}));
    stand.until("it is not allowed", || stand.ready("photos").0 == "ConfigNotAllowed").await;
    assert!(stand.ready("photos").1.starts_with("OBC config \"bucketPolicy\" is not allowed"));
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"bucketPolicy": null}}}));
    stand.until("all is well", || stand.ready("photos").0 == "Bound").await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_used_is_told_and_a_new_one_wakes_its_claims() {
    let stand = Stand::new();
    stand.class("bad", json!({"parameters": {"hots": "x"}}));
    stand.claim("photos", json!({"storageClassName": "bad"}));
    stand.claim("waits", json!({"storageClassName": "later"}));
    let _running = stand.start(1);
    stand.until("it is told", || stand.ready("photos").0 == "InvalidClass").await;
    assert!(stand.ready("photos").1.contains("did you mean \"host\"?"), "{:?}", stand.ready("photos"));
    stand.class("later", json!({}));
    stand.bound("waits").await;
    stand.delete("storageclasses", "bad");
    stand.class("bad", json!({"parameters": {"host": "x"}}));
    stand.bound("photos").await;
}

#[tokio::test(start_paused = true)]
async fn access_to_a_bucket_that_exists_is_granted_to_several_claims() {
    let stand = Stand::new();
    stand.store.state().buckets.insert("shared".to_owned(), "somebody".to_owned());
    stand.class("granted", json!({"parameters": {"bucketName": "shared"}}));
    for claim in ["one", "two"] {
        stand.claim(claim, json!({"storageClassName": "granted"}));
    }
    let _running = stand.start(1);
    stand.bound("one").await;
    stand.bound("two").await;
    assert_eq!(stand.store.state().grants.len(), 2);
    stand.delete(CLAIMS, "one");
    stand.gone("one").await;
    let state = stand.store.state();
    assert_eq!((state.grants.len(), state.users.len()), (1, 1));
    assert_eq!(state.buckets["shared"], "somebody");
}
