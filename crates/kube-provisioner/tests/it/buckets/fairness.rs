//! Fairness between classes, namespaces, and removals.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture};

const SLOW: Duration = Duration::from_secs(10);
/// Longer than any time limit of a call.
const HANGS: Duration = Duration::from_secs(24 * 60 * 60);

fn with_namespaces() -> Fixture {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    fixture
}

/// Returns the number of further calls of `create_bucket` before the call for this bucket.
async fn calls_before(fixture: &Fixture, bucket: &str) -> usize {
    let now = fixture.store.calls("create_bucket");
    let name = format!("create_bucket {bucket}");
    fixture.until("its call begins", || fixture.store.calls(&name) > 0).await;
    let state = fixture.store.state();
    let calls: Vec<&String> = state.calls.iter().filter(|call| call.starts_with("create_bucket")).collect();
    calls.iter().position(|call| **call == name).unwrap() - now
}

async fn create_many_slow_claims(fixture: &Fixture) {
    fixture.store.state().pauses.insert("create_bucket", SLOW);
    for index in 0..500 {
        fixture.claim_in("a", &format!("many-{index}"), json!({}));
    }
    sleep(Duration::from_secs(5)).await;
}

// Rules: Z27.
#[tokio::test(start_paused = true)]
async fn a_namespace_with_500_claims_delays_no_other_namespace() {
    let fixture = with_namespaces();
    let _running = fixture.start(1);
    create_many_slow_claims(&fixture).await;
    assert!(fixture.store.calls("create_bucket") >= 50, "too few calls in progress");
    fixture.claim_in("b", "one", json!({"bucketName": "one"}));
    let before = calls_before(&fixture, "one").await;
    assert!(before <= 3, "{before}");
    let took = fixture.until("it is bound", || fixture.phase("b/one") == "Bound").await;
    assert!(took < SLOW + Duration::from_secs(2), "{took:?}");
}

// Rules: Z27.
#[tokio::test(start_paused = true)]
async fn with_one_call_at_a_time_namespaces_take_turns() {
    let mut fixture = with_namespaces();
    fixture.options.options.class_concurrency = 1;
    let _running = fixture.start(1);
    create_many_slow_claims(&fixture).await;
    fixture.claim_in("b", "one", json!({"bucketName": "one"}));
    fixture.claim_in("c", "two", json!({"bucketName": "two"}));
    let before = calls_before(&fixture, "one").await;
    assert!(before <= 2, "{before}");
    let before = calls_before(&fixture, "two").await;
    assert!(before <= 2, "{before}");
}

// Rules: Z27.
/// A namespace leaves room for others, regardless of the number of its hanging calls.
#[tokio::test(start_paused = true)]
async fn a_namespace_with_hanging_calls_blocks_no_other_namespace() {
    let fixture = with_namespaces();
    let _running = fixture.start(1);
    fixture.store.state().pauses.insert("create_bucket", HANGS);
    for index in 0..500 {
        fixture.claim_in("a", &format!("hangs-{index}"), json!({}));
    }
    sleep(Duration::from_secs(5)).await;
    assert!(fixture.store.calls("create_bucket") >= 50, "too few calls in progress");
    fixture.store.state().pauses.clear();
    fixture.claim_in("b", "one", json!({}));
    let took = fixture.until("it is bound", || fixture.phase("b/one") == "Bound").await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

// Rules: Z28.
#[tokio::test(start_paused = true)]
async fn a_hundred_hanging_deletions_delay_no_new_claim() {
    for class_concurrency in [0, 1] {
        hanging_deletions_delay_no_new_claim(class_concurrency).await;
    }
}

async fn hanging_deletions_delay_no_new_claim(class_concurrency: usize) {
    let mut fixture = Fixture::new();
    fixture.options.options.class_concurrency = class_concurrency;
    let _running = fixture.start(1);
    for index in 0..100 {
        fixture.claim(&format!("old-{index}"), json!({}));
    }
    let is_bound = |bucket: &serde_json::Value| bucket["status"]["phase"] == "Bound";
    let all_bound = || {
        let buckets = fixture.cluster.list("objectbucket.io", BUCKETS, None).unwrap();
        buckets.len() == 100 && buckets.iter().all(is_bound)
    };
    fixture.until("the old claims are bound", all_bound).await;
    fixture.store.state().pauses.insert("delete_bucket", HANGS);
    for index in 0..100 {
        fixture.delete(CLAIMS, &format!("old-{index}"));
    }
    sleep(Duration::from_secs(5)).await;
    let under_way = fixture.store.calls("delete_bucket");
    assert!(if class_concurrency == 0 { under_way >= 50 } else { under_way == 1 }, "{under_way}");
    fixture.claim("new", json!({}));
    let took = fixture.until("the new claim is bound", || fixture.phase("new") == "Bound").await;
    assert!(took < Duration::from_secs(3), "{took:?} with {class_concurrency}");
}
