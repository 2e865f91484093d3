//! A class whose backend hangs, or is never done, stops no other class.

use std::time::Duration;

use kube_provisioner::ProvisionError;

use super::stand::{CLAIMS, Script, Stand, VOLUMES, volume};

/// At which a claim of a healthy class must be bound.
const LIMIT: Duration = Duration::from_secs(3);

/// Claims of class `class` hang, all others are served at once.
fn hangs() -> Script {
    let provision = |request: super::stand::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("class") => std::future::pending().await,
                _ => Ok(volume(&request.name)),
            }
        })
    };
    Script { provision: Box::new(provision), ..Script::default() }
}

async fn a_healthy_claim_is_bound(stand: &Stand, after: &str) {
    stand.claim(&format!("healthy-{after}"), "other");
    let took = stand.until("the healthy claim is bound", || stand.is_bound(&format!("healthy-{after}"))).await;
    assert!(took < LIMIT, "{after}: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn g52_ten_thousand_claims_of_a_class_that_hangs_stop_no_other_class() {
    let stand = Stand::new(hangs());
    let old = stand.claim("old", "other");
    let _running = stand.start(1);
    stand.until("the old claim is bound", || stand.is_bound("old")).await;
    for index in 0..10_000 {
        stand.claim(&format!("hangs-{index}"), "class");
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(stand.calls.count("provision hangs") >= 50, "many are under way: {}", stand.calls.count("provision hangs"));
    a_healthy_claim_is_bound(&stand, "thousands-that-hang").await;
    // Deletions go on too.
    stand.delete(CLAIMS, "old");
    let took = stand.until("the old volume is gone", || stand.get(VOLUMES, &old).is_none()).await;
    assert!(took < LIMIT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn g52_several_classes_that_hang_stop_no_other_class() {
    let provision = |request: super::stand::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("other") => Ok(volume(&request.name)),
                _ => std::future::pending().await,
            }
        })
    };
    let stand = Stand::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = stand.start(1);
    for class in 0..8 {
        stand.class(&format!("broken-{class}"), serde_json::json!({}));
        for index in 0..200 {
            stand.claim(&format!("hangs-{class}-{index}"), &format!("broken-{class}"));
        }
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    a_healthy_claim_is_bound(&stand, "eight-classes-that-hang").await;
}

#[tokio::test(start_paused = true)]
async fn g52_three_thousand_claims_in_progress_stop_no_other_class() {
    let provision = |request: super::stand::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("class") => Err(ProvisionError::in_progress("the backend is at it")),
                _ => Ok(volume(&request.name)),
            }
        })
    };
    let stand = Stand::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = stand.start(1);
    for index in 0..3000 {
        stand.claim(&format!("slow-{index}"), "class");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let journal = stand.entries().len();
    assert!(journal > 500, "the journal is well used: {journal}");
    a_healthy_claim_is_bound(&stand, "thousands-in-progress").await;
}

#[tokio::test(start_paused = true)]
async fn g63_a_namespace_whose_calls_hang_stops_no_other_namespace() {
    let provision = |request: super::stand::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.claim.metadata.namespace.as_deref() {
                Some("crowd") => std::future::pending().await,
                _ => Ok(volume(&request.name)),
            }
        })
    };
    let stand = Stand::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = stand.start(1);
    let crowd = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}});
    stand.cluster.create(&crowd).unwrap();
    for index in 0..500 {
        stand.claim_with(&format!("hangs-{index}"), "other", serde_json::json!({"namespace": "crowd"}));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(stand.calls.count("provision hangs") >= 50, "many are under way: {}", stand.calls.count("provision hangs"));
    a_healthy_claim_is_bound(&stand, "a-crowd-that-hangs").await;
}

#[tokio::test(start_paused = true)]
async fn g64_deletions_that_hang_delay_no_new_claim_of_their_class() {
    let delete = |_| -> futures::future::BoxFuture<'static, _> { Box::pin(std::future::pending()) };
    let stand = Stand::new(Script { delete: Box::new(delete), ..Script::default() });
    let _running = stand.start(1);
    let old: Vec<String> = (0..100).map(|index| format!("old-{index}")).collect();
    old.iter().for_each(|claim| drop(stand.claim(claim, "other")));
    stand.until("the old claims are bound", || old.iter().all(|claim| stand.is_bound(claim))).await;
    old.iter().for_each(|claim| stand.delete(CLAIMS, claim));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(stand.calls.count("delete") >= 50, "many are under way: {}", stand.calls.count("delete"));
    a_healthy_claim_is_bound(&stand, "deletions-that-hang").await;
}
