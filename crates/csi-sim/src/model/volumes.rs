//! Creation, expansion, modification, listing and deletion of volumes.

use std::collections::{BTreeMap, BTreeSet};

use driver_rpc::Status;
use driver_rpc::csi::controller_service_capability::rpc::Type as Controller;
use driver_rpc::csi::plugin_capability::service::Type as Plugin;
use driver_rpc::csi::volume_content_source::Type as Source;
use driver_rpc::csi::*;

use super::publish::Publication;
use super::{Model, page, required};
use crate::Capability;
use crate::data::is_block;

const TOPOLOGY: Capability = Capability::Plugin(Plugin::VolumeAccessibilityConstraints);
const KIND: &str = "volume-";
/// Limit in bytes from the specification.
const MAX_NAME: usize = 128;

#[derive(Debug)]
pub(super) struct StoredVolume {
    pub(super) volume: Volume,
    /// The request without secrets.
    request: CreateVolumeRequest,
    pub(super) pool: String,
    mutable_parameters: BTreeMap<String, String>,
    /// Publications by node.
    pub(super) published: BTreeMap<String, Publication>,
    /// The staging paths on the node.
    pub(super) staged: BTreeSet<String>,
    /// The target paths on the node.
    pub(super) targets: BTreeMap<String, Publication>,
}

impl Model {
    pub(crate) fn create_volume(&mut self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        if request.name.len() > MAX_NAME {
            return Err(Status::invalid_argument("name is longer than 128 bytes"));
        }
        check_capabilities(&request.volume_capabilities)?;
        self.check_mutable(&request.mutable_parameters)?;
        let size = self.size(request.capacity_range.as_ref())?;
        let existing = self.volumes.values().find(|stored| stored.request.name == request.name);
        if let Some(existing) = existing.filter(|_| self.settings.is_idempotent) {
            return existing.repeated_response(request);
        }
        self.check_source(request.volume_content_source.as_ref(), size)?;
        let pool = self.pool_for(size, request.accessibility_requirements.as_ref(), TOPOLOGY)?;
        let (pool, accessible_topology) = (pool.name.clone(), self.topology_of(pool, TOPOLOGY));
        let volume = Volume {
            capacity_bytes: size,
            volume_id: self.next_id("volume"),
            volume_context: BTreeMap::from([("pool".to_owned(), pool.clone())]),
            content_source: request.volume_content_source.clone(),
            accessible_topology,
        };
        let stored = StoredVolume {
            volume: volume.clone(),
            request: CreateVolumeRequest { secrets: Default::default(), ..request.clone() },
            pool,
            mutable_parameters: request.mutable_parameters.clone(),
            published: BTreeMap::new(),
            staged: BTreeSet::new(),
            targets: BTreeMap::new(),
        };
        if let Some(data) = self.data() {
            let source = volume.content_source.as_ref().and_then(id_of_source);
            data.create(&volume.volume_id, request.volume_capabilities.iter().any(is_block), size, source)?;
        }
        self.volumes.insert(volume.volume_id.clone(), stored);
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    pub(crate) fn delete_volume(&mut self, request: &DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        match self.volume(&request.volume_id) {
            Ok(stored) if stored.is_in_use() => return Err(Status::failed_precondition("the volume is in use")),
            Err(status) if !self.settings.is_idempotent => return Err(status),
            _ => {}
        }
        if let (Some(data), Some(stored)) = (self.data(), self.volumes.get(&request.volume_id)) {
            data.remove(&stored.volume.volume_id)?;
        }
        self.volumes.remove(&request.volume_id);
        Ok(DeleteVolumeResponse {})
    }

    pub(crate) fn validate_volume_capabilities(
        &mut self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        required("volume_id", &request.volume_id)?;
        check_capabilities(&request.volume_capabilities)?;
        self.volume(&request.volume_id)?;
        let confirmed = validate_volume_capabilities_response::Confirmed {
            volume_context: request.volume_context.clone(),
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
        };
        Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), ..Default::default() })
    }

    pub(crate) fn list_volumes(&mut self, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let shows_nodes = self.has(Capability::Controller(Controller::ListVolumesPublishedNodes));
        let all = self.volumes.iter().map(|(id, stored)| {
            let published_node_ids = stored.published.keys().cloned().collect();
            let status = shows_nodes.then_some(list_volumes_response::VolumeStatus { published_node_ids });
            (id, list_volumes_response::Entry { volume: Some(stored.volume.clone()), status })
        });
        let (entries, next_token) = page(all, KIND, &request.starting_token, request.max_entries)?;
        Ok(ListVolumesResponse { entries, next_token })
    }

    pub(crate) fn get_capacity(&mut self, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        let place = request.accessible_topology.as_ref().filter(|_| self.has(TOPOLOGY));
        let pools = self.settings.pools.iter().filter(|pool| place.is_none_or(|place| pool.is_within(place)));
        let free: Vec<i64> = pools.map(|pool| self.free(pool).max(0)).collect();
        let largest = free.iter().copied().max().unwrap_or(0).min(self.settings.maximum_size);
        Ok(GetCapacityResponse {
            available_capacity: free.iter().sum(),
            maximum_volume_size: Some(largest),
            minimum_volume_size: Some(self.settings.minimum_size),
        })
    }

    pub(crate) fn controller_expand_volume(
        &mut self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let Some(range) = &request.capacity_range else {
            return Err(Status::invalid_argument("capacity_range is missing"));
        };
        let size = self.size(Some(range))?;
        let stored = self.volume(&request.volume_id)?;
        let before = stored.volume.capacity_bytes;
        let pool = self.settings.pools.iter().find(|pool| pool.name == stored.pool);
        if pool.is_some_and(|pool| self.free(pool) < size - before) {
            return Err(Status::out_of_range(format!("the pool does not have {} more bytes", size - before)));
        }
        if let Some(data) = self.data() {
            data.expand(&request.volume_id, size)?;
        }
        let volume = &mut self.volume_mut(&request.volume_id)?.volume;
        volume.capacity_bytes = size.max(before);
        let capacity_bytes = volume.capacity_bytes;
        let node_expansion_required = self.has(Capability::Node(node_service_capability::rpc::Type::ExpandVolume));
        Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required })
    }

    pub(crate) fn controller_get_volume(
        &mut self,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let stored = self.volume(&request.volume_id)?;
        let published_node_ids = stored.published.keys().cloned().collect();
        let status = controller_get_volume_response::VolumeStatus { published_node_ids };
        Ok(ControllerGetVolumeResponse { volume: Some(stored.volume.clone()), status: Some(status) })
    }

    pub(crate) fn controller_modify_volume(
        &mut self,
        request: &ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Status> {
        self.check_mutable(&request.mutable_parameters)?;
        let stored = self.volume_mut(&request.volume_id)?;
        stored.mutable_parameters.extend(request.mutable_parameters.clone());
        Ok(ControllerModifyVolumeResponse {})
    }

    fn size(&self, range: Option<&CapacityRange>) -> Result<i64, Status> {
        let &CapacityRange { required_bytes: required, limit_bytes: limit } =
            range.unwrap_or(&CapacityRange::default());
        if required < 0 || limit < 0 || (limit > 0 && limit < required) {
            return Err(Status::invalid_argument("capacity_range is not a valid range"));
        }
        let settings = &self.settings;
        let upper = if limit == 0 { settings.maximum_size } else { limit.min(settings.maximum_size) };
        let wanted = if required == 0 { settings.default_size.min(upper) } else { required };
        let blocks = wanted.max(settings.minimum_size).div_euclid(settings.granularity)
            + i64::from(wanted.max(settings.minimum_size).rem_euclid(settings.granularity) > 0);
        match blocks * settings.granularity {
            size if size > upper => Err(Status::out_of_range(format!("{size} bytes are more than {upper}"))),
            size => Ok(size),
        }
    }

    fn check_mutable(&self, parameters: &BTreeMap<String, String>) -> Result<(), Status> {
        match parameters.keys().find(|key| !self.settings.mutable_parameters.contains(*key)) {
            Some(unknown) => Err(Status::invalid_argument(format!("{unknown:?} is not a mutable parameter"))),
            None => Ok(()),
        }
    }

    fn check_source(&self, source: Option<&VolumeContentSource>, size: i64) -> Result<(), Status> {
        let Some(source) = source else { return Ok(()) };
        let (capability, size_of_source) = match source.r#type.as_ref() {
            Some(Source::Snapshot(source)) => {
                (Controller::CreateDeleteSnapshot, self.snapshot(&source.snapshot_id)?.size_bytes)
            }
            Some(Source::Volume(source)) => {
                (Controller::CloneVolume, self.volume(&source.volume_id)?.volume.capacity_bytes)
            }
            None => return Err(Status::invalid_argument("volume_content_source is empty")),
        };
        if !self.has(Capability::Controller(capability)) {
            return Err(Status::invalid_argument("this driver cannot create volumes from this kind of source"));
        }
        if size < size_of_source {
            return Err(Status::out_of_range(format!("the source has {size_of_source} bytes")));
        }
        Ok(())
    }
}

impl StoredVolume {
    pub(super) fn name(&self) -> &str {
        &self.request.name
    }

    /// Returns the answer to a repeated request for the volume's name.
    fn repeated_response(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        let range = request.capacity_range.unwrap_or_default();
        let size = self.volume.capacity_bytes;
        let fits = range.required_bytes <= size && (range.limit_bytes == 0 || size <= range.limit_bytes);
        let within = request.accessibility_requirements.as_ref().is_none_or(|requirement| {
            let is_requisite = |place: &Topology| requirement.requisite.contains(place);
            requirement.requisite.is_empty() || self.volume.accessible_topology.iter().all(is_requisite)
        });
        let is_same = request.volume_capabilities == self.request.volume_capabilities
            && request.parameters == self.request.parameters
            && request.mutable_parameters == self.request.mutable_parameters
            && request.volume_content_source == self.request.volume_content_source;
        if !(fits && within && is_same) {
            return Err(Status::already_exists(format!("there is another volume {}", self.request.name)));
        }
        Ok(CreateVolumeResponse { volume: Some(self.volume.clone()) })
    }

    fn is_in_use(&self) -> bool {
        !(self.published.is_empty() && self.staged.is_empty() && self.targets.is_empty())
    }
}

fn id_of_source(source: &VolumeContentSource) -> Option<&str> {
    Some(match source.r#type.as_ref()? {
        Source::Snapshot(source) => &source.snapshot_id,
        Source::Volume(source) => &source.volume_id,
    })
}

fn check_capabilities(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    let is_whole = |capability: &VolumeCapability| capability.access_type.is_some() && capability.access_mode.is_some();
    if capabilities.is_empty() || !capabilities.iter().all(is_whole) {
        return Err(Status::invalid_argument("volume_capabilities are missing or incomplete"));
    }
    Ok(())
}
