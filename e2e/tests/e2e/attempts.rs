//! Attempts that fail, hang, crash or are cut off, on a real control plane.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_provisioner::{ProvisionError, Volume};
use serde_json::json;
use testbed::cluster::{TestSpace, is_bound, until};
use testbed::faults::{Fault, faulty};
use testbed::toy::{Answer, Call, Toy, options};

// Rules: C10, C18, C21.
#[tokio::test]
async fn failure_is_reported_and_retried() -> anyhow::Result<()> {
    let space = TestSpace::new("c10").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1..=3 => Answer::Failed(ProvisionError::retry("the pool is full")),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    space.create_class_and_claim("claim").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert_eq!((event.message.as_deref(), event.type_.as_deref()), (Some("the pool is full"), Some("Warning")));
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 4);
    space.done().await
}

// Rules: C12, C25, C26.
#[tokio::test]
async fn saving_is_retried_without_provisioning_again() -> anyhow::Result<()> {
    let space = TestSpace::new("c12").await?;
    let toy = Toy::new();
    let refused = std::sync::atomic::AtomicUsize::new(0);
    let client = faulty(&space.client(), move |method, path| {
        let creates = *method == Method::POST && path == "/api/v1/persistentvolumes";
        let first = || refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4;
        (creates && first()).then_some(Fault::Refuse(500))
    });
    let _controller = toy.run_with(options(&space), client);
    space.create_class_and_claim("claim").await?;
    space.wait_for_message("PersistentVolumeClaim", "claim", "created, but its PersistentVolume is not saved").await?;
    space.wait_bound("claim").await?;
    assert_eq!((toy.provisions("claim"), toy.assets().len()), (1, 1), "the volume is provisioned only once");
    assert!(toy.calls().iter().all(|call| !matches!(call, Call::Delete { .. })));
    space.done().await
}

// Rules: C26.
#[tokio::test]
async fn lost_response_creates_no_second_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("c26").await?;
    let toy = Toy::new();
    let lost = std::sync::atomic::AtomicBool::new(false);
    let client = faulty(&space.client(), move |method, path| {
        let creates = *method == Method::POST && path == "/api/v1/persistentvolumes";
        (creates && !lost.swap(true, std::sync::atomic::Ordering::Relaxed)).then_some(Fault::Lose(504))
    });
    let _controller = toy.run_with(options(&space), client);
    space.create_class_and_claim("claim").await?;
    space.wait_bound("claim").await?;
    assert_eq!((toy.provisions("claim"), space.volumes().await?.len()), (1, 1));
    space.done().await
}

// Rules: C19, C22.
#[tokio::test]
async fn in_progress_is_retried_without_a_failure_event() -> anyhow::Result<()> {
    let space = TestSpace::new("c19").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1..=3 => Answer::Failed(ProvisionError::in_progress("still formatting").after(Duration::from_millis(50))),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    space.create_class_and_claim("claim").await?;
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 4);
    let events = space.events_about("PersistentVolumeClaim", "claim").await?;
    let failures: Vec<_> =
        events.iter().filter(|event| event.reason.as_deref() == Some("ProvisioningFailed")).collect();
    assert!(failures.is_empty(), "progress is reported as a failure: {failures:?}");
    space.done().await
}

// Rules: C24.
#[tokio::test]
async fn claim_deleted_during_its_attempt_leaves_nothing_behind() -> anyhow::Result<()> {
    let space = TestSpace::new("c24").await?;
    let go = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gate = go.clone();
    let toy = Toy::new().on_provision(move |_, _| {
        if gate.load(std::sync::atomic::Ordering::Relaxed) {
            Answer::Done
        } else {
            Answer::Failed(ProvisionError::in_progress("still formatting").after(Duration::from_millis(50)))
        }
    });
    let _controller = toy.run(&space);
    space.create_class_and_claim("claim").await?;
    until("the work began", || toy.provisions("claim") > 0).await?;
    let claim = space.api::<PersistentVolumeClaim>().get("claim").await?;
    let volume = format!("pvc-{}", claim.uid().unwrap_or_default());
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete("claim", &DeleteParams::default()).await?;
    space.wait_gone(&claims, "claim").await?;
    go.store(true, std::sync::atomic::Ordering::Relaxed);
    until("the asset is deleted again", || toy.deletes(&volume) > 0).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume).await?;
    assert!(toy.assets().is_empty());
    assert_eq!(toy.deletes(&volume), 1);
    space.done().await
}

// Rules: G18.
#[tokio::test]
async fn panic_fails_only_the_current_attempt() -> anyhow::Result<()> {
    let space = TestSpace::new("g18").await?;
    let toy = Toy::new().on_provision(|_, call| if call == 1 { Answer::Panics } else { Answer::Done });
    let _controller = toy.run(&space);
    space.create_class_and_claim("claim").await?;
    space.wait_for_message("PersistentVolumeClaim", "claim", "crashed in `provision` and will be called again").await?;
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 2);
    space.done().await
}

// Rules: G19.
#[tokio::test]
async fn hanging_call_is_cancelled_and_others_continue() -> anyhow::Result<()> {
    let space = TestSpace::new("g19").await?;
    let toy = Toy::new().on_provision(|claim, call| match (claim, call) {
        ("slow", 1) => Answer::After(Duration::from_secs(3600)),
        _ => Answer::Done,
    });
    let mut options = options(&space);
    options.provision_timeout = Duration::from_secs(1);
    let _controller = toy.run_with(options, space.client());
    let class = space.create_class_and_claim("slow").await?;
    until("the slow call began", || toy.provisions("slow") == 1).await?;
    space.bind(space.claim("quick", &class)).await?;
    space.wait_bound("slow").await?;
    assert_eq!(toy.provisions("slow"), 2);
    space.done().await
}

// Rules: G20.
#[tokio::test]
async fn invalid_volume_is_reported_and_not_saved() -> anyhow::Result<()> {
    let space = TestSpace::new("g20").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1 => Answer::Made(Box::new(Volume::nfs("server", "/small").capacity(1))),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    space.create_class_and_claim("claim").await?;
    space.wait_for_message("PersistentVolumeClaim", "claim", "1 bytes").await?;
    space.wait_bound("claim").await?;
    space.done().await
}

// Rules: G3.
#[tokio::test]
async fn unrelated_update_does_not_end_a_back_off() -> anyhow::Result<()> {
    let space = TestSpace::new("g3").await?;
    let toy = Toy::new().on_provision(|_, _| Answer::Failed(ProvisionError::retry("no")));
    let mut options = options(&space);
    options.retry_interval_start = Duration::from_secs(600);
    options.retry_interval_max = Duration::from_secs(600);
    let _controller = toy.run_with(options, space.client());
    let class = space.create_class_and_claim("claim").await?;
    until("the first attempt", || toy.provisions("claim") == 1).await?;
    let claims = space.api::<PersistentVolumeClaim>();
    for round in 0..5 {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        claims.patch("claim", &PatchParams::default(), &Patch::Merge(label)).await?;
    }
    // Watch events arrive in order: the controller sees this claim after all those updates.
    space.create_claim(space.claim("after", &class)).await?;
    until("the later claim was seen", || toy.provisions("after") == 1).await?;
    assert_eq!(toy.provisions("claim"), 1);
    let node = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    claims.patch("claim", &PatchParams::default(), &Patch::Merge(node)).await?;
    until("a change that matters", || toy.provisions("claim") == 2).await?;
    assert!(!is_bound(&claims.get("claim").await?));
    space.done().await
}
