//! Claims that use the bucket of another claim in their namespace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{After, Before, Cluster, DeleteOptions, Interceptor, Request, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture, target};
use super::store::Failure;

fn of(claim: &str) -> Value {
    json!({"generateBucketName": null, "additionalConfig": {"bucketClaimName": claim}})
}

impl Fixture {
    fn grants(&self) -> Vec<String> {
        self.store.state().grants.iter().map(|(bucket, user)| format!("{bucket} {user}")).collect()
    }

    fn key(&self, claim: &str) -> Value {
        self.get("secrets", claim).unwrap_or_default()["data"]["AWS_ACCESS_KEY_ID"].clone()
    }

    async fn until_event(&self, name: &str, text: &str) {
        self.until(text, || self.events(name).iter().any(|event| event.contains(text))).await;
    }
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn claims_share_a_bucket_until_the_last_one_is_deleted() {
    let fixture = Fixture::new();
    let second = fixture.claim("second", of("first"));
    let third = fixture.claim("third", of("first"));
    let _running = fixture.start(1);
    fixture.until_event("second", "does not exist; create it").await;
    let first = fixture.claim("first", json!({}));
    for claim in ["first", "second", "third"] {
        fixture.until_bound(claim).await;
    }
    let bucket = format!("b-{first}");
    let users =
        [("second", &second), ("third", &third)].map(|(name, uid)| format!("{bucket} obc-default-{name}-{uid}"));
    assert_eq!(fixture.grants(), users);
    assert_ne!(fixture.key("second"), fixture.key("third"));
    for claim in ["second", "third"] {
        assert_eq!(fixture.get("configmaps", claim).unwrap()["data"]["BUCKET_NAME"], bucket);
        assert_eq!(fixture.get(CLAIMS, claim).unwrap()["spec"]["bucketName"], bucket);
    }

    fixture.delete(CLAIMS, "first");
    fixture
        .until_event(
            "first",
            "The bucket stays until these claims, which use it, are deleted: default/second, default/third",
        )
        .await;
    // Its settings and its key can still be corrected.
    fixture.patch(CLAIMS, "second", json!({"spec": {"additionalConfig": {"maxObjects": "7"}}}));
    fixture.delete("secrets", "third");
    fixture.until("the Secret is back", || fixture.get("secrets", "third").is_some()).await;
    fixture.claim("late", of("first"));
    fixture.until_event("late", "is being deleted with its bucket").await;
    fixture.delete(CLAIMS, "second");
    fixture.until_gone("second").await;
    sleep(Duration::from_secs(900)).await;
    assert!(fixture.store.state().buckets.contains_key(&bucket));
    assert!(fixture.get(CLAIMS, "first").is_some());
    fixture.delete(CLAIMS, "third");
    for claim in ["third", "first"] {
        fixture.until_gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.grants().is_empty());
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn the_first_claim_stays_when_others_are_deleted() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("first", json!({"bucketName": "photos"}));
    fixture.claim("second", of("first"));
    fixture.until_bound("second").await;
    let key = fixture.key("first");
    fixture.delete(CLAIMS, "second");
    fixture.until_gone("second").await;
    assert_eq!(fixture.phase("first"), "Bound");
    assert_eq!(fixture.key("first"), key);
    assert_eq!(fixture.grants().len(), 0);
    assert_eq!(fixture.store.state().users.len(), 1);
    fixture.delete(CLAIMS, "first");
    fixture.until_gone("first").await;
    assert!(fixture.store.is_empty());
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn a_claim_in_another_namespace_does_not_share_the_bucket() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    fixture.claim("first", json!({"bucketName": "photos"}));
    fixture.until_bound("first").await;
    fixture.claim_in("other", "second", of("first"));
    fixture.claim_in("other", "third", of("default/first"));
    for claim in ["second", "third"] {
        fixture.until_event(claim, "does not exist; create it").await;
    }
    assert!(fixture.grants().is_empty());
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn a_failing_attempt_does_not_block_deletion_of_the_bucket() {
    for of_object in [true, false] {
        a_failing_attempt_does_not_block_deletion(of_object).await;
    }
}

async fn a_failing_attempt_does_not_block_deletion(of_object: bool) {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("first", json!({"bucketName": "photos"}));
    fixture.until_bound("first").await;
    (0..1000).for_each(|_| fixture.store.fail("grant", Failure::Retry));
    fixture.claim("second", of("first"));
    fixture.until_event("second", "the store does not answer").await;
    // Simulate an earlier attempt that was interrupted here.
    let uid = fixture.get(CLAIMS, "second").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    fixture.store.state().grants.insert(("photos".to_owned(), format!("obc-default-second-{uid}")));
    if of_object {
        fixture.delete(BUCKETS, "obc-default-first");
    }
    fixture.delete(CLAIMS, "first");
    fixture.until_gone("first").await;
    assert!(fixture.store.is_empty() && fixture.grants().is_empty());
    assert!(fixture.get(BUCKETS, "obc-default-second").is_none());
    fixture.until_event("second", "does not exist; create it").await;
    fixture.store.state().failures.clear();
    let first = fixture.claim("first", json!({}));
    fixture.until_bound("second").await;
    assert_eq!(fixture.get(CLAIMS, "second").unwrap()["spec"]["bucketName"], format!("b-{first}"));
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn a_replaced_bucket_is_not_shared_until_it_is_restored() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("first", json!({"bucketName": "photos"}));
    fixture.until_bound("first").await;
    fixture.store.state().buckets.insert("photos".to_owned(), "somebody else".to_owned());
    fixture.claim("second", of("first"));
    fixture.until_event("second", "the bucket photos of the claim default/first was replaced").await;
    assert!(fixture.grants().is_empty());
    assert!(fixture.get(BUCKETS, "obc-default-second").is_none());
    fixture.store.state().buckets.remove("photos");
    // The next call for the first claim creates the bucket again.
    fixture.patch(CLAIMS, "first", json!({"spec": {"additionalConfig": {"maxObjects": "7"}}}));
    fixture.until_bound("second").await;
}

// Rules: Z30.
/// The cluster does not show that the bucket exists again.
#[tokio::test(start_paused = true)]
async fn a_claim_waits_until_a_missing_bucket_is_restored() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("first", json!({"bucketName": "photos"}));
    fixture.until_bound("first").await;
    let bucket = fixture.store.state().buckets.remove("photos").unwrap();
    fixture.claim("second", of("first"));
    fixture.until_event("second", "the bucket photos of the claim default/first does not exist").await;
    assert_eq!(fixture.phase("second"), "Pending");
    fixture.store.state().buckets.insert("photos".to_owned(), bucket);
    fixture.until_bound("second").await;
}

// Rules: Z30.
#[tokio::test(start_paused = true)]
async fn changing_the_shared_bucket_of_a_bound_claim_has_no_effect() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    for name in ["first", "other"] {
        fixture.claim(name, json!({}));
    }
    fixture.claim("second", of("first"));
    fixture.until_bound("second").await;
    let before = fixture.grants();
    for change in [json!({"bucketClaimName": "other"}), json!({"bucketClaimName": null})] {
        fixture.patch(CLAIMS, "second", json!({"spec": {"additionalConfig": change}}));
        fixture.until_event("second", "has no effect while the claim has a bucket").await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!((fixture.grants(), fixture.phase("second")), (before.clone(), "Bound".to_owned()));
    }
    let calls = fixture.store.calls("grant");
    fixture.patch(
        CLAIMS,
        "second",
        json!({"spec": {"additionalConfig": {"bucketClaimName": "first", "maxObjects": "7"}}}),
    );
    fixture.until("other settings are applied", || fixture.store.calls("grant") == calls + 1).await;
}

/// Deletes the claim whose bucket is about to be shared, during the other claim's attempt.
#[derive(Clone)]
struct DeletesMeanwhile {
    /// The moment: the creation of the ObjectBucket, or the mark on the other claim's ObjectBucket.
    at: Verb,
    /// True to delete before that write, and false to delete after it.
    before: bool,
    cluster: Arc<Mutex<Option<Cluster>>>,
}

impl DeletesMeanwhile {
    async fn at(&self, request: &Request) {
        let is_it = request.resource.plural == BUCKETS
            && request.verb == self.at
            && request.subresource.is_none()
            && (self.at == Verb::Create || request.name == "obc-default-first");
        let Some(cluster) = self.cluster.lock().unwrap().take_if(|_| is_it) else { return };
        let _ = cluster.delete(&target(BUCKETS, "obc-default-first"), DeleteOptions::default());
        let _ = cluster.delete(&target(CLAIMS, "first"), DeleteOptions::default());
        // Give the process that reconciles the other claim time to act.
        sleep(Duration::from_secs(9)).await;
    }
}

impl Interceptor for DeletesMeanwhile {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        Box::pin(async move {
            if self.before {
                self.at(request).await;
            }
            Before::Handle
        })
    }

    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        Box::pin(async move {
            if !self.before {
                self.at(request).await;
            }
            After::Deliver
        })
    }
}

// Rules: Z31.
#[tokio::test(start_paused = true)]
async fn a_deletion_during_an_attempt_leaves_no_user_without_bucket() {
    for (at, before) in [(Verb::Create, true), (Verb::Create, false), (Verb::Patch, true), (Verb::Patch, false)] {
        let deletes = DeletesMeanwhile { at, before, cluster: Arc::default() };
        let mut fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(deletes.clone())));
        fixture.options.options.shards = 2;
        let _running = [1, 2].map(|number| fixture.start(number));
        fixture.claim("first", json!({"bucketName": "photos"}));
        fixture.until_bound("first").await;
        *deletes.cluster.lock().unwrap() = Some(fixture.cluster.clone());
        fixture.claim("second", of("first"));
        sleep(Duration::from_secs(120)).await;
        assert!(deletes.cluster.lock().unwrap().is_none(), "{at:?} {before}");
        let is_marked_first = (at, before) == (Verb::Patch, false);
        let (bound, has_bucket) = (fixture.phase("second") == "Bound", !fixture.store.state().buckets.is_empty());
        assert_eq!(
            (bound, has_bucket),
            (is_marked_first, is_marked_first),
            "{at:?} {before}: {:?}",
            fixture.store.assets()
        );
        assert_eq!(fixture.grants().len(), usize::from(bound), "{at:?} {before}");
        assert_eq!(fixture.get(CLAIMS, "first").is_some(), has_bucket, "{at:?} {before}");
        fixture.delete(CLAIMS, "second");
        for claim in ["second", "first"] {
            fixture.until_gone(claim).await;
        }
        assert!(fixture.store.is_empty() && fixture.grants().is_empty());
    }
}
