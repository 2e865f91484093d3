//! Who waits for whom: classes, namespaces, and removals.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::stand::{BUCKETS, CLAIMS, Stand};

const SLOW: Duration = Duration::from_secs(10);
/// Longer than any limit of a call.
const HANGS: Duration = Duration::from_secs(24 * 60 * 60);

fn with_namespaces() -> Stand {
    let stand = Stand::new();
    for name in ["a", "b", "c"] {
        stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    stand
}

/// How many calls of `provision` for others begin before the one for this bucket, from now on.
async fn calls_before(stand: &Stand, bucket: &str) -> usize {
    let now = stand.store.calls("provision");
    let name = format!("provision {bucket}");
    stand.until("its call begins", || stand.store.calls(&name) > 0).await;
    let state = stand.store.state();
    let calls: Vec<&String> = state.calls.iter().filter(|call| call.starts_with("provision")).collect();
    calls.iter().position(|call| **call == name).unwrap() - now
}

async fn many_of_a_slow_store(stand: &Stand) {
    stand.store.state().pauses.insert("provision", SLOW);
    for index in 0..500 {
        stand.claim_in("a", &format!("many-{index}"), json!({}));
    }
    sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn z27_a_namespace_with_500_claims_delays_no_other_namespace() {
    let stand = with_namespaces();
    let _running = stand.start(1);
    many_of_a_slow_store(&stand).await;
    assert!(stand.store.calls("provision") >= 50, "many are under way");
    stand.claim_in("b", "one", json!({"bucketName": "one"}));
    let before = calls_before(&stand, "one").await;
    assert!(before <= 3, "{before}");
    let took = stand.until("it is bound", || stand.phase("b/one") == "Bound").await;
    assert!(took < SLOW + Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn z27_with_one_call_at_a_time_namespaces_take_turns() {
    let mut stand = with_namespaces();
    stand.options.options.class_concurrency = 1;
    let _running = stand.start(1);
    many_of_a_slow_store(&stand).await;
    stand.claim_in("b", "one", json!({"bucketName": "one"}));
    stand.claim_in("c", "two", json!({"bucketName": "two"}));
    let before = calls_before(&stand, "one").await;
    assert!(before <= 2, "{before}");
    let before = calls_before(&stand, "two").await;
    assert!(before <= 2, "{before}");
}

/// Whatever it holds, it leaves room.
#[tokio::test(start_paused = true)]
async fn z27_a_namespace_whose_calls_hang_stops_no_other_namespace() {
    let stand = with_namespaces();
    let _running = stand.start(1);
    stand.store.state().pauses.insert("provision", HANGS);
    for index in 0..500 {
        stand.claim_in("a", &format!("hangs-{index}"), json!({}));
    }
    sleep(Duration::from_secs(5)).await;
    assert!(stand.store.calls("provision") >= 50, "many are under way");
    stand.store.state().pauses.clear();
    stand.claim_in("b", "one", json!({}));
    let took = stand.until("it is bound", || stand.phase("b/one") == "Bound").await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn z28_a_hundred_purges_that_hang_delay_no_new_claim() {
    for class_concurrency in [0, 1] {
        purges_hang(class_concurrency).await;
    }
}

async fn purges_hang(class_concurrency: usize) {
    let mut stand = Stand::new();
    stand.options.options.class_concurrency = class_concurrency;
    let _running = stand.start(1);
    for index in 0..100 {
        stand.claim(&format!("old-{index}"), json!({}));
    }
    let is_bound = |bucket: &serde_json::Value| bucket["status"]["phase"] == "Bound";
    let all_bound = || {
        let buckets = stand.cluster.list("objectbucket.io", BUCKETS, None).unwrap();
        buckets.len() == 100 && buckets.iter().all(is_bound)
    };
    stand.until("the old claims are bound", all_bound).await;
    stand.store.state().pauses.insert("delete", HANGS);
    for index in 0..100 {
        stand.delete(CLAIMS, &format!("old-{index}"));
    }
    sleep(Duration::from_secs(5)).await;
    let under_way = stand.store.calls("delete");
    assert!(if class_concurrency == 0 { under_way >= 50 } else { under_way == 1 }, "{under_way}");
    stand.claim("new", json!({}));
    let took = stand.until("the new claim is bound", || stand.phase("new") == "Bound").await;
    assert!(took < Duration::from_secs(3), "{took:?} with {class_concurrency}");
}
