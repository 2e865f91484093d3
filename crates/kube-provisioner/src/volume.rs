//! The result of a successful `provision`: the volume's source, and the properties that only the provisioner knows.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, FCVolumeSource, FlexPersistentVolumeSource, HostPathVolumeSource,
    ISCSIPersistentVolumeSource, LocalVolumeSource, NFSVolumeSource, NodeSelector, PersistentVolumeSpec,
    VolumeNodeAffinity,
};

use crate::capabilities::AccessMode;
use crate::protocol;
use crate::topology;

/// A provisioned volume, as its provisioner describes it.
///
/// The controller adds the rest of the PersistentVolume: name, claim reference, class, capacity,
/// access modes, volume mode, reclaim policy and mount options.
///
/// ```
/// use kube_provisioner::Volume;
///
/// let volume = Volume::nfs("nfs.example.com", "/exports/pvc-1").annotation("example.com/export-id", "7");
/// assert_eq!(volume.annotations["example.com/export-id"], "7");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Volume {
    /// The location of the data.
    pub source: VolumeSource,
    /// See [`capacity`](Self::capacity).
    pub capacity: Option<u64>,
    /// See [`annotation`](Self::annotation).
    pub annotations: BTreeMap<String, String>,
    /// See [`label`](Self::label).
    pub labels: BTreeMap<String, String>,
    /// See [`node_affinity`](Self::node_affinity).
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// See [`mount_options`](Self::mount_options).
    pub mount_options: Option<Vec<String>>,
    /// See [`access_modes`](Self::access_modes).
    pub access_modes: Option<Vec<AccessMode>>,
    /// See [`warning`](Self::warning).
    pub warning: Option<String>,
}

impl Volume {
    /// Creates a volume with this source.
    pub fn new(source: impl Into<VolumeSource>) -> Self {
        Self {
            source: source.into(),
            capacity: None,
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            node_affinity: None,
            mount_options: None,
            access_modes: None,
            warning: None,
        }
    }

    /// Creates a volume in a directory on the host, which must exist when a pod uses it (type `Directory`).
    pub fn host_path(path: impl Into<String>) -> Self {
        Self::new(HostPathVolumeSource { path: path.into(), type_: Some("Directory".to_owned()) })
    }

    /// Creates a volume in a directory or file system on one node. Requires [`Volume::on_node`].
    pub fn local(path: impl Into<String>) -> Self {
        Self::new(LocalVolumeSource { path: path.into(), fs_type: None })
    }

    /// Creates a volume in a directory of an NFS server.
    pub fn nfs(server: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(NFSVolumeSource { server: server.into(), path: path.into(), read_only: None })
    }

    /// Restricts the volume to the node whose label `kubernetes.io/hostname` has this value.
    pub fn on_node(self, hostname: impl Into<String>) -> Self {
        self.in_topology(protocol::HOSTNAME_LABEL, hostname)
    }

    /// Restricts the volume to nodes whose label has this value, such as the zone from
    /// [`ProvisionRequest::zone`](crate::ProvisionRequest::zone), in addition to earlier restrictions.
    ///
    /// ```
    /// # use kube_provisioner::{Volume, topology::ZONE};
    /// let volume = Volume::local("/disks/1").in_topology(ZONE, "a").on_node("node-1");
    /// let terms = volume.node_affinity.unwrap().required.unwrap().node_selector_terms;
    /// assert_eq!((terms.len(), terms[0].match_expressions.as_ref().unwrap().len()), (1, 2));
    /// ```
    pub fn in_topology(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        let selector = topology::nodes_with(label, value);
        let Some(former) = self.node_affinity.as_mut().and_then(|affinity| affinity.required.as_mut()) else {
            return self.node_affinity(selector);
        };
        let added: Vec<_> =
            selector.node_selector_terms.into_iter().filter_map(|term| term.match_expressions).collect();
        for term in &mut former.node_selector_terms {
            term.match_expressions.get_or_insert_default().extend(added.iter().flatten().cloned());
        }
        self
    }

    /// Restricts the volume to the selected nodes, instead of earlier restrictions.
    pub fn node_affinity(self, required: NodeSelector) -> Self {
        Self { node_affinity: Some(VolumeNodeAffinity { required: Some(required) }), ..self }
    }

    /// Sets the real size in bytes, if it is larger than the requested one.
    pub fn capacity(self, bytes: u64) -> Self {
        Self { capacity: Some(bytes), ..self }
    }

    /// Sets the access modes of the volume, if it supports more than the claim requests. They must include all modes
    /// that the claim requests.
    pub fn access_modes(self, modes: impl IntoIterator<Item = AccessMode>) -> Self {
        Self { access_modes: Some(modes.into_iter().collect()), ..self }
    }

    /// Emits a Warning event on the claim in addition to the success event, such as "the size is not enforced". Later
    /// calls override earlier ones.
    pub fn warning(self, text: impl Into<String>) -> Self {
        Self { warning: Some(text.into()), ..self }
    }

    /// Adds an annotation to the PersistentVolume, such as data that `delete` needs to find the asset.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Adds a label to the PersistentVolume.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the mount options, instead of the class's.
    pub fn mount_options<S: Into<String>>(self, options: impl IntoIterator<Item = S>) -> Self {
        Self { mount_options: Some(options.into_iter().map(Into::into).collect()), ..self }
    }
}

/// The location of a volume's data: the part of a PersistentVolume that only the provisioner knows.
///
/// ```
/// use kube_provisioner::k8s_openapi::api::core::v1::ISCSIPersistentVolumeSource;
/// use kube_provisioner::{Volume, VolumeSource};
///
/// let source = ISCSIPersistentVolumeSource {
///     target_portal: "10.0.0.1:3260".to_owned(),
///     iqn: "iqn.2026-01.com.example:pvc-1".to_owned(),
///     ..Default::default()
/// };
/// assert!(matches!(Volume::new(source).source, VolumeSource::Iscsi(_)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum VolumeSource {
    /// A volume of a CSI driver.
    Csi(Box<CSIPersistentVolumeSource>),
    /// A Fibre Channel device.
    Fc(Box<FCVolumeSource>),
    /// A volume of a FlexVolume driver.
    Flex(Box<FlexPersistentVolumeSource>),
    /// A path on the host.
    HostPath(HostPathVolumeSource),
    /// An iSCSI device.
    Iscsi(Box<ISCSIPersistentVolumeSource>),
    /// A path or device on one node.
    Local(LocalVolumeSource),
    /// A directory of an NFS server.
    Nfs(NFSVolumeSource),
}

impl VolumeSource {
    pub(crate) fn fill(self, spec: &mut PersistentVolumeSpec) {
        match self {
            Self::Csi(source) => spec.csi = Some(*source),
            Self::Fc(source) => spec.fc = Some(*source),
            Self::Flex(source) => spec.flex_volume = Some(*source),
            Self::HostPath(source) => spec.host_path = Some(source),
            Self::Iscsi(source) => spec.iscsi = Some(*source),
            Self::Local(source) => spec.local = Some(source),
            Self::Nfs(source) => spec.nfs = Some(source),
        }
    }
}

macro_rules! from_source {
    ($($source:ty => $wrap:expr),* $(,)?) => {$(
        impl From<$source> for VolumeSource {
            fn from(source: $source) -> Self {
                $wrap(source)
            }
        }
    )*};
}

from_source! {
    CSIPersistentVolumeSource => |source| Self::Csi(Box::new(source)),
    FCVolumeSource => |source| Self::Fc(Box::new(source)),
    FlexPersistentVolumeSource => |source| Self::Flex(Box::new(source)),
    HostPathVolumeSource => Self::HostPath,
    ISCSIPersistentVolumeSource => |source| Self::Iscsi(Box::new(source)),
    LocalVolumeSource => Self::Local,
    NFSVolumeSource => Self::Nfs,
}
