//! Additional real nodes, and nodes that exist only as objects for the scheduler, with their pods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{
    Container, Node, NodeCondition, NodeStatus, PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use kube::core::ApiResource;

use super::TestSpace;
use super::objects::named;
use crate::control_plane::GuestNode;

/// Label of a test's nodes, with the test's namespace as value, so that its pods run nowhere else.
const SPACE_LABEL: &str = "e2e.example.com/space";

impl TestSpace {
    /// Boots an additional real node with these images. It runs until the value is dropped.
    pub async fn guest_node(&self, images: &[PathBuf]) -> anyhow::Result<GuestNode> {
        let node = GuestNode::join(self.cluster().state(), images).await?;
        self.delete_at_end(ApiResource::erase::<Node>(&()), node.name().to_owned());
        Ok(node)
    }

    /// Creates the object of a ready node that accepts this test's pods. It has no kubelet.
    pub async fn create_node(&self, suffix: &str, labels: &[(&str, &str)]) -> anyhow::Result<Node> {
        let name = self.cluster_wide_name(suffix);
        let mut all = BTreeMap::from([
            (SPACE_LABEL.to_owned(), self.namespace().to_owned()),
            ("kubernetes.io/hostname".to_owned(), name.clone()),
        ]);
        all.extend(labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        let room: BTreeMap<_, _> = [("cpu", "8"), ("memory", "16Gi"), ("pods", "110")]
            .map(|(key, value)| (key.to_owned(), Quantity(value.to_owned())))
            .into();
        let ready = NodeCondition { type_: "Ready".to_owned(), status: "True".to_owned(), ..NodeCondition::default() };
        self.create_cluster_wide(&Node {
            metadata: ObjectMeta { labels: Some(all), ..named(&name) },
            spec: None,
            status: Some(NodeStatus {
                allocatable: Some(room.clone()),
                capacity: Some(room),
                conditions: Some(vec![ready]),
                ..NodeStatus::default()
            }),
        })
        .await
    }

    /// A pod that uses a claim and is scheduled to this test's nodes, as a template. It never runs.
    pub fn pod(&self, name: &str, claim: &str) -> Pod {
        Pod {
            metadata: named(name),
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "main".to_owned(),
                    image: Some("none".to_owned()),
                    ..Container::default()
                }],
                node_selector: Some(BTreeMap::from([(SPACE_LABEL.to_owned(), self.namespace().to_owned())])),
                volumes: Some(vec![Volume {
                    name: "data".to_owned(),
                    persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                        claim_name: claim.to_owned(),
                        read_only: None,
                    }),
                    ..Volume::default()
                }]),
                ..PodSpec::default()
            }),
            status: None,
        }
    }
}
