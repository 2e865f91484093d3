//! A class whose backend hangs or never finishes does not block other classes.

use std::time::Duration;

use kube_provisioner::ProvisionError;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES, volume};

/// The time within which a claim of a healthy class must be bound.
const LIMIT: Duration = Duration::from_secs(3);

/// Returns a script in which calls for claims of class `class` hang, and all others succeed immediately.
fn hangs() -> Script {
    let provision = |request: super::fixture::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("class") => std::future::pending().await,
                _ => Ok(volume(&request.name)),
            }
        })
    };
    Script { provision: Box::new(provision), ..Script::default() }
}

async fn a_healthy_claim_is_bound(fixture: &Fixture, after: &str) {
    fixture.claim(&format!("healthy-{after}"), "other");
    let took = fixture.until("the healthy claim is bound", || fixture.is_bound(&format!("healthy-{after}"))).await;
    assert!(took < LIMIT, "{after}: {took:?}");
}

// Rules: G52.
#[tokio::test(start_paused = true)]
async fn ten_thousand_hanging_claims_block_no_other_class() {
    let fixture = Fixture::new(hangs());
    let old = fixture.claim("old", "other");
    let _running = fixture.start(1);
    fixture.until("the old claim is bound", || fixture.is_bound("old")).await;
    for index in 0..10_000 {
        fixture.claim(&format!("hangs-{index}"), "class");
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(
        fixture.calls.count("provision hangs") >= 50,
        "only {} calls in progress",
        fixture.calls.count("provision hangs")
    );
    a_healthy_claim_is_bound(&fixture, "thousands-that-hang").await;
    // Deletions also continue.
    fixture.delete(CLAIMS, "old");
    let took = fixture.until("the old volume is gone", || fixture.get(VOLUMES, &old).is_none()).await;
    assert!(took < LIMIT, "{took:?}");
}

// Rules: G52.
#[tokio::test(start_paused = true)]
async fn several_hanging_classes_block_no_other_class() {
    let provision = |request: super::fixture::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("other") => Ok(volume(&request.name)),
                _ => std::future::pending().await,
            }
        })
    };
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = fixture.start(1);
    for class in 0..8 {
        fixture.class(&format!("broken-{class}"), serde_json::json!({}));
        for index in 0..200 {
            fixture.claim(&format!("hangs-{class}-{index}"), &format!("broken-{class}"));
        }
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    a_healthy_claim_is_bound(&fixture, "eight-classes-that-hang").await;
}

// Rules: G52.
#[tokio::test(start_paused = true)]
async fn three_thousand_claims_in_progress_block_no_other_class() {
    let provision = |request: super::fixture::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.class.metadata.name.as_deref() {
                Some("class") => Err(ProvisionError::in_progress("the backend is at it")),
                _ => Ok(volume(&request.name)),
            }
        })
    };
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = fixture.start(1);
    for index in 0..3000 {
        fixture.claim(&format!("slow-{index}"), "class");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let journal = fixture.entries().len();
    assert!(journal > 500, "only {journal} attempts in progress");
    a_healthy_claim_is_bound(&fixture, "thousands-in-progress").await;
}

// Rules: G63.
#[tokio::test(start_paused = true)]
async fn a_namespace_with_hanging_calls_blocks_no_other_namespace() {
    let provision = |request: super::fixture::Request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            match request.claim.metadata.namespace.as_deref() {
                Some("crowd") => std::future::pending().await,
                _ => Ok(volume(&request.name)),
            }
        })
    };
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = fixture.start(1);
    let crowd = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}});
    fixture.cluster.create(&crowd).unwrap();
    for index in 0..500 {
        fixture.claim_with(&format!("hangs-{index}"), "other", serde_json::json!({"metadata": {"namespace": "crowd"}}));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(
        fixture.calls.count("provision hangs") >= 50,
        "only {} calls in progress",
        fixture.calls.count("provision hangs")
    );
    a_healthy_claim_is_bound(&fixture, "a-crowd-that-hangs").await;
}

// Rules: G51.
#[tokio::test(start_paused = true)]
async fn hanging_deletions_delay_no_new_claim_of_their_class() {
    let delete = |_| -> futures::future::BoxFuture<'static, _> { Box::pin(std::future::pending()) };
    let fixture = Fixture::new(Script { delete: Box::new(delete), ..Script::default() });
    let _running = fixture.start(1);
    let old: Vec<String> = (0..100).map(|index| format!("old-{index}")).collect();
    old.iter().for_each(|claim| drop(fixture.claim(claim, "other")));
    fixture.until("the old claims are bound", || old.iter().all(|claim| fixture.is_bound(claim))).await;
    old.iter().for_each(|claim| fixture.delete(CLAIMS, claim));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(fixture.calls.count("delete") >= 50, "only {} calls in progress", fixture.calls.count("delete"));
    a_healthy_claim_is_bound(&fixture, "deletions-that-hang").await;
}
