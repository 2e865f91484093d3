//! Tests of changes by answers, watches and lists.

use serde_json::json;

use provisioner_runtime::watch::FromJson as _;

use super::super::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use super::super::safeguards::Safeguards;
use super::*;
use crate::bucket::BucketCapabilities;
use crate::controller::shared::names::ProvisionerNames;
use crate::options::Options;

fn cache() -> BucketCache {
    let rules = Rules {
        names: ProvisionerNames::of(&Options::new("example.com/bucket")),
        capabilities: BucketCapabilities::default(),
        identity: "default".into(),
        cluster_id: "this".into(),
        allowed_config: None,
        known_config: None,
        safeguards: Safeguards::default(),
    };
    BucketCache::new(Arc::new(rules))
}

#[test]
fn an_unclaimed_object_bucket_wakes_all_claims_pointing_at_it() {
    let mut cache = cache();
    for namespace in ["shop", "evil"] {
        let metadata = json!({"namespace": namespace, "name": "x", "uid": namespace, "resourceVersion": "1"});
        let text = json!({"metadata": metadata, "spec": {"objectBucketName": "old"}}).to_string();
        cache.claim_event(Change::Applied(claim_facts(&WatchedClaim::from_json(&text).unwrap())));
    }
    let mut woken = |version: &str, reference: serde_json::Value| {
        let metadata = json!({"name": "old", "uid": "o", "resourceVersion": version});
        let text = json!({"metadata": metadata, "spec": {"claimRef": reference}}).to_string();
        let keys = cache.bucket_event(Change::Applied(bucket_facts(&WatchedBucket::from_json(&text).unwrap())));
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(woken("1", json!({})), ["evil/x/evil", "shop/x/shop"]);
    // Both learn of its owner. Later changes concern only the owner.
    let proven = || json!({"namespace": "shop", "name": "x", "uid": "shop"});
    assert_eq!(woken("2", proven()), ["evil/x/evil", "shop/x/shop"]);
    assert_eq!(woken("3", proven()), ["shop/x/shop"]);
}

#[test]
fn a_former_object_does_not_replace_a_new_one() {
    let mut cache = cache();
    let bucket = |uid: &str, resource_version: u64| {
        let version = resource_version.to_string();
        let metadata = json!({"name": "obc-shop-photos", "uid": uid, "resourceVersion": version});
        let text = json!({"metadata": metadata, "spec": {}}).to_string();
        bucket_facts(&WatchedBucket::from_json(&text).unwrap()).unwrap()
    };
    cache.observe_bucket(bucket("new", 9));
    cache.bucket_event(Change::Applied(Some(bucket("old", 5))));
    cache.bucket_event(Change::Deleted(Some(bucket("old", 6))));
    let uid = |cache: &BucketCache| cache.bucket("obc-shop-photos").map(|known| known.uid.clone());
    assert_eq!(uid(&cache).as_deref(), Some("new"));
    // An answer that is older than the deletion does not restore the object.
    cache.bucket_event(Change::Deleted(Some(bucket("new", 10))));
    cache.observe_bucket(bucket("new", 9));
    assert_eq!(uid(&cache), None);
    // An existing object is accepted from any answer, however old its last change is.
    cache.observe_bucket(bucket("newer", 7));
    // A list that is older than an answer removes nothing.
    cache.bucket_event(Change::Begin);
    cache.bucket_event(Change::Listed(Some(bucket("newer", 6))));
    cache.bucket_event(Change::Ready);
    assert_eq!(uid(&cache).as_deref(), Some("newer"));
    // An answer that is older than the cached object does not count as part of a list.
    cache.bucket_event(Change::Begin);
    cache.observe_bucket(bucket("newer", 6));
    cache.bucket_event(Change::Ready);
    assert_eq!(uid(&cache), None);
    // Objects of a server whose data was restored from a backup have lower versions than before, also deleted ones.
    cache.observe_bucket(bucket("newer", 20));
    cache.in_list(19, |cache| cache.bucket_event(Change::Listed(Some(bucket("newer", 12)))));
    let version = |cache: &BucketCache| cache.bucket("obc-shop-photos").map(|known| known.resource_version);
    assert_eq!(version(&cache), Some(20));
    cache.in_list(30, |cache| cache.bucket_event(Change::Listed(Some(bucket("newer", 12)))));
    assert_eq!(version(&cache), Some(12));
    cache.in_list(u64::MAX, |cache| cache.bucket_event(Change::Listed(Some(bucket("new", 3)))));
    assert_eq!(uid(&cache).as_deref(), Some("new"));
}
