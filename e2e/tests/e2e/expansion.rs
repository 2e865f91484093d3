//! Expansion on a real control plane.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube_provisioner::ExpandError;
use serde_json::json;
use testbed::cluster::TestSpace;
use testbed::toy::Toy;

/// Creates a claim for 1Mi in an expandable class, and returns its volume's name.
async fn bound(space: &TestSpace) -> anyhow::Result<String> {
    let mut class = space.class("class");
    class.allow_volume_expansion = Some(true);
    let class = space.create_class(class).await?;
    Ok(space.bind(space.claim("claim", &class)).await?.1.name_any())
}

/// Requests this size for a claim.
pub(crate) async fn ask_for(space: &TestSpace, claim: &str, size: &str) -> anyhow::Result<()> {
    let request = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let claims = space.api::<PersistentVolumeClaim>();
    claims.patch(claim, &PatchParams::default(), &Patch::Merge(request)).await?;
    Ok(())
}

/// True if the claim's status reports this size.
pub(crate) fn has(claim: &PersistentVolumeClaim, size: &str) -> bool {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    capacity.is_some_and(|capacity| capacity.0 == size)
}

fn resize_status(claim: &PersistentVolumeClaim) -> Option<&str> {
    let statuses = claim.status.as_ref()?.allocated_resource_statuses.as_ref()?;
    statuses.get("storage").map(String::as_str)
}

/// Waits until the claim and the volume report this size, and no resize condition remains.
async fn wait_for_size(space: &TestSpace, volume: &str, size: &str) -> anyhow::Result<()> {
    let claim = space.wait_for(&space.api(), "claim", "expanded", |claim| has(claim, size)).await?;
    assert_eq!(resize_status(&claim), None);
    // Other components add their own conditions.
    let conditions = claim.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(!conditions.iter().any(|condition| condition.type_.contains("Resiz")), "{conditions:?}");
    let volume = space.cluster_api::<PersistentVolume>().get(volume).await?;
    let capacity = volume.spec.and_then(|spec| spec.capacity).unwrap_or_default();
    assert_eq!(capacity["storage"].0, size);
    Ok(())
}

// Rules: X8.
#[tokio::test]
async fn claim_is_expanded() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("x8").await?;
    let volume = bound(&space).await?;
    ask_for(&space, "claim", "1536Ki").await?;
    wait_for_size(&space, &volume, "1536Ki").await?;
    space.wait_for_event("PersistentVolumeClaim", "claim", "Resizing").await?;
    space.wait_for_event("PersistentVolumeClaim", "claim", "VolumeResizeSuccessful").await?;
    ask_for(&space, "claim", "3Mi").await?;
    wait_for_size(&space, &volume, "3Mi").await?;
    let mut sizes = toy.expansions(&volume);
    // If another client writes the claim between the call and the status, the call is repeated.
    sizes.dedup();
    assert_eq!(sizes, [1536 << 10, 3 << 20]);
    space.done().await
}

// Rules: X9.
#[tokio::test]
async fn infeasible_size_is_reported_and_can_be_reduced() -> anyhow::Result<()> {
    let space = TestSpace::new("x9").await?;
    let toy = Toy::new().on_expand(|bytes, _| match bytes {
        0..=0x40_0000 => Ok(()),
        _ => Err(ExpandError::infeasible("the pool has no disk of that size; ask for 4Mi")),
    });
    let _controller = toy.run(&space);
    let volume = bound(&space).await?;
    ask_for(&space, "claim", "8Mi").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "VolumeResizeFailed").await?;
    assert_eq!(event.message.as_deref(), Some("the pool has no disk of that size; ask for 4Mi"));
    let infeasible = |claim: &PersistentVolumeClaim| resize_status(claim) == Some("ControllerResizeInfeasible");
    space.wait_for(&space.api(), "claim", "marked as infeasible", infeasible).await?;
    ask_for(&space, "claim", "4Mi").await?;
    wait_for_size(&space, &volume, "4Mi").await?;
    let mut sizes = toy.expansions(&volume);
    // If another client writes the claim between the call and the status, the call is repeated.
    sizes.dedup();
    assert_eq!(sizes, [8 << 20, 4 << 20]);
    space.done().await
}

// Rules: X10.
#[tokio::test]
async fn failure_is_reported_and_retried() -> anyhow::Result<()> {
    let space = TestSpace::new("x10").await?;
    let toy = Toy::new().on_expand(|_, call| match call {
        1 | 2 => Err(ExpandError::retry("the pool does not answer")),
        _ => Ok(()),
    });
    let _controller = toy.run(&space);
    let volume = bound(&space).await?;
    ask_for(&space, "claim", "2Mi").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "VolumeResizeFailed").await?;
    assert_eq!(event.message.as_deref(), Some("the pool does not answer"));
    wait_for_size(&space, &volume, "2Mi").await?;
    let sizes = toy.expansions(&volume);
    // Kubernetes also writes conditions of unused claims, which can cause one more call.
    assert!([3, 4].contains(&sizes.len()) && sizes.iter().all(|&size| size == 2 << 20), "{sizes:?}");
    space.done().await
}
