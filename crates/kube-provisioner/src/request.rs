//! The arguments of an author's methods.

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

/// What [`Provisioner::provision`](crate::Provisioner::provision) is asked for: immutable snapshots of claim and class.
///
/// The snapshots are the same in every attempt, the one that another process finishes included. Of the claim there are
/// `spec` and of `metadata` `name`, `namespace`, `uid`, `resourceVersion`, `creationTimestamp`, `labels`, `ownerReferences` and
/// `annotations`; of the class everything but `metadata.managedFields`. Of the annotations there are those that
/// [the author declares](crate::Capabilities::claim_annotations), and a claim's that name its provisioner, its selected node
/// and its class. An author who reads [what classes name](crate::Capabilities::class_templates) gets less of the claim.
///
/// One for an author's own tests:
///
/// ```
/// # use kube_provisioner::ProvisionRequest;
/// let request = ProvisionRequest::new((), 1 << 30).on_node("node-1", [("topology.kubernetes.io/zone", "a")]);
/// assert_eq!((request.bytes, request.zone()), (1 << 30, Some("a")));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ProvisionRequest<P> {
    /// The name of the PersistentVolume to be, unique in the cluster and the same in every attempt.
    pub name: String,
    /// The requested size in bytes, rounded up. 0 where the claim asks for nothing.
    pub bytes: u64,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The claim's class.
    pub class: Arc<StorageClass>,
    /// The node that the scheduler chose, for classes that wait for the first consumer.
    pub selected_node: Option<String>,
    /// The labels of the selected node, for authors who [ask for them](crate::Capabilities::node_labels).
    pub node_labels: BTreeMap<String, String>,
    /// The Secrets that the class names, by the roles that [the author declares](crate::Capabilities::secret).
    pub secrets: Secrets,
    /// The cluster in which this provisioner runs, for the marks that prove ownership: storage whose mark names another cluster
    /// belongs to that cluster.
    pub cluster_id: String,
    /// Random, and the same in all calls of one attempt, whichever process makes them: for backends whose requests are
    /// idempotent by a token. An attempt ends when its volume is saved, or when it has left nothing behind.
    pub idempotency_token: String,
    /// What [`Hooks::prepare`](crate::Hooks::prepare) returned when the attempt began.
    pub prepared: Prepared,
    /// Whether an earlier call of this attempt may have left something in the backend. Without one, an error of this call that
    /// comes before anything is made leaves nothing behind.
    pub resumed: bool,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The cluster of an author's own tests.
pub(crate) const TEST_CLUSTER: &str = "test-cluster";

impl<P> ProvisionRequest<P> {
    /// A request of the claim `test/claim` for that many bytes, for an author's own tests. Its fields may be changed.
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

    /// As for a claim whose first consumer was scheduled to a node with these labels, for an author's own tests.
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

    /// Whether the claim asks for a raw block device.
    pub fn is_block(&self) -> bool {
        self.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    /// The claim's access modes.
    pub fn access_modes(&self) -> &[String] {
        self.claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }

    /// The class's mount options; the controller copies them to the volume.
    pub fn mount_options(&self) -> &[String] {
        self.class.mount_options.as_deref().unwrap_or_default()
    }

    /// `Delete` or `Retain`: what becomes of the volume after its claim. `Delete` where the class says nothing.
    pub fn reclaim_policy(&self) -> &str {
        self.class.reclaim_policy.as_deref().unwrap_or("Delete")
    }

    /// Where the class lets its volumes be; empty is anywhere. Classes that say so are refused unless the author declares
    /// that [they are heeded](crate::Capabilities::allowed_topologies).
    pub fn allowed_topologies(&self) -> &[TopologySelectorTerm] {
        self.class.allowed_topologies.as_deref().unwrap_or_default()
    }

    /// What the volume is to be filled from, for authors who [can](crate::Capabilities::data_sources). Its `namespace` is that
    /// of the claim or none, unless the author declares
    /// [sources of other namespaces](crate::Capabilities::sources_of_other_namespaces).
    pub fn data_source(&self) -> Option<&TypedObjectReference> {
        self.claim.spec.as_ref()?.data_source_ref.as_ref()
    }

    /// The zone that the volume has to be in: the selected node's, or the first that the class allows.
    pub fn zone(&self) -> Option<&str> {
        self.topology(topology::ZONE)
    }

    /// The value that the volume's place has to have for this label of nodes: that of the selected node, or the first that
    /// the class allows. [`Volume::in_topology`](crate::Volume::in_topology) is the way back.
    pub fn topology(&self, label: &str) -> Option<&str> {
        let of_node = self.node_labels.get(label).map(String::as_str);
        of_node.or_else(|| topology::allowed(self.allowed_topologies(), label).next())
    }

    /// The selected node's label `kubernetes.io/hostname`, by which volumes are bound to a node. It may differ from the
    /// node's name, which stands in where the label is not known.
    pub fn hostname(&self) -> Option<&str> {
        let label = self.node_labels.get(protocol::HOSTNAME_LABEL).map(String::as_str);
        label.or(self.selected_node.as_deref())
    }

    /// The claim's namespace.
    pub fn namespace(&self) -> &str {
        self.claim.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// The volume that [`Provisioner::delete`](crate::Provisioner::delete) is to remove: a fresh snapshot of the PersistentVolume.
///
/// One for an author's own tests:
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
    /// The name that [`ProvisionRequest::name`] had.
    pub name: String,
    /// The whole object.
    pub object: Arc<PersistentVolume>,
    /// The Secrets that the class named when the volume was made, as they are now.
    pub secrets: Secrets,
    /// The cluster in which this provisioner runs, as [`ProvisionRequest::cluster_id`].
    pub cluster_id: String,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl ProvisionedVolume {
    /// Wraps a PersistentVolume, for an author's own tests. The fields may be changed.
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

    /// The name of the volume's class. Old volumes have it in an annotation.
    pub fn class_name(&self) -> Option<&str> {
        let annotation = self.annotation(protocol::BETA_STORAGE_CLASS);
        annotation.or_else(|| self.object.spec.as_ref()?.storage_class_name.as_deref())
    }

    /// An annotation of the volume.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
