//! Nodes and topology, on a real control plane.
//!
//! The letters in front are the rows of `docs/behaviour.md`.

use std::time::Duration;

use e2e::cluster::{TestSpace, until};
use e2e::toy::{Answer, Call, Toy};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube_provisioner::ProvisionError;
use serde_json::json;

async fn selected(
    space: &TestSpace,
    toy: &Toy,
    error: fn() -> ProvisionError,
) -> anyhow::Result<PersistentVolumeClaim> {
    let toy = toy.clone().on_provision(move |_, _| Answer::Failed(error()));
    let _controller = toy.run(space);
    let mut class = space.class("class");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    let class = space.create_class(class).await?;
    let mut claim = space.claim("claim", &class);
    let annotations = [
        ("volume.kubernetes.io/storage-provisioner", space.provisioner()),
        ("volume.kubernetes.io/selected-node", "node-1"),
        ("keep", "me"),
    ];
    claim.annotations_mut().extend(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())));
    space.create_claim(claim).await?;
    until("provision was called twice or the node was taken back", || toy.provisions("claim") > 0).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(space.api::<PersistentVolumeClaim>().get("claim").await?)
}

#[tokio::test]
async fn c27_reschedule_takes_the_node_back_and_nothing_else() -> anyhow::Result<()> {
    let space = TestSpace::new("c27").await?;
    let toy = Toy::new();
    let claim = selected(&space, &toy, || ProvisionError::reschedule("no room on this node")).await?;
    assert!(!claim.annotations().contains_key("volume.kubernetes.io/selected-node"));
    assert_eq!(claim.annotations()["keep"], "me");
    assert_eq!(toy.provisions("claim"), 1);
    space.done().await
}

#[tokio::test]
async fn c28_c29_c30_other_failures_keep_the_node() -> anyhow::Result<()> {
    let space = TestSpace::new("c28").await?;
    for (at, error) in
        [|| ProvisionError::retry("no"), || ProvisionError::in_progress("not yet")].into_iter().enumerate()
    {
        let claim = selected(&space, &Toy::new(), error).await?;
        assert_eq!(claim.annotations()["volume.kubernetes.io/selected-node"], "node-1", "{at}");
        let claims = space.api::<PersistentVolumeClaim>();
        claims.delete("claim", &DeleteParams::default()).await?;
        space.wait_gone(&claims, "claim").await?;
        space.cluster_api::<StorageClass>().delete(&space.cluster_wide_name("class"), &DeleteParams::default()).await?;
    }
    space.done().await
}

#[tokio::test]
async fn t1_t2_t3_t4_topology_and_node_are_handed_on() -> anyhow::Result<()> {
    let space = TestSpace::new("t1").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let zones = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["zone1"]}]}]);
    for (name, zoned, waits) in [("t1", false, false), ("t2", true, false), ("t3", false, true), ("t4", true, true)] {
        let mut class = space.class(name);
        class.allowed_topologies = zoned.then(|| serde_json::from_value(zones.clone())).transpose()?;
        class.volume_binding_mode = waits.then(|| "WaitForFirstConsumer".to_owned());
        let class = space.create_class(class).await?;
        let mut claim = space.claim(name, &class);
        if waits {
            let node = [
                ("volume.kubernetes.io/storage-provisioner", space.provisioner()),
                ("volume.kubernetes.io/selected-node", "node-1"),
            ];
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
