//! Publishing of volumes to nodes by the controller service.

use std::collections::BTreeMap;

use driver_rpc::Status;
use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::*;

use super::{Model, required};

/// Mode in which a volume is published.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Publication {
    pub(super) capability: VolumeCapability,
    pub(super) readonly: bool,
}

impl Publication {
    pub(super) fn new(capability: Option<&VolumeCapability>, readonly: bool) -> Result<Self, Status> {
        let capability = capability.ok_or_else(|| Status::invalid_argument("volume_capability is missing"))?;
        Ok(Self { capability: capability.clone(), readonly })
    }

    pub(super) fn mode(&self) -> Mode {
        let mode = self.capability.access_mode.as_ref().map_or(0, |access| access.mode);
        Mode::try_from(mode).unwrap_or(Mode::Unknown)
    }

    fn is_of_one_node(&self) -> bool {
        matches!(
            self.mode(),
            Mode::SingleNodeWriter
                | Mode::SingleNodeReaderOnly
                | Mode::SingleNodeSingleWriter
                | Mode::SingleNodeMultiWriter
        )
    }
}

impl Model {
    pub(crate) fn controller_publish_volume(
        &mut self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let ControllerPublishVolumeRequest { volume_id, node_id, .. } = request;
        required("node_id", node_id)?;
        let publication = Publication::new(request.volume_capability.as_ref(), request.readonly)?;
        let stored = self.volume(volume_id)?;
        let node = self.settings.nodes.iter().find(|node| node.id == *node_id);
        let node = node.ok_or_else(|| Status::not_found(format!("there is no node {node_id}")))?;
        match stored.published.get(node_id) {
            Some(before) if *before != publication => {
                return Err(Status::already_exists("the volume is published there in another way"));
            }
            None if publication.is_of_one_node() && !stored.published.is_empty() => {
                return Err(Status::failed_precondition("the volume is published on another node"));
            }
            _ => {}
        }
        let others =
            self.volumes.iter().filter(|(id, other)| *id != volume_id && other.published.contains_key(node_id));
        if node.max_volumes > 0 && i64::try_from(others.count()).is_ok_and(|others| others >= node.max_volumes) {
            return Err(Status::resource_exhausted(format!("{node_id} has {} volumes", node.max_volumes)));
        }
        self.volume_mut(volume_id)?.published.insert(node_id.clone(), publication);
        let publish_context = BTreeMap::from([("device".to_owned(), format!("/dev/csi-sim/{volume_id}"))]);
        Ok(ControllerPublishVolumeResponse { publish_context })
    }

    pub(crate) fn controller_unpublish_volume(
        &mut self,
        request: &ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        if let Ok(stored) = self.volume_mut(&request.volume_id) {
            // An empty node ID means all nodes.
            stored.published.retain(|node, _| !request.node_id.is_empty() && *node != request.node_id);
        }
        Ok(ControllerUnpublishVolumeResponse {})
    }
}
