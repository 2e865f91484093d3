//! The node service.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use driver_rpc::Status;
use driver_rpc::csi::node_service_capability::rpc::Type as Node;
use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::*;

use super::publish::Publication;
use super::volumes::StoredVolume;
use super::{Model, required};
use crate::data::{failed, ignore_error_kind, is_block};
use crate::{Capability, Machine};

impl Model {
    pub(crate) fn node_stage_volume(
        &mut self,
        request: &NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        required("staging_target_path", &request.staging_target_path)?;
        Publication::new(request.volume_capability.as_ref(), false)?;
        self.volume_mut(&request.volume_id)?.staged.insert(request.staging_target_path.clone());
        Ok(NodeStageVolumeResponse {})
    }

    pub(crate) fn node_unstage_volume(
        &mut self,
        request: &NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        required("staging_target_path", &request.staging_target_path)?;
        self.volume_mut(&request.volume_id)?.staged.remove(&request.staging_target_path);
        Ok(NodeUnstageVolumeResponse {})
    }

    pub(crate) fn node_publish_volume(
        &mut self,
        request: &NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        required("target_path", &request.target_path)?;
        let publication = Publication::new(request.volume_capability.as_ref(), request.readonly)?;
        let stages = self.has(Capability::Node(Node::StageUnstageVolume));
        let makes_paths = self.settings.machine != Machine::Untouched;
        let data = self.data();
        let stored = self.volume_mut(&request.volume_id)?;
        if stages && !stored.staged.contains(&request.staging_target_path) {
            return Err(Status::failed_precondition("the volume is not staged there"));
        }
        let mut others = stored.targets.keys().filter(|path| **path != request.target_path);
        if publication.mode() == Mode::SingleNodeSingleWriter && others.next().is_some() {
            return Err(Status::failed_precondition("the volume already has a writer"));
        }
        if stored.targets.get(&request.target_path).is_some_and(|before| *before != publication) {
            return Err(Status::already_exists("the volume is published there in another way"));
        }
        let target = Path::new(&request.target_path);
        let is_new = !stored.targets.contains_key(&request.target_path);
        if makes_paths {
            create_target(target, &publication.capability).map_err(|error| failed(target, &error))?;
        }
        if is_new && let Some(data) = data {
            data.mount(&request.volume_id, target, &publication.capability, publication.readonly)?;
        }
        stored.targets.insert(request.target_path.clone(), publication);
        Ok(NodePublishVolumeResponse {})
    }

    pub(crate) fn node_unpublish_volume(
        &mut self,
        request: &NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        required("target_path", &request.target_path)?;
        let makes_paths = self.settings.machine != Machine::Untouched;
        let data = self.data();
        let stored = self.volume_mut(&request.volume_id)?;
        // Only paths that this driver has created are removed.
        if makes_paths && let Some(publication) = stored.targets.get(&request.target_path) {
            let target = Path::new(&request.target_path);
            if let Some(data) = data {
                data.unmount(&request.volume_id, target, stored.targets.len() == 1)?;
            }
            remove_target(target, &publication.capability).map_err(|error| failed(target, &error))?;
        }
        stored.targets.remove(&request.target_path);
        Ok(NodeUnpublishVolumeResponse {})
    }

    pub(crate) fn node_get_volume_stats(
        &mut self,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let total = self.on_node(&request.volume_id, &request.volume_path)?.volume.capacity_bytes;
        let unit = volume_usage::Unit::Bytes.into();
        Ok(NodeGetVolumeStatsResponse { usage: vec![VolumeUsage { available: total, total, used: 0, unit }] })
    }

    pub(crate) fn node_expand_volume(
        &mut self,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let capacity_bytes = self.on_node(&request.volume_id, &request.volume_path)?.volume.capacity_bytes;
        if let Some(data) = self.data() {
            data.expand_on_node(&request.volume_id)?;
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes })
    }

    pub(crate) fn node_get_info(&mut self, _: &NodeGetInfoRequest) -> Result<NodeGetInfoResponse, Status> {
        let node = self.settings.nodes.first().ok_or_else(|| Status::failed_precondition("there is no node"))?;
        let segments = Some(node.segments.clone()).filter(|segments| !segments.is_empty());
        Ok(NodeGetInfoResponse {
            node_id: node.id.clone(),
            max_volumes_per_node: node.max_volumes,
            accessible_topology: segments.map(|segments| Topology { segments }),
        })
    }

    /// Returns the volume if it is staged or published at this path.
    fn on_node(&self, id: &str, path: &str) -> Result<&StoredVolume, Status> {
        required("volume_id", id)?;
        required("volume_path", path)?;
        let stored = self.volume(id)?;
        if !stored.targets.contains_key(path) && !stored.staged.contains(path) {
            return Err(Status::not_found(format!("{id} is not at {path}")));
        }
        Ok(stored)
    }
}

fn create_target(path: &Path, capability: &VolumeCapability) -> io::Result<()> {
    let made = if is_block(capability) { File::create_new(path).map(drop) } else { fs::create_dir(path) };
    ignore_error_kind(made, ErrorKind::AlreadyExists)
}

fn remove_target(path: &Path, capability: &VolumeCapability) -> io::Result<()> {
    let removed = if is_block(capability) { fs::remove_file(path) } else { fs::remove_dir(path) };
    ignore_error_kind(removed, ErrorKind::NotFound)
}
