//! Volumes on a real control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_provisioner::DeleteError;
use kube_provisioner::protocol::FINALIZER;
use kube_sim::merge_patch;
use serde_json::{Value, json};
use testbed::cluster::{TestSpace, until};
use testbed::faults::{Fault, faulty};
use testbed::toy::{Answer, Toy, options};

const SOON: Duration = Duration::from_secs(20);

/// Creates a volume without a provisioner. Its claim has never existed, so the controller-manager releases it.
async fn manual(space: &TestSpace, suffix: &str, change: Value) -> anyhow::Result<PersistentVolume> {
    let mut volume = json!({
        "metadata": {"name": space.cluster_wide_name(suffix), "annotations": {"pv.kubernetes.io/provisioned-by": space.provisioner()}},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": space.cluster_wide_name("none"), "nfs": {"server": "s", "path": "/p"},
            "claimRef": {"namespace": space.namespace(), "name": "gone", "uid": "00000000-0000-0000-0000-000000000001"}},
    });
    merge_patch(&mut volume, change);
    space.create_cluster_wide(&serde_json::from_value::<PersistentVolume>(volume)?).await
}

fn phase(volume: &PersistentVolume, phase: &str) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

fn protected(volume: &PersistentVolume) -> bool {
    volume.finalizers().iter().any(|name| name == FINALIZER)
}

/// A claim with its volume, both bound.
async fn bound(space: &TestSpace) -> anyhow::Result<PersistentVolume> {
    let class = space.create_class(space.class("class")).await?;
    Ok(space.bind(space.claim("claim", &class)).await?.1)
}

async fn release(space: &TestSpace) -> anyhow::Result<()> {
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the controller has handled all earlier events.
async fn another_round(space: &TestSpace, name: &str) -> anyhow::Result<()> {
    let class = space.create_class(space.class(&format!("round-{name}"))).await?;
    let claim = format!("round-{name}");
    space.bind(space.claim(&claim, &class)).await?;
    Ok(())
}

// Rules: C5, I2.
#[tokio::test]
async fn only_our_volume_is_deleted() -> anyhow::Result<()> {
    let space = TestSpace::new("c5").await?;
    let foreign = json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "abc.example.com/ghi"}}});
    let volumes = space.cluster_api::<PersistentVolume>();
    let (ours, theirs) =
        (manual(&space, "ours", json!({})).await?.name_any(), manual(&space, "theirs", foreign).await?.name_any());
    space.wait_for(&volumes, &theirs, "released", |volume| phase(volume, "Released")).await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    space.wait_gone(&volumes, &ours).await?;
    another_round(&space, "c5").await?;
    assert_eq!((toy.deletes(&ours), toy.deletes(&theirs)), (1, 0));
    assert!(phase(&volumes.get(&theirs).await?, "Released"));
    space.done().await
}

// Rules: C8, C9.
#[tokio::test]
async fn bound_and_retained_volumes_are_not_deleted() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c8").await?;
    let bound = bound(&space).await?.name_any();
    let retained =
        manual(&space, "kept", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await?.name_any();
    let volumes = space.cluster_api::<PersistentVolume>();
    space.wait_for(&volumes, &retained, "released", |volume| phase(volume, "Released")).await?;
    another_round(&space, "c8").await?;
    assert_eq!((toy.deletes(&bound), toy.deletes(&retained)), (0, 0));
    space.done().await
}

// Rules: C11, C37.
#[tokio::test]
async fn failed_deletion_is_reported_and_the_volume_stays() -> anyhow::Result<()> {
    let space = TestSpace::new("c11").await?;
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    let toy = Toy::new().on_delete(move |_, _| {
        if gate.load(Ordering::Relaxed) {
            Answer::Done
        } else {
            Answer::Failed(DeleteError::retry("the backend is locked"))
        }
    });
    let _controller = toy.run(&space);
    let name = bound(&space).await?.name_any();
    release(&space).await?;
    let event = space.wait_for_event("PersistentVolume", &name, "VolumeFailedDelete").await?;
    assert_eq!(event.message.as_deref(), Some("the backend is locked"));
    let volumes = space.cluster_api::<PersistentVolume>();
    assert!(protected(&volumes.get(&name).await?));
    open.store(true, Ordering::Relaxed);
    space.wait_gone(&volumes, &name).await?;
    assert!(toy.assets().is_empty());
    space.done().await
}

// Rules: C13, C38, G2.
#[tokio::test]
async fn backend_is_called_once_when_the_object_cannot_be_deleted() -> anyhow::Result<()> {
    for finalizer in [false, true] {
        let space = TestSpace::new("c13").await?;
        let toy = Toy::new();
        let refused = AtomicUsize::new(0);
        let client = faulty(&space.client(), move |method, path| {
            let last_step = if finalizer { Method::PATCH } else { Method::DELETE };
            let hit = *method == last_step && path.starts_with("/api/v1/persistentvolumes/");
            (hit && refused.fetch_add(1, Ordering::Relaxed) < 3).then_some(Fault::Refuse(500))
        });
        let mut options = options(&space);
        options.add_finalizer = finalizer;
        let _controller = toy.run_with(options, client);
        let name = bound(&space).await?.name_any();
        release(&space).await?;
        until("the asset is deleted", || toy.deletes(&name) > 0).await?;
        space.wait_gone(&space.cluster_api::<PersistentVolume>(), &name).await?;
        assert_eq!(toy.deletes(&name), 1, "finalizer: {finalizer}");
        space.done().await?;
    }
    Ok(())
}

// Rules: C31, C35.
#[tokio::test]
async fn new_volume_is_protected_and_deleted_with_its_claim() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c31").await?;
    let volume = bound(&space).await?;
    assert!(protected(&volume));
    release(&space).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert_eq!((toy.deletes(&volume.name_any()), toy.assets().len()), (1, 0));
    space.done().await
}

// Rules: C36.
#[tokio::test]
async fn volume_deleted_before_its_claim_leaves_no_asset() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c36").await?;
    let name = bound(&space).await?.name_any();
    let volumes = space.cluster_api::<PersistentVolume>();
    volumes.delete(&name, &DeleteParams::default()).await?;
    another_round(&space, "c36").await?;
    assert_eq!((toy.deletes(&name), protected(&volumes.get(&name).await?)), (0, true));
    release(&space).await?;
    space.wait_gone(&volumes, &name).await?;
    assert_eq!(toy.deletes(&name), 1);
    space.done().await
}

// Rules: C32.
#[tokio::test]
async fn finalizer_is_removed_when_the_option_is_off() -> anyhow::Result<()> {
    let (space, toy, controller) = Toy::serving("c32").await?;
    let name = bound(&space).await?.name_any();
    controller.stop().await?;
    let mut options = options(&space);
    options.add_finalizer = false;
    let _controller = toy.run_with(options, space.client());
    space.wait_for(&space.cluster_api(), &name, "unprotected", |volume: &PersistentVolume| !protected(volume)).await?;
    space.done().await
}

// Rules: C33, G6.
#[tokio::test]
async fn kept_volume_loses_only_our_finalizer() -> anyhow::Result<()> {
    let (space, _, _controller) = Toy::serving("c33").await?;
    for policy in ["Retain", "Recycle"] {
        let finalizers = json!(["first.example.com/hold", FINALIZER, "second.example.com/hold"]);
        let change = json!({"metadata": {"finalizers": finalizers}, "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": null}});
        let name = manual(&space, &policy.to_lowercase(), change).await?.name_any();
        let volumes = space.cluster_api::<PersistentVolume>();
        let volume = space.wait_for(&volumes, &name, "unprotected", |volume| !protected(volume)).await?;
        let others = volume.finalizers().iter().filter(|name| name.contains("example.com")).count();
        assert_eq!(others, 2, "{policy}");
        let none = json!({"metadata": {"finalizers": null}});
        volumes.patch(&name, &PatchParams::default(), &Patch::Merge(none)).await?;
    }
    space.done().await
}

// Rules: C34.
#[tokio::test]
async fn volume_being_deleted_without_our_finalizer_is_ignored() -> anyhow::Result<()> {
    let space = TestSpace::new("c34").await?;
    let hold = json!({"metadata": {"finalizers": ["first.example.com/hold"]}});
    let name = manual(&space, "going", hold).await?.name_any();
    let volumes = space.cluster_api::<PersistentVolume>();
    space.wait_for(&volumes, &name, "released", |volume| phase(volume, "Released")).await?;
    volumes.delete(&name, &DeleteParams::default()).await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    another_round(&space, "c34").await?;
    assert_eq!(toy.deletes(&name), 0);
    assert!(!protected(&volumes.get(&name).await?));
    let none = json!({"metadata": {"finalizers": null}});
    volumes.patch(&name, &PatchParams::default(), &Patch::Merge(none)).await?;
    space.done().await
}

// Rules: C39, C40.
#[tokio::test]
async fn our_static_volumes_are_protected() -> anyhow::Result<()> {
    let space = TestSpace::new("c39").await?;
    let toy = Toy::new();
    let mut options = options(&space);
    let driver = format!("{}.example.com", space.namespace());
    options.additional_provisioner_names = vec![driver.clone()];
    let _controller = toy.run_with(options, space.client());
    let class = space.class("static").name_any();
    let annotations =
        json!({"pv.kubernetes.io/provisioned-by": null, "pv.kubernetes.io/migrated-to": space.provisioner()});
    let migrated =
        json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": null, "storageClassName": class}});
    let csi = json!({"metadata": {"annotations": null}, "spec": {"claimRef": null, "storageClassName": class,
        "nfs": null, "csi": {"driver": driver, "volumeHandle": "h"}}});
    for (suffix, change) in [("migrated", migrated), ("csi", csi)] {
        let volume = manual(&space, suffix, change).await?;
        let mut claim = space.claim(suffix, &space.class("static"));
        claim.spec.get_or_insert_default().volume_name = Some(volume.name_any());
        space.create_claim(claim).await?;
        let bound = |volume: &PersistentVolume| phase(volume, "Bound") && protected(volume);
        space.wait_for(&space.cluster_api(), &volume.name_any(), "bound and protected", bound).await?;
    }
    space.done().await
}

// Rules: G9.
#[tokio::test]
async fn stopping_waits_for_running_calls() -> anyhow::Result<()> {
    let space = TestSpace::new("g9").await?;
    let toy = Toy::new().on_provision(|_, _| Answer::After(Duration::from_secs(2)));
    let controller = toy.run(&space);
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    until("the call began", || toy.provisions("claim") == 1).await?;
    tokio::time::timeout(SOON, controller.stop()).await??;
    assert_eq!(toy.assets().len(), 1, "the running call was not completed");
    space.wait_bound("claim").await?;
    space.done().await
}

// Rules: G2.
/// A decision about one volume object never deletes another object with the same name.
#[tokio::test]
async fn deletion_applies_to_the_uid_and_not_to_the_name() -> anyhow::Result<()> {
    let space = TestSpace::new("g2").await?;
    let name = manual(&space, "twice", json!({})).await?.name_any();
    let volumes = space.cluster_api::<PersistentVolume>();
    space.wait_for(&volumes, &name, "released", |volume| phase(volume, "Released")).await?;
    let replaced = Arc::new(AtomicBool::new(false));
    let gate = replaced.clone();
    let toy = Toy::new().on_delete(move |_, _| Answer::Once(gate.clone()));
    let _controller = toy.run(&space);
    until("the deletion began", || toy.deletes(&name) == 1).await?;
    // While the backend works, an administrator replaces the object with one that must be retained.
    let mut volume = volumes.get(&name).await?;
    volumes.delete(&name, &DeleteParams::default()).await?;
    space.wait_gone(&volumes, &name).await?;
    let annotations = json!({"pv.kubernetes.io/provisioned-by": space.provisioner()});
    volume.metadata = serde_json::from_value(json!({"name": name, "annotations": annotations}))?;
    volume.status = None;
    let spec = volume.spec.get_or_insert_default();
    spec.claim_ref = None;
    spec.persistent_volume_reclaim_policy = Some("Retain".to_owned());
    volumes.create(&PostParams::default(), &volume).await?;
    replaced.store(true, Ordering::Relaxed);
    another_round(&space, "g2").await?;
    let kept = volumes.get(&name).await?;
    assert_eq!(kept.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    space.done().await
}
