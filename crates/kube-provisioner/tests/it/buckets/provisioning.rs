//! Provisioning of buckets for claims.

use std::sync::Arc;
use std::time::Duration;

use kube_sim::Cluster;
use serde_json::json;
use tokio::time::sleep;

use super::faulty_server::{LosesDeletions, LosesWrite};
use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::store::Failure;

// Rules: U1, U3, U6, U7, U8, Y1, Y3, Y4.
#[tokio::test(start_paused = true)]
async fn a_claim_receives_bucket_user_secret_and_config_map() {
    let fixture = Fixture::new();
    let uid = fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let (claim, object) = (fixture.get(CLAIMS, "photos").unwrap(), fixture.get(BUCKETS, "obc-default-photos").unwrap());
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
    let map = fixture.get("configmaps", "photos").unwrap();
    for (key, value) in [
        ("BUCKET_NAME", &*name),
        ("BUCKET_HOST", "store.example.com"),
        ("BUCKET_PORT", "443"),
        ("BUCKET_REGION", ""),
        ("BUCKET_SUBREGION", ""),
        ("AWS_ENDPOINT_URL_S3", "https://store.example.com"),
    ] {
        assert_eq!(map["data"][key], value, "{key}");
    }
    let secret = fixture.get("secrets", "photos").unwrap();
    assert_eq!(secret["data"]["AWS_ACCESS_KEY_ID"], "aWQtMQ==");
    assert_eq!(secret["data"]["AWS_SECRET_ACCESS_KEY"], "c2VjcmV0LTE=");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], uid);
    assert_eq!(fixture.ready("photos").0, "Bound");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        fixture.events("photos"),
        [format!("Normal ProvisioningSucceeded: Successfully provisioned bucket {name}")]
    );
    assert_eq!(fixture.store.calls("create_bucket"), 1);
    let cluster = fixture.cluster.get("", "namespaces", "", "kube-system").unwrap();
    assert_eq!(fixture.store.state().clusters_at_start, [cluster["metadata"]["uid"].as_str().unwrap()]);
    running.abort();
}

// Rules: U2, Y5.
#[tokio::test(start_paused = true)]
async fn refuses_missing_and_invalid_bucket_names() {
    let fixture = Fixture::new();
    fixture.claim("none", json!({"generateBucketName": ""}));
    let bad = ["ab", "UPPER", "192.168.0.1", "a..b", "-abc", &"x".repeat(64)];
    for (number, name) in bad.iter().enumerate() {
        fixture.claim(&format!("bad-{number}"), json!({"bucketName": name}));
    }
    let _running = fixture.start(1);
    fixture
        .until("all are refused", || (0..bad.len()).all(|number| fixture.phase(&format!("bad-{number}")) == "Failed"))
        .await;
    assert_eq!(fixture.ready("bad-0").0, "InvalidBucketName");
    fixture.until("the missing name is reported", || fixture.ready("none").0 == "NoBucketName").await;
    assert_eq!(fixture.store.calls("create_bucket"), 0);
    assert!(fixture.cluster.list("objectbucket.io", BUCKETS, None).unwrap().is_empty());
    // The user corrects the claim.
    fixture.patch(CLAIMS, "none", json!({"spec": {"bucketName": "mended"}}));
    fixture.until_bound("none").await;
    assert!(fixture.store.state().buckets.contains_key("mended"));
}

// Rules: Z7.
#[tokio::test(start_paused = true)]
async fn a_foreign_bucket_is_refused_and_survives() {
    let fixture = Fixture::new();
    fixture.store.state().buckets.insert("taken".to_owned(), "somebody".to_owned());
    fixture.claim("greedy", json!({"bucketName": "taken"}));
    let _running = fixture.start(1);
    fixture.until("it is refused", || fixture.phase("greedy") == "Failed").await;
    assert!(fixture.ready("greedy").1.contains("belongs to somebody"), "{:?}", fixture.ready("greedy"));
    assert!(fixture.cluster.list("objectbucket.io", BUCKETS, None).unwrap().is_empty(), "no ObjectBucket exists");
    fixture.delete(CLAIMS, "greedy");
    fixture.until_gone("greedy").await;
    assert_eq!(fixture.store.state().buckets["taken"], "somebody");
    assert_eq!(fixture.store.calls("delete_bucket"), 0);
}

// Rules: Z2.
#[tokio::test(start_paused = true)]
async fn failures_are_reported_and_retried() {
    let fixture = Fixture::new();
    for failure in [Failure::Retry, Failure::Panic, Failure::NothingLeft, Failure::Late] {
        fixture.store.fail("create_bucket", failure);
    }
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").1 == "the store does not answer").await;
    assert_eq!(fixture.phase("photos"), "Pending");
    fixture.until_bound("photos").await;
    assert_eq!(fixture.store.calls("create_bucket"), 5);
    assert_eq!(fixture.store.state().users.len(), 1);
    assert_eq!(fixture.store.state().users.values().next().unwrap().len(), 1, "one key");
}

// Rules: Z2.
#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_whose_grant_fails_until_its_claim_is_deleted() {
    let fixture = Fixture::new();
    for failure in [Failure::Retry, Failure::NothingLeft, Failure::Invalid, Failure::Panic, Failure::Late] {
        fixture.store.fail("grant", failure);
    }
    let uid = fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").1 == "the store does not answer").await;
    let attempts = || fixture.store.calls("grant");
    for (number, text) in [(2, "the store is full"), (3, "the store wants no such user")] {
        fixture.until("it is tried again", || attempts() == number && fixture.ready("photos").1 == text).await;
        assert!(fixture.get(BUCKETS, "obc-default-photos").is_some(), "the ObjectBucket names the bucket");
        assert_eq!(fixture.phase("photos"), "Pending");
    }
    let crashed = || fixture.ready("photos").1.contains("crashed in `grant`");
    fixture.until("it crashes", crashed).await;
    fixture.until_bound("photos").await;
    assert_eq!((attempts(), fixture.store.state().users.values().flatten().count()), (6, 1));
    running.abort();
    // A process that is killed between the two steps leaves a bucket that its ObjectBucket names.
    (0..1000).for_each(|_| fixture.store.fail("grant", Failure::Invalid));
    fixture.claim("films", json!({}));
    let _running = fixture.start(2);
    fixture.until("there is a bucket", || fixture.store.state().buckets.len() == 2).await;
    fixture.delete(CLAIMS, "films");
    fixture.until_gone("films").await;
    let buckets: Vec<String> = fixture.store.state().buckets.keys().cloned().collect();
    assert_eq!((buckets, fixture.store.state().users.len()), (vec![format!("b-{uid}")], 1));
}

// Rules: Z40.
/// For example, the class has a wrong endpoint.
#[tokio::test(start_paused = true)]
async fn an_attempt_without_requests_does_not_fix_the_class() {
    let fixture = Fixture::new();
    fixture.class("s3", json!({"parameters": {"host": "wrong"}}));
    for claim in ["photos", "films"] {
        fixture.claim(claim, json!({"storageClassName": "s3", "bucketName": claim}));
    }
    (0..1000).for_each(|_| fixture.store.fail("create_bucket", Failure::NoChange));
    let _running = fixture.start(1);
    let is_reported = |claim: &str| fixture.ready(claim).1.contains("the store cannot be reached");
    fixture.until("both are reported", || is_reported("photos") && is_reported("films")).await;
    fixture.delete(CLAIMS, "films");
    fixture.until_gone("films").await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.calls("revoke")), (0, 0));
    // An administrator corrects the class, and a user corrects the name.
    fixture.delete("storageclasses", "s3");
    fixture.store.state().failures.clear();
    fixture.class("s3", json!({"parameters": {"host": "right"}}));
    fixture.until_bound("photos").await;
    assert_eq!(fixture.record("photos")["parameters"]["host"], "right");
}

// Rules: Z40.
/// The CustomResourceDefinitions do not allow changes of a claim's `bucketName` once it is set.
#[tokio::test(start_paused = true)]
async fn a_claim_uses_the_granted_bucket_of_the_corrected_class() {
    let fixture = Fixture::new();
    for bucket in ["right", "wrong"] {
        fixture.store.state().buckets.insert(bucket.to_owned(), "somebody".to_owned());
    }
    fixture.class("shared", json!({"parameters": {"bucketName": "wrong"}}));
    fixture.claim("photos", json!({"storageClassName": "shared"}));
    (0..1000).for_each(|_| fixture.store.fail("grant", Failure::NoChange));
    let _running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").1.contains("the store cannot be reached")).await;
    let name = || fixture.get(CLAIMS, "photos").unwrap()["spec"]["bucketName"].clone();
    assert!(name().is_null(), "{}", name());
    fixture.delete("storageclasses", "shared");
    fixture.store.state().failures.clear();
    fixture.class("shared", json!({"parameters": {"bucketName": "right"}}));
    fixture.until_bound("photos").await;
    fixture.until("the bucket is named", || name() == "right").await;
    assert_eq!(fixture.ready("photos").0, "Bound");
}

// Rules: Z40.
/// An earlier call may have created something with the former parameters.
#[tokio::test(start_paused = true)]
async fn an_attempt_with_possible_leftovers_reports_how_to_abandon_it() {
    let fixture = Fixture::new();
    fixture.class("s3", json!({"parameters": {"host": "wrong"}}));
    fixture.claim("photos", json!({"storageClassName": "s3"}));
    fixture.store.fail("create_bucket", Failure::Retry);
    (0..1000).for_each(|_| fixture.store.fail("create_bucket", Failure::NoChange));
    (0..1000).for_each(|_| fixture.store.fail("delete_bucket", Failure::Retry));
    let _running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").1.contains("the store cannot be reached")).await;
    fixture.delete("storageclasses", "s3");
    fixture.class("s3", json!({"parameters": {"host": "right"}}));
    let remedy = "delete the claim, and ask an administrator to run: kubectl annotate objectbucket obc-default-photos kube-provisioner/abandon=true";
    fixture.until("it is reported", || fixture.ready("photos").1.contains(remedy)).await;
    assert_eq!(fixture.record("photos")["parameters"]["host"], "wrong");
    fixture.delete(CLAIMS, "photos");
    fixture.until("the deletion is retried", || fixture.store.calls("delete_bucket") > 1).await;
    fixture.patch(
        BUCKETS,
        "obc-default-photos",
        json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}),
    );
    fixture.until_gone("photos").await;
}

// Rules: Z2.
#[tokio::test(start_paused = true)]
async fn removes_the_account_when_the_bucket_is_refused() {
    let fixture = Fixture::new();
    fixture.store.fail("grant", Failure::Late);
    fixture.store.state().pauses.insert("grant", Duration::from_secs(5));
    fixture.claim("photos", json!({"bucketName": "photos"}));
    let _running = fixture.start(1);
    fixture.until("access is granted", || fixture.store.calls("grant") == 1).await;
    sleep(Duration::from_secs(5)).await;
    // Another user takes the bucket before the attempt has ended.
    fixture.store.state().buckets.insert("photos".to_owned(), "somebody".to_owned());
    fixture.store.fail("revoke", Failure::Retry);
    fixture.until("it is refused", || fixture.phase("photos") == "Failed").await;
    assert_eq!(fixture.store.calls("revoke"), 2, "the attempt ends after the account is revoked");
    assert!(fixture.store.state().users.is_empty(), "{:?}", fixture.store.assets());
    assert!(fixture.get(BUCKETS, "obc-default-photos").is_none());
    assert_eq!(fixture.store.state().buckets["photos"], "somebody");
}

// Rules: Z5.
#[tokio::test(start_paused = true)]
async fn claims_with_ambiguous_names_receive_separate_object_buckets() {
    let fixture = Fixture::new();
    for namespace in ["a", "a-b"] {
        fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    fixture.claim_in("a", "b-c", json!({}));
    let uid = fixture.claim_in("a-b", "c", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("a/b-c").await;
    fixture.until_bound("a-b/c").await;
    let first = fixture.get(BUCKETS, "obc-a-b-c").unwrap();
    assert_eq!(fixture.store.state().buckets.len(), 2);
    let victim = if first["spec"]["claimRef"]["namespace"] == "a" { "a-b/c" } else { "a/b-c" };
    let other = if victim == "a-b/c" { "a/b-c" } else { "a-b/c" };
    if victim == "a-b/c" {
        assert!(fixture.get(BUCKETS, &format!("obc-{uid}")).is_some());
    }
    fixture.delete(CLAIMS, victim);
    fixture.until_gone(victim).await;
    assert_eq!(fixture.phase(other), "Bound");
    assert_eq!(fixture.store.state().buckets.len(), 1);
}

// Rules: Y9.
#[tokio::test(start_paused = true)]
async fn config_is_applied_only_when_it_changes() {
    let mut fixture = Fixture::new();
    fixture.options.allowed_additional_config = Some(vec!["maxObjects".to_owned()]);
    let uid = fixture.claim("photos", json!({"additionalConfig": {"maxObjects": "2"}}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let name = format!("b-{uid}");
    assert_eq!(fixture.store.state().configs[&name], Some(2));
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"labels": {"mine": "x"}}}));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.store.calls("create_bucket"), 1, "a label requires no call");
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    fixture.until("it is applied", || fixture.store.state().configs[&name] == Some(3)).await;
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "many"}}}));
    fixture.until("it is refused", || fixture.ready("photos").0 == "InvalidConfig").await;
    assert_eq!((fixture.phase("photos").as_str(), fixture.store.state().configs[&name]), ("Bound", Some(3)));
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"bucketPolicy": "{}", "maxObjects": "3"}}}));
    fixture.until("it is not allowed", || fixture.ready("photos").0 == "ConfigNotAllowed").await;
    assert!(fixture.ready("photos").1.starts_with("OBC config \"bucketPolicy\" is not allowed"));
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"bucketPolicy": null}}}));
    fixture.until("the claim is bound again", || fixture.ready("photos").0 == "Bound").await;
}

#[tokio::test(start_paused = true)]
async fn texts_about_claims_with_long_fields_are_short() {
    let mut fixture = Fixture::new();
    fixture.options.allowed_additional_config = Some(Vec::new());
    let keys: serde_json::Map<_, _> = (0..3000).map(|n| (format!("key-{n:060}"), json!("x"))).collect();
    let long = "K".repeat(8000);
    fixture.claim("many", json!({"additionalConfig": keys}));
    fixture.claim("key", json!({"additionalConfig": {&long: "x"}}));
    fixture.claim("name", json!({"generateBucketName": null, "bucketName": long}));
    fixture.claim("other", json!({"additionalConfig": {"bucketClaimName": long}}));
    let _running = fixture.start(1);
    for claim in ["many", "key", "name", "other"] {
        fixture.until("its status contains the reason", || !fixture.ready(claim).0.is_empty()).await;
        let (reason, text) = fixture.ready(claim);
        assert!(text.len() < 1000 && !text.ends_with('…'), "{claim}: {} bytes: {reason}: {text}", text.len());
    }
    assert!(fixture.ready("many").1.contains("and 2990 others"));
}

// Rules: W17.
#[tokio::test(start_paused = true)]
async fn a_class_limits_the_config_keys_of_its_claims() {
    let mut fixture = Fixture::new();
    fixture.options.allowed_additional_config = Some(Vec::new());
    let class = |keys: &str| json!({"parameters": {"host": "store", "allowedAdditionalConfig": keys}});
    fixture.class("generous", class("maxObjects"));
    let asks = |count: &str| json!({"storageClassName": "generous", "additionalConfig": {"maxObjects": count}});
    let uid = fixture.claim("photos", asks("2"));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let live = |count| fixture.store.state().configs[&format!("b-{uid}")] == Some(count);
    assert!(live(2));
    // Applied settings remain when the class allows fewer keys, and no others are applied.
    fixture.delete("storageclasses", "generous");
    fixture.class("generous", class("maxSize"));
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    fixture.until("it is not allowed", || fixture.ready("photos").0 == "ConfigNotAllowed").await;
    assert!(live(2));
    fixture.delete("storageclasses", "generous");
    fixture.class("generous", class("maxSize, maxObjects"));
    fixture.until("it is applied", || live(3)).await;
}

// Rules: W18.
#[tokio::test(start_paused = true)]
async fn copies_labels_and_annotations_that_the_class_lists() {
    let fixture = Fixture::new();
    let class = |labels: &str| {
        let parameters = json!({"copyClaimLabels": labels, "copyClaimAnnotations": "example.com/owner"});
        json!({"parameters": parameters})
    };
    fixture.class("copies", class("team, absent"));
    fixture.class("reserved", class("bucket-provisioner"));
    fixture.claim("photos", json!({"storageClassName": "copies"}));
    fixture.claim("refused", json!({"storageClassName": "reserved"}));
    let metadata = json!({
        "labels": {"team": "blue", "tier": "gold"},
        "annotations": {"example.com/owner": "ada", "example.com/other": "x"},
    });
    fixture.patch(CLAIMS, "photos", json!({"metadata": metadata}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for plural in ["secrets", "configmaps"] {
        let written = fixture.get(plural, "photos").unwrap();
        let (labels, annotations) = (&written["metadata"]["labels"], &written["metadata"]["annotations"]);
        assert_eq!((&labels["team"], &annotations["example.com/owner"]), (&json!("blue"), &json!("ada")), "{written}");
        assert_eq!(labels["bucket-provisioner"], "example.com-bucket", "{written}");
        assert!(labels.get("tier").is_none() && annotations.get("example.com/other").is_none(), "{written}");
    }
    fixture.until("the class is refused", || fixture.ready("refused").0 == "InvalidClass").await;
    assert!(
        fixture.ready("refused").1.contains("\"bucket-provisioner\" is reserved"),
        "{:?}",
        fixture.ready("refused")
    );
}

// Rules: U2, U3.
#[tokio::test(start_paused = true)]
async fn reports_an_unusable_class_and_retries_with_a_new_one() {
    let fixture = Fixture::new();
    fixture.class("bad", json!({"parameters": {"hots": "x"}}));
    fixture.claim("photos", json!({"storageClassName": "bad"}));
    fixture.claim("waits", json!({"storageClassName": "later"}));
    let _running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").0 == "InvalidClass").await;
    assert!(fixture.ready("photos").1.contains("did you mean \"host\"?"), "{:?}", fixture.ready("photos"));
    fixture.class("later", json!({}));
    fixture.until_bound("waits").await;
    fixture.delete("storageclasses", "bad");
    fixture.class("bad", json!({"parameters": {"host": "x"}}));
    fixture.until_bound("photos").await;
}

// Rules: Y4.
#[tokio::test(start_paused = true)]
async fn several_claims_receive_access_to_an_existing_bucket() {
    let fixture = Fixture::new();
    fixture.store.state().buckets.insert("shared".to_owned(), "somebody".to_owned());
    fixture.class("granted", json!({"parameters": {"bucketName": "shared"}}));
    for claim in ["one", "two"] {
        fixture.claim(claim, json!({"storageClassName": "granted"}));
    }
    let _running = fixture.start(1);
    fixture.until_bound("one").await;
    fixture.until_bound("two").await;
    assert_eq!(fixture.store.state().grants.len(), 2);
    fixture.delete(CLAIMS, "one");
    fixture.until_gone("one").await;
    let state = fixture.store.state();
    assert_eq!((state.grants.len(), state.users.len()), (1, 1));
    assert_eq!(state.buckets["shared"], "somebody");
}

// Rules: U4.
#[tokio::test(start_paused = true)]
async fn keeps_foreign_finalizers_and_labels() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let others = json!({"finalizers": ["example.com/mine"], "labels": {"mine": "x"}});
    fixture.patch(CLAIMS, "photos", json!({"metadata": others}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let metadata = |claim: &str| fixture.get(CLAIMS, claim).unwrap()["metadata"].clone();
    assert_eq!(metadata("photos")["finalizers"], json!(["example.com/mine", "objectbucket.io/finalizer"]));
    assert_eq!(metadata("photos")["labels"]["mine"], "x");
    fixture.delete(CLAIMS, "photos");
    fixture.until("our finalizer is removed", || metadata("photos")["finalizers"] == json!(["example.com/mine"])).await;
    // The claim, which another finalizer keeps, has no bucket.
    fixture.until("the claim is released", || fixture.phase("photos") == "Released").await;
    assert_eq!(fixture.ready("photos").0, "BucketDeleted");
    let claim = fixture.get(CLAIMS, "photos").unwrap();
    let conditions = claim["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["status"] == "False"), "{conditions:?}");
    assert!(fixture.store.is_empty());
}

// Rules: Y5.
#[tokio::test(start_paused = true)]
async fn a_name_overrides_a_prefix_and_long_prefixes_are_truncated() {
    let fixture = Fixture::new();
    fixture.claim("named", json!({"bucketName": "mine", "generateBucketName": "b"}));
    let uid = fixture.claim("long", json!({"generateBucketName": "abcdefghijklmnopqrstuvwxyz0123"}));
    let _running = fixture.start(1);
    fixture.until_bound("named").await;
    fixture.until_bound("long").await;
    let buckets = fixture.store.state().buckets.keys().cloned().collect::<Vec<_>>();
    assert_eq!(buckets, [format!("abcdefghijklmnopqrstuvwxyz-{uid}"), "mine".to_owned()]);
}

// Rules: Z10.
#[tokio::test(start_paused = true)]
async fn changing_or_deleting_a_claim_ends_its_back_off() {
    let fixture = Fixture::new();
    for _ in 0..1000 {
        fixture.store.fail("create_bucket", Failure::Retry);
    }
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it has failed often", || fixture.store.calls("create_bucket") > 9).await;
    sleep(Duration::from_secs(10)).await;
    let before = fixture.store.calls("create_bucket");
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "1"}}}));
    let looked = fixture.until("it is retried", || fixture.store.calls("create_bucket") > before).await;
    assert!(looked < Duration::from_secs(2), "{looked:?}");
    fixture.delete(CLAIMS, "photos");
    let start = tokio::time::Instant::now();
    fixture.until_gone("photos").await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

// Rules: Z10.
#[tokio::test(start_paused = true)]
async fn a_failed_settings_change_backs_off() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    sleep(Duration::from_secs(60)).await;
    for _ in 0..1000 {
        fixture.store.fail("create_bucket", Failure::Retry);
    }
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "1"}}}));
    fixture.until("it has failed", || fixture.store.calls("create_bucket") == 2).await;
    sleep(Duration::from_secs(60)).await;
    // The pauses double from approximately one second.
    let calls = fixture.store.calls("create_bucket");
    assert!((5..12).contains(&calls), "the attempt's own record triggers no retry: {calls} calls");
}

// Rules: Z13.
#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_reported_once_and_calls_back_off() {
    let fixture = Fixture::new();
    for _ in 0..14 {
        fixture.store.fail("create_bucket", Failure::Retry);
    }
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    let took = {
        let start = tokio::time::Instant::now();
        fixture.until_bound("photos").await;
        start.elapsed()
    };
    assert!(took > Duration::from_secs(15 * 60), "the pauses grow: {took:?}");
    let events = fixture.events("photos");
    let expected = "Warning ProvisioningFailed: the store does not answer";
    assert_eq!(events.iter().filter(|event| *event == expected).count(), 1, "expected one event: {events:?}");
}

// Rules: Z12.
#[tokio::test(start_paused = true)]
async fn only_one_of_two_replicas_acts() {
    let fixture = Fixture::new();
    let first = fixture.start(1);
    let _second = fixture.start(2);
    for number in 0..10 {
        fixture.claim(&format!("claim-{number}"), json!({}));
    }
    for number in 0..10 {
        fixture.until_bound(&format!("claim-{number}")).await;
    }
    assert_eq!(fixture.store.calls("create_bucket"), 10);
    first.abort();
    fixture.claim("late", json!({}));
    fixture.until_bound("late").await;
    assert_eq!(fixture.store.calls("create_bucket"), 11);
}

// Rules: Z2.
#[tokio::test(start_paused = true)]
async fn makes_no_call_for_an_object_bucket_that_may_be_deleted() {
    let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(LosesDeletions)));
    fixture.store.fail("create_bucket", Failure::NothingLeft);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    // One call failed, and one call received the ObjectBucket that was written for it.
    assert_eq!(fixture.store.calls("create_bucket"), 2);
}

// Rules: Z2.
/// A later refusal does not undo a success.
#[tokio::test(start_paused = true)]
async fn reads_the_object_bucket_again_after_a_lost_response() {
    let lost = LosesWrite::default();
    let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(lost.clone())));
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    while !lost.has_lost_write() {
        sleep(Duration::from_millis(1)).await;
    }
    let uid = || fixture.get(BUCKETS, "obc-default-photos").unwrap()["metadata"]["uid"].clone();
    let before = uid();
    (0..2).for_each(|_| fixture.store.fail("create_bucket", Failure::NothingLeft));
    fixture.until_bound("photos").await;
    assert_eq!(uid(), before);
}

// Rules: Z43.
#[tokio::test(start_paused = true)]
async fn reports_claims_that_no_provisioner_reconciles() {
    let fixture = Fixture::new();
    fixture.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
        "provisioner": "example.com/disks",
    }));
    for (claim, class) in [("late", "later"), ("disk", "disks"), ("others", "disks"), ("none", "")] {
        fixture.claim(claim, json!({"storageClassName": class}));
    }
    fixture.patch(CLAIMS, "others", json!({"metadata": {"labels": {"bucket-provisioner": "example.com-disks"}}}));
    let running = fixture.start(1);
    let is_reported =
        |claim: &str, text: &str| fixture.ready(claim).1.contains(text) && fixture.phase(claim) == "Pending";
    let took = fixture.until("it is reported", || is_reported("late", "StorageClass \"later\" does not exist")).await;
    assert!(took < Duration::from_secs(90), "{took:?}");
    fixture.until("it is reported", || is_reported("disk", "if the StorageClass \"disks\" is for volumes")).await;
    fixture.until("it is reported", || is_reported("none", "names no StorageClass")).await;
    let events = |claim: &str| fixture.events(claim).iter().filter(|event| event.contains("Warning NotServed")).count();
    fixture.until("the events exist", || ["late", "disk", "none"].map(events) == [1; 3]).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(["late", "disk", "none", "others"].map(events), [1, 1, 1, 0]);
    running.abort();
    // A claim that began to wait while no process ran also receives an event.
    fixture.claim("other", json!({"storageClassName": "missing"}));
    let _another = fixture.start(2);
    fixture.until("it is reported", || is_reported("other", "StorageClass \"missing\" does not exist")).await;
    fixture.class("later", json!({}));
    fixture.until_bound("late").await;
}

// Rules: Z43.
#[tokio::test(start_paused = true)]
async fn reports_a_pending_claim_whose_class_is_deleted() {
    let fixture = Fixture::new();
    (0..1000).for_each(|_| fixture.store.fail("create_bucket", Failure::NoChange));
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it fails", || fixture.ready("photos").0 == "ProvisioningFailed").await;
    fixture.delete("storageclasses", "class");
    fixture.until("it is reported", || fixture.ready("photos").0 == "NotServed").await;
}
