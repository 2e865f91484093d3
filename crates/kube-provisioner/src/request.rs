//! The arguments of the provisioner's methods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, TopologySelectorTerm, TypedObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::prepared::Prepared;
use crate::protocol;
use crate::quantity;
use crate::secrets::Secrets;
use crate::topology;
use provisioner_runtime::controller::FencingToken;
use tokio::time::Instant;

/// The argument of [`Provisioner::provision`](crate::Provisioner::provision): immutable snapshots of the claim and its
/// class.
///
/// The snapshots are the same in every attempt, even if another process finishes it. The claim contains its `spec` and,
/// in its `metadata`, `name`, `namespace`, `uid`, `resourceVersion`, `creationTimestamp`, `labels`, `ownerReferences`
/// and `annotations`; the class contains everything except `metadata.managedFields`. The annotations are limited to
/// those that [the provisioner declares](crate::Capabilities::claim_annotations) and, on a claim, those that name its
/// provisioner, its selected node and its class. The claim contains less if the provisioner uses [class
/// templates](crate::Capabilities::class_templates).
///
/// In tests:
///
/// ```
/// # use kube_provisioner::ProvisionRequest;
/// let request = ProvisionRequest::new((), 1 << 30).on_node("node-1", [("topology.kubernetes.io/zone", "a")]);
/// assert_eq!((request.bytes, request.zone()), (1 << 30, Some("a")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProvisionRequest<P> {
    /// The name of the PersistentVolume to create, unique in the cluster and the same in every attempt.
    pub name: String,
    /// The requested size in bytes, rounded up. 0 if the claim requests no size.
    pub bytes: u64,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The time at which the controller observed this version of the claim. Objects that the provisioner read from the
    /// API server after this time are not older than the claim, so claims can share the results of such reads.
    pub claim_seen: Instant,
    /// The claim's class.
    pub class: Arc<StorageClass>,
    /// The node chosen by the scheduler, if the class waits for the first consumer.
    pub selected_node: Option<String>,
    /// The labels of the selected node, if the provisioner [requests them](crate::Capabilities::node_labels). They are
    /// read before each call, so choose a location in [`Hooks::prepare`](crate::Hooks::prepare). They are empty if the
    /// node no longer exists when the attempt of a deleted claim is cleaned up.
    pub node_labels: BTreeMap<String, String>,
    /// The Secrets named by the class, by the roles that [the provisioner declares](crate::Capabilities::secret).
    pub secrets: Secrets,
    /// The ID of the cluster in which this provisioner runs, for ownership marks: storage whose mark names another
    /// cluster belongs to that cluster.
    pub cluster_id: String,
    /// A random token that is the same in all calls of one attempt, whichever process makes them, for backends with
    /// idempotency tokens. An attempt ends when its volume is saved, or when it has left nothing behind.
    pub idempotency_token: String,
    /// The value that [`Hooks::prepare`](crate::Hooks::prepare) returned when the attempt began.
    pub prepared: Prepared,
    /// True if an earlier call of this attempt may have left something in the backend. If false, an error that occurs
    /// before this call creates anything leaves nothing behind.
    pub resumed: bool,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The cluster ID in tests.
pub(crate) const TEST_CLUSTER: &str = "test-cluster";

impl<P> ProvisionRequest<P> {
    /// Creates a request of the claim `test/claim` for this size, for use in tests. Its fields can be changed.
    pub fn new(parameters: P, bytes: u64) -> Self {
        const UID: &str = "00000000-0000-4000-8000-000000000001";
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some("claim".to_owned());
        claim.metadata.namespace = Some("test".to_owned());
        claim.metadata.uid = Some(UID.to_owned());
        let requests = BTreeMap::from([("storage".to_owned(), Quantity(quantity::format_bytes(bytes)))]);
        claim.spec = Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements { requests: Some(requests), limits: None }),
            storage_class_name: Some("class".to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeClaimSpec::default()
        });
        let mut class = StorageClass::default();
        class.metadata.name = Some("class".to_owned());
        Self {
            name: format!("pvc-{UID}"),
            bytes,
            parameters: Arc::new(parameters),
            claim: Arc::new(claim),
            claim_seen: Instant::now(),
            class: Arc::new(class),
            selected_node: None,
            node_labels: BTreeMap::new(),
            secrets: Secrets::default(),
            cluster_id: TEST_CLUSTER.to_owned(),
            idempotency_token: "0000000000000001".to_owned(),
            prepared: Prepared::default(),
            resumed: false,
            fencing_token: FencingToken::unlimited(),
        }
    }

    /// Selects a node with these labels, as the scheduler does for a claim's first consumer, for use in tests.
    #[must_use]
    pub fn on_node<K: Into<String>, V: Into<String>>(
        mut self,
        name: impl Into<String>,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.selected_node = Some(name.into());
        self.node_labels = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self
    }

    /// Returns true if the claim requests a raw block device.
    pub fn is_block(&self) -> bool {
        self.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    /// Returns the claim's access modes.
    pub fn access_modes(&self) -> &[String] {
        self.claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }

    /// Returns the class's mount options; the controller copies them to the volume.
    pub fn mount_options(&self) -> &[String] {
        self.class.mount_options.as_deref().unwrap_or_default()
    }

    /// Returns `Delete` or `Retain`: the policy for the volume when its claim is deleted. `Delete` if the class sets
    /// none.
    pub fn reclaim_policy(&self) -> &str {
        self.class.reclaim_policy.as_deref().unwrap_or("Delete")
    }

    /// Returns the topologies to which the class restricts its volumes; empty means unrestricted. Classes with such a
    /// restriction are rejected unless the provisioner declares that [it respects
    /// them](crate::Capabilities::allowed_topologies).
    pub fn allowed_topologies(&self) -> &[TopologySelectorTerm] {
        self.class.allowed_topologies.as_deref().unwrap_or_default()
    }

    /// Returns the source of the volume's initial data, for provisioners that [support
    /// it](crate::Capabilities::data_sources). Its `namespace` is the claim's namespace or unset, unless the
    /// provisioner declares [sources in other namespaces](crate::Capabilities::sources_of_other_namespaces).
    pub fn data_source(&self) -> Option<&TypedObjectReference> {
        self.claim.spec.as_ref()?.data_source_ref.as_ref()
    }

    /// Returns the zone in which to create the volume, see [`topology`](Self::topology).
    pub fn zone(&self) -> Option<&str> {
        self.topology(topology::ZONE)
    }

    /// Returns the value of this topology label for the volume to create: the selected node's value or, without a
    /// selected node, the first that the class allows. [`Volume::in_topology`](crate::Volume::in_topology) is the
    /// inverse.
    ///
    /// ```
    /// # use kube_provisioner::{ProvisionRequest, topology::ZONE};
    /// # use std::sync::Arc;
    /// let request = || {
    ///     let mut request = ProvisionRequest::new((), 1 << 30);
    ///     let terms = serde_json::json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]);
    ///     Arc::make_mut(&mut request.class).allowed_topologies = serde_json::from_value(terms).unwrap();
    ///     request
    /// };
    /// assert_eq!(request().topology(ZONE), Some("a"));
    /// assert_eq!(request().on_node("node-1", [(ZONE, "b")]).topology(ZONE), Some("b"));
    /// // Without `Capabilities::node_labels`, the node's value is unknown.
    /// assert_eq!(request().on_node("node-1", [("", ""); 0]).topology(ZONE), None);
    /// ```
    pub fn topology(&self, label: &str) -> Option<&str> {
        match self.selected_node {
            Some(_) => self.node_labels.get(label).map(String::as_str),
            None => topology::allowed(self.allowed_topologies(), label).next(),
        }
    }

    /// Returns the selected node's label `kubernetes.io/hostname`, by which volumes are bound to a node. It may differ
    /// from the node's name, which is returned if the label is unknown, so declare
    /// [`node_labels`](crate::Capabilities::node_labels).
    pub fn hostname(&self) -> Option<&str> {
        let label = self.node_labels.get(protocol::HOSTNAME_LABEL).map(String::as_str);
        label.or(self.selected_node.as_deref())
    }

    /// Returns the claim's namespace.
    pub fn namespace(&self) -> &str {
        self.claim.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// The volume to remove in [`Provisioner::delete`](crate::Provisioner::delete): a fresh snapshot of the
/// PersistentVolume.
///
/// In tests:
///
/// ```
/// # use kube_provisioner::ProvisionedVolume;
/// # use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
/// let mut object = PersistentVolume::default();
/// object.metadata.name = Some("pvc-1".to_owned());
/// object.metadata.annotations = Some([("example.com/id".to_owned(), "7".to_owned())].into());
/// let volume = ProvisionedVolume::new(object);
/// assert_eq!((&*volume.name, volume.annotation("example.com/id")), ("pvc-1", Some("7")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProvisionedVolume {
    /// The volume's name, as in [`ProvisionRequest::name`].
    pub name: String,
    /// The whole PersistentVolume.
    pub object: Arc<PersistentVolume>,
    /// The Secrets that the class named when the volume was created, with their current data.
    pub secrets: Secrets,
    /// The ID of the cluster in which this provisioner runs, as in [`ProvisionRequest::cluster_id`].
    pub cluster_id: String,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl ProvisionedVolume {
    /// Wraps a PersistentVolume, for use in tests. Its fields can be changed.
    pub fn new(object: impl Into<Arc<PersistentVolume>>) -> Self {
        let object = object.into();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            object,
            secrets: Secrets::default(),
            cluster_id: TEST_CLUSTER.to_owned(),
            fencing_token: FencingToken::unlimited(),
        }
    }

    pub(crate) fn in_cluster(self, id: &str) -> Self {
        Self { cluster_id: id.to_owned(), ..self }
    }

    pub(crate) fn with(self, secrets: Secrets, fencing_token: FencingToken) -> Self {
        Self { secrets, fencing_token, ..self }
    }

    /// Returns the name of the volume's class, which old volumes have in an annotation.
    pub fn class_name(&self) -> Option<&str> {
        let annotation = self.annotation(protocol::BETA_STORAGE_CLASS);
        annotation.or_else(|| self.object.spec.as_ref()?.storage_class_name.as_deref())
    }

    /// Returns an annotation of the volume.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
