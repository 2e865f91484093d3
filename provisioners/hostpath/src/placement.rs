//! Maps a claim and its class to a PersistentVolume, and a PersistentVolume to its directory.

use std::path::Path;
use std::sync::Arc;

use directory_volumes::{Annotations, DirectoryError, Owner, Root, VolumePath, path_and_owner};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::{ProvisionError, ProvisionRequest, Volume};

use crate::node::ObservedNode;
use crate::parameters::{Parameters, VolumeType};

/// The annotations of a volume with the action on its data and the id of its root.
pub(crate) const ANNOTATIONS: Annotations = Annotations {
    on_delete: "hostpath-provisioner/on-delete",
    trash_ttl: "hostpath-provisioner/trash-ttl-seconds",
    root: "hostpath-provisioner/root",
};
/// The annotation of a volume with the time since which its node is known to be missing.
pub(crate) const GONE_SINCE: &str = "hostpath-provisioner/node-gone-since";
/// The annotation of a claim with `hostPath` or `local`, which overrides its class.
pub(crate) const VOLUME_TYPE: &str = "hostpath-provisioner/volume-type";

/// The location of a claim's volume, and the contents of its object.
pub(crate) struct Placement {
    pub(crate) path: VolumePath,
    pub(crate) owner: Owner,
    parameters: Arc<Parameters>,
    volume_type: VolumeType,
    /// The label and the value that identify the node, and the node's annotations.
    node: Option<NodeTopology>,
}

/// The label and the annotations that identify a volume's node.
pub(crate) struct NodeTopology {
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) annotations: Vec<(&'static str, String)>,
}

impl Placement {
    pub(crate) fn of(
        request: &ProvisionRequest<Parameters>,
        node: Option<&ObservedNode>,
    ) -> Result<Self, ProvisionError> {
        let parameters = request.parameters.clone();
        let volume_type = match request.claim.metadata.annotations.as_ref().and_then(|all| all.get(VOLUME_TYPE)) {
            None => parameters.volume_type,
            Some(text) => text.parse().map_err(|error| ProvisionError::invalid(format!("{VOLUME_TYPE}: {error}")))?,
        };
        let key = parameters.node_affinity_key.as_deref();
        let needs_node = match volume_type {
            VolumeType::Local => Some("volumeType local"),
            VolumeType::HostPath => key.map(|_| "nodeAffinityKey"),
        };
        // The scheduler respects allowedTopologies when it selects the node, so the volume needs a node.
        let needs_node = needs_node.or((!request.allowed_topologies().is_empty()).then_some("allowedTopologies"));
        let node = match (node, needs_node) {
            (Some(node), _) => Some(node.place(key).map_err(ProvisionError::reschedule)?),
            (None, None) => None,
            (None, Some(what)) => {
                let text = format!("{what} needs a provisioner that is started with --node-name");
                return Err(ProvisionError::invalid(text));
            }
        };
        let (path, owner) = path_and_owner(request, &parameters.path_pattern)?;
        Ok(Self { path, owner, parameters, volume_type, node })
    }

    /// Returns the description of the PersistentVolume.
    pub(crate) fn volume(&self, path: &Path, root: &Root) -> Volume {
        let path = path.to_string_lossy();
        let volume = match self.volume_type {
            VolumeType::HostPath => Volume::host_path(path),
            VolumeType::Local => Volume::local(path),
        };
        let mut volume =
            ANNOTATIONS.apply_to(volume, self.parameters.on_delete, Some(self.parameters.trash_ttl()), root);
        if let Some(node) = &self.node {
            volume = volume.in_topology(&node.label, &node.value);
            for (key, value) in &node.annotations {
                volume = volume.annotation(*key, value);
            }
        }
        volume
    }
}

/// Returns the directory of a volume if it is below the root. The directory's mark identifies its owner.
pub(crate) fn path_of(volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
    root.volume_path(directory_of(volume))
}

/// Returns the path in a volume, or an empty text if the volume is not a directory on a node.
pub(crate) fn directory_of(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    let host_path = spec.and_then(|spec| Some(spec.host_path.as_ref()?.path.as_str()));
    let local = spec.and_then(|spec| Some(spec.local.as_ref()?.path.as_str()));
    host_path.or(local).unwrap_or_default()
}
