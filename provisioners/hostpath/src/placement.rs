//! Where a volume is: from the claim and its class to the PersistentVolume, and back from that to the directory.

use std::path::Path;
use std::sync::Arc;

use directory_volumes::{Annotations, DirectoryError, Owner, Root, VolumePath, whose};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::{ProvisionError, ProvisionRequest, Volume};

use crate::node::Seen;
use crate::parameters::{Parameters, VolumeType};

/// On a volume: what becomes of its data, and the root that it is in.
pub(crate) const ANNOTATIONS: Annotations = Annotations {
    on_delete: "hostpath-provisioner/on-delete",
    trash_ttl: "hostpath-provisioner/trash-ttl-seconds",
    root: "hostpath-provisioner/root",
};
/// On a volume: since when its node is known to be gone.
pub(crate) const GONE_SINCE: &str = "hostpath-provisioner/node-gone-since";
/// On a claim: `hostPath` or `local`, instead of what its class says.
pub(crate) const VOLUME_TYPE: &str = "hostpath-provisioner/volume-type";

/// Where the volume of a claim is, and what its object says of it.
pub(crate) struct Placement {
    pub(crate) path: VolumePath,
    pub(crate) owner: Owner,
    parameters: Arc<Parameters>,
    volume_type: VolumeType,
    /// The label and the value by which its node is found, and the node's annotations.
    node: Option<NodePlace>,
}

/// What a volume says about its node.
pub(crate) struct NodePlace {
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) annotations: Vec<(&'static str, String)>,
}

impl Placement {
    pub(crate) fn of(request: &ProvisionRequest<Parameters>, node: Option<&Seen>) -> Result<Self, ProvisionError> {
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
        // The scheduler heeds them when it chooses the node, on which the volume then is.
        let needs_node = needs_node.or((!request.allowed_topologies().is_empty()).then_some("allowedTopologies"));
        let node = match (node, needs_node) {
            (Some(node), _) => Some(node.place(key).map_err(ProvisionError::reschedule)?),
            (None, None) => None,
            (None, Some(what)) => {
                let text = format!("{what} needs a provisioner that is started with --node-name");
                return Err(ProvisionError::invalid(text));
            }
        };
        let (path, owner) = whose(request, &parameters.path_pattern)?;
        Ok(Self { path, owner, parameters, volume_type, node })
    }

    /// The PersistentVolume's description.
    pub(crate) fn volume(&self, path: &Path, root: &Root) -> Volume {
        let path = path.to_string_lossy();
        let volume = match self.volume_type {
            VolumeType::HostPath => Volume::host_path(path),
            VolumeType::Local => Volume::local(path),
        };
        let mut volume = ANNOTATIONS.tell(volume, self.parameters.on_delete, Some(self.parameters.trash_ttl()), root);
        if let Some(node) = &self.node {
            volume = volume.in_topology(&node.label, &node.value);
            for (key, value) in &node.annotations {
                volume = volume.annotation(*key, value);
            }
        }
        volume
    }
}

/// The directory that a volume names, if it is below the root. Whose that is, its mark says.
pub(crate) fn path_of(volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
    root.volume_path(directory_of(volume))
}

/// What a volume names; empty if that is no directory of a node.
pub(crate) fn directory_of(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    let host_path = spec.and_then(|spec| Some(spec.host_path.as_ref()?.path.as_str()));
    let local = spec.and_then(|spec| Some(spec.local.as_ref()?.path.as_str()));
    host_path.or(local).unwrap_or_default()
}
