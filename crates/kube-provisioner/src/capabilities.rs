//! What claims and classes may ask of a provisioner, as its author declares it.

/// What a provisioner can do beyond plain file systems.
///
/// ```
/// use kube_provisioner::{AccessMode, Capabilities};
///
/// let capabilities = Capabilities::default().block().access_modes([AccessMode::ReadWriteOnce]);
/// # let _ = capabilities;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Capabilities {
    pub(crate) block: bool,
    pub(crate) access_modes: Option<Vec<AccessMode>>,
    pub(crate) selectors: bool,
    pub(crate) data_sources: Vec<String>,
    pub(crate) sources_of_other_namespaces: bool,
    pub(crate) volume_attributes_classes: bool,
    pub(crate) allowed_topologies: bool,
    pub(crate) mount_options: bool,
    pub(crate) node_labels: bool,
    pub(crate) expansion: bool,
    pub(crate) attempt_end: bool,
    pub(crate) claim_annotations: Vec<String>,
    pub(crate) class_templates: bool,
    pub(crate) class_annotations: Vec<String>,
    pub(crate) secrets: Vec<SecretRole>,
}

/// A Secret that classes may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRole {
    pub(crate) role: String,
    pub(crate) required: bool,
}

impl Capabilities {
    /// Raw block devices (`volumeMode: Block`).
    pub fn block(mut self) -> Self {
        self.block = true;
        self
    }

    /// Only these access modes. Without this call all are accepted.
    pub fn access_modes(mut self, modes: impl IntoIterator<Item = AccessMode>) -> Self {
        self.access_modes = Some(modes.into_iter().collect());
        self
    }

    /// Claims with a label selector; the author gives the volume matching labels.
    pub fn selectors(mut self) -> Self {
        self.selectors = true;
        self
    }

    /// Claims with a data source of these kinds, which the author fills the volume from: `PersistentVolumeClaim`, or with
    /// their group, such as `VolumeSnapshot.snapshot.storage.k8s.io`.
    pub fn data_sources<S: Into<String>>(mut self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.data_sources = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Claims whose data source is in another namespace (`dataSourceRef.namespace`). The author reads that namespace from
    /// [`ProvisionRequest::data_source`](crate::ProvisionRequest::data_source), and copies only what a ReferenceGrant there
    /// gives to the claim's namespace. Without this call such claims are refused: the API server does not check the grant.
    /// <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#cross-namespace-data-sources>
    pub fn sources_of_other_namespaces(mut self) -> Self {
        self.sources_of_other_namespaces = true;
        self
    }

    /// Claims that name a VolumeAttributesClass; the author honours it.
    pub fn volume_attributes_classes(mut self) -> Self {
        self.volume_attributes_classes = true;
        self
    }

    /// Classes with `allowedTopologies`; the author [makes volumes there](crate::ProvisionRequest::allowed_topologies) alone.
    pub fn allowed_topologies(mut self) -> Self {
        self.allowed_topologies = true;
        self
    }

    /// Classes with `mountOptions`; what they mean is known for the author's kind of volume. They are copied to the volume.
    pub fn mount_options(mut self) -> Self {
        self.mount_options = true;
        self
    }

    /// The author reads [the selected node's labels](crate::ProvisionRequest::node_labels). The node is read before each
    /// call, for which the account needs the right to get nodes.
    pub fn node_labels(mut self) -> Self {
        self.node_labels = true;
        self
    }

    /// Volumes can grow: the author implements [`expand`](crate::Provisioner::expand). The account needs the right to
    /// change the status of claims. Not beside an external-resizer for the same CSI driver.
    pub fn expansion(mut self) -> Self {
        self.expansion = true;
        self
    }

    /// The author implements [`end_attempt`](crate::Hooks::end_attempt).
    pub fn attempt_end(mut self) -> Self {
        self.attempt_end = true;
        self
    }

    /// Annotations of claims that the author reads. All others are left out of
    /// [what the author gets](crate::ProvisionRequest::claim), since each attempt keeps what it gets. A key that
    /// ends with `/`, such as `example.com/`, stands for all keys that begin with it.
    pub fn claim_annotations<S: Into<String>>(mut self, keys: impl IntoIterator<Item = S>) -> Self {
        self.claim_annotations = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Of the annotations of claims the author reads those that the class's parameters name, as in
    /// `${pvc.annotations['example.com/team']}`. [What the author gets](crate::ProvisionRequest::claim) has no labels and owner
    /// references then, and of the specification the fields that are common to all claims, so that an attempt's record is small whatever
    /// tenants write.
    pub fn class_templates(mut self) -> Self {
        self.class_templates = true;
        self
    }

    /// Annotations of classes that the author reads, as [`claim_annotations`](Self::claim_annotations).
    pub fn class_annotations<S: Into<String>>(mut self, keys: impl IntoIterator<Item = S>) -> Self {
        self.class_annotations = keys.into_iter().map(Into::into).collect();
        self
    }

    /// A Secret that every class names by two parameters: for the role `admin` these are `adminSecretName` and
    /// `adminSecretNamespace`, for the empty role `secretName` and `secretNamespace`. `${pvc.name}`, `${pvc.namespace}` and
    /// `${pv.name}` in them stand for the names of the claim and of the volume. The author gets its data in
    /// [`ProvisionRequest::secrets`](crate::ProvisionRequest::secrets) and [`ProvisionedVolume::secrets`], and the two
    /// parameters are no others of the author's. The account needs the right to get these Secrets.
    ///
    /// [`ProvisionedVolume::secrets`]: crate::ProvisionedVolume::secrets
    pub fn secret(self, role: impl Into<String>) -> Self {
        self.with_secret(role.into(), true)
    }

    /// As [`secret`](Self::secret), but a class need not name it.
    pub fn optional_secret(self, role: impl Into<String>) -> Self {
        self.with_secret(role.into(), false)
    }

    fn with_secret(mut self, role: String, required: bool) -> Self {
        self.secrets.push(SecretRole { role, required });
        self
    }
}

/// How pods may mount a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AccessMode {
    /// Read-only by many nodes.
    ReadOnlyMany,
    /// Read-write by many nodes.
    ReadWriteMany,
    /// Read-write by one node.
    ReadWriteOnce,
    /// Read-write by one pod.
    ReadWriteOncePod,
}

impl AccessMode {
    /// The name in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}
