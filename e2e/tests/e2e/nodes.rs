//! Nodes and topology, on a real control plane.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube_provisioner::ProvisionError;
use serde_json::json;
use testbed::cluster::{TestSpace, until};
use testbed::toy::{Answer, Call, Toy};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Creates a claim `claim` with a selected node, in a class with delayed binding.
async fn select_node(space: &TestSpace) -> anyhow::Result<()> {
    let class = space.waiting_class_with("class", []).await?;
    let mut claim = space.claim("claim", &class);
    let annotations =
        [("volume.kubernetes.io/storage-provisioner", space.provisioner()), (SELECTED_NODE, "node-1"), ("keep", "me")];
    claim.annotations_mut().extend(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())));
    space.create_claim(claim).await?;
    Ok(())
}

/// A toy that fails only for `claim`.
fn failing(error: fn() -> ProvisionError) -> Toy {
    Toy::new().on_provision(move |claim, _| if claim == "claim" { Answer::Failed(error()) } else { Answer::Done })
}

/// Waits until a later claim is provisioned. By then, the controller has handled all earlier events.
async fn later(space: &TestSpace) -> anyhow::Result<PersistentVolumeClaim> {
    let class = space.create_class(space.class("later")).await?;
    space.bind(space.claim("later", &class)).await?;
    Ok(space.api::<PersistentVolumeClaim>().get("claim").await?)
}

// Rules: C27.
#[tokio::test]
async fn reschedule_removes_only_the_selected_node_annotation() -> anyhow::Result<()> {
    let space = TestSpace::new("c27").await?;
    let toy = failing(|| ProvisionError::reschedule("no room on this node"));
    let _controller = toy.run(&space);
    select_node(&space).await?;
    let claims = space.api::<PersistentVolumeClaim>();
    let taken_back = |claim: &PersistentVolumeClaim| !claim.annotations().contains_key(SELECTED_NODE);
    space.wait_for(&claims, "claim", "without a node", taken_back).await?;
    let claim = later(&space).await?;
    assert!(taken_back(&claim));
    assert_eq!(claim.annotations()["keep"], "me");
    assert_eq!(toy.provisions("claim"), 1);
    space.done().await
}

// Rules: C28, C29, C30.
#[tokio::test]
async fn other_failures_keep_the_selected_node() -> anyhow::Result<()> {
    for error in [|| ProvisionError::retry("no"), || ProvisionError::in_progress("not yet")] {
        let space = TestSpace::new("c28").await?;
        let toy = failing(error);
        let _controller = toy.run(&space);
        select_node(&space).await?;
        // All effects of the first attempt precede the second one.
        until("the second attempt", || toy.provisions("claim") >= 2).await?;
        let claim = later(&space).await?;
        assert_eq!(claim.annotations()[SELECTED_NODE], "node-1", "{}", error());
        assert_eq!(claim.annotations()["keep"], "me");
        space.done().await?;
    }
    Ok(())
}

// Rules: T1, T2, T3, T4.
#[tokio::test]
async fn topology_and_node_are_passed_to_the_author() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("t1").await?;
    let zones = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["zone1"]}]}]);
    for (name, zoned, waits) in [("t1", false, false), ("t2", true, false), ("t3", false, true), ("t4", true, true)] {
        let mut class = space.class(name);
        class.allowed_topologies = zoned.then(|| serde_json::from_value(zones.clone())).transpose()?;
        class.volume_binding_mode = waits.then(|| "WaitForFirstConsumer".to_owned());
        let class = space.create_class(class).await?;
        let mut claim = space.claim(name, &class);
        if waits {
            let node = [("volume.kubernetes.io/storage-provisioner", space.provisioner()), (SELECTED_NODE, "node-1")];
            claim.annotations_mut().extend(node.map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        space.create_claim(claim).await?;
        until(name, || toy.provisions(name) == 1).await?;
        let seen = toy.calls().into_iter().find_map(|call| match call {
            Call::Provision { claim, node, zones, .. } if claim == name => Some((node, zones)),
            _ => None,
        });
        let zones = if zoned { vec!["zone1".to_owned()] } else { Vec::new() };
        assert_eq!(seen, Some((waits.then(|| "node-1".to_owned()), zones)), "{name}");
    }
    space.done().await
}
