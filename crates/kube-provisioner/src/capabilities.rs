//! Declares which features of claims and classes a provisioner supports.

/// The features that a provisioner supports in addition to plain file systems.
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
    pub(crate) expanded_elsewhere: bool,
    pub(crate) attempt_end: bool,
    pub(crate) node_local: bool,
    pub(crate) claim_annotations: Vec<String>,
    pub(crate) class_templates: bool,
    pub(crate) class_annotations: Vec<String>,
    pub(crate) secrets: Vec<SecretRole>,
}

/// A Secret that classes can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRole {
    pub(crate) role: String,
    pub(crate) required: bool,
}

impl Capabilities {
    /// Supports raw block devices (`volumeMode: Block`).
    pub fn block(self) -> Self {
        Self { block: true, ..self }
    }

    /// Supports only these access modes. Without this call, claims with any access mode are accepted.
    pub fn access_modes(self, modes: impl IntoIterator<Item = AccessMode>) -> Self {
        Self { access_modes: Some(modes.into_iter().collect()), ..self }
    }

    /// Supports claims with a label selector; the provisioner gives the volume matching labels.
    pub fn selectors(self) -> Self {
        Self { selectors: true, ..self }
    }

    /// Supports claims with a data source of these kinds, from which the provisioner fills the volume:
    /// `PersistentVolumeClaim`, or a kind with its API group, such as `VolumeSnapshot.snapshot.storage.k8s.io`.
    pub fn data_sources<S: Into<String>>(self, kinds: impl IntoIterator<Item = S>) -> Self {
        Self { data_sources: kinds.into_iter().map(Into::into).collect(), ..self }
    }

    /// Supports claims whose data source is in another namespace (`dataSourceRef.namespace`). The provisioner reads
    /// that namespace from [`ProvisionRequest::data_source`](crate::ProvisionRequest::data_source), and must only copy
    /// sources to which a ReferenceGrant in that namespace gives the claim's namespace access: the API server does not
    /// check the grant. Without this call such claims are rejected.
    /// <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#cross-namespace-data-sources>
    pub fn sources_of_other_namespaces(self) -> Self {
        Self { sources_of_other_namespaces: true, ..self }
    }

    /// Supports claims that name a VolumeAttributesClass, which the provisioner applies.
    pub fn volume_attributes_classes(self) -> Self {
        Self { volume_attributes_classes: true, ..self }
    }

    /// Supports classes with `allowedTopologies`; the provisioner [creates volumes only
    /// there](crate::ProvisionRequest::allowed_topologies).
    pub fn allowed_topologies(self) -> Self {
        Self { allowed_topologies: true, ..self }
    }

    /// Supports classes with `mountOptions`, if they are meaningful for this kind of volume. The controller copies them
    /// to the volume.
    pub fn mount_options(self) -> Self {
        Self { mount_options: true, ..self }
    }

    /// Provides [the selected node's labels](crate::ProvisionRequest::node_labels). The controller reads the node
    /// before each call, which requires the permission to get nodes.
    pub fn node_labels(self) -> Self {
        Self { node_labels: true, ..self }
    }

    /// Supports volume expansion: the provisioner implements [`expand`](crate::Provisioner::expand). The account needs
    /// the permission to update the status of claims. Do not run it together with an external-resizer for the same CSI
    /// driver.
    pub fn expansion(self) -> Self {
        Self { expansion: true, ..self }
    }

    /// Leaves the expansion of volumes to another program, such as the external-resizer of a CSI driver. Without this
    /// call and [`expansion`](Self::expansion), claims that request more receive a warning.
    pub fn expanded_elsewhere(self) -> Self {
        Self { expanded_elsewhere: true, ..self }
    }

    /// Declares that the provisioner implements [`end_attempt`](crate::Hooks::end_attempt).
    pub fn attempt_end(self) -> Self {
        Self { attempt_end: true, ..self }
    }

    /// Declares that each node has its own storage. If a claim moves to another node and receives its volume there, the
    /// controller calls [`clean_up`](crate::Provisioner::clean_up) on the former node, which must keep an asset that an
    /// existing volume uses. Without `node_local`, the controller assumes that the volume has that asset.
    pub fn node_local(self) -> Self {
        Self { node_local: true, ..self }
    }

    /// Names the annotations of claims that the provisioner reads. All others are left out of
    /// [the request](crate::ProvisionRequest::claim), because each attempt records its request. A key that
    /// ends with `/`, such as `example.com/`, matches all keys with this prefix.
    pub fn claim_annotations<S: Into<String>>(self, keys: impl IntoIterator<Item = S>) -> Self {
        Self { claim_annotations: keys.into_iter().map(Into::into).collect(), ..self }
    }

    /// Provides the annotations of claims that are named in the class's parameters, as in
    /// `${pvc.annotations['example.com/team']}`. [The claim in the request](crate::ProvisionRequest::claim) then
    /// contains no labels and no owner references, and only the fields of the specification that are common to all
    /// claims. An attempt's record thus stays small whatever tenants write.
    pub fn class_templates(self) -> Self {
        Self { class_templates: true, ..self }
    }

    /// Names the annotations of classes that the provisioner reads, as [`claim_annotations`](Self::claim_annotations)
    /// does for claims.
    pub fn class_annotations<S: Into<String>>(self, keys: impl IntoIterator<Item = S>) -> Self {
        Self { class_annotations: keys.into_iter().map(Into::into).collect(), ..self }
    }

    /// Requires every class to name a Secret by two parameters: for the role `admin` these are `adminSecretName` and
    /// `adminSecretNamespace`, for the empty role `secretName` and `secretNamespace`. In their values, `${pvc.name}`,
    /// `${pvc.namespace}` and `${pv.name}` are replaced by the names of the claim and of the volume. The provisioner
    /// receives the Secret's data in [`ProvisionRequest::secrets`](crate::ProvisionRequest::secrets) and
    /// [`ProvisionedVolume::secrets`], and cannot define these two parameters itself. The account needs the permission
    /// to get these Secrets.
    ///
    /// [`ProvisionedVolume::secrets`]: crate::ProvisionedVolume::secrets
    pub fn secret(mut self, role: impl Into<String>) -> Self {
        self.secrets.push(SecretRole { role: role.into(), required: true });
        self
    }

    /// Allows classes to name a Secret, like [`secret`](Self::secret), but does not require it.
    pub fn optional_secret(mut self, role: impl Into<String>) -> Self {
        self.secrets.push(SecretRole { role: role.into(), required: false });
        self
    }
}

/// The ways in which pods can mount a volume.
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
    /// Returns the name in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}
