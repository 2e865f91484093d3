//! The request of CreateVolume, from a claim and its class.

use std::time::Duration;

use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use driver_rpc::csi::{CapacityRange, CreateVolumeRequest, VolumeCapability};
use kube_provisioner::ProvisionRequest;
use thiserror::Error;

use crate::driver::{DriverInfo, Rpc};
use crate::parameters::{self, ParameterError, Texts, of_class};
use crate::secret_refs::Tokens;

/// What the command line of a sidecar says about requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The file system of classes that name none.
    pub default_fs_type: Option<String>,
    /// Whether the driver gets the names of claim and volume as parameters.
    pub extra_create_metadata: bool,
    /// Whether volumes of claims with the one mode ReadOnlyMany are published read-only.
    pub controller_publish_read_only: bool,
    /// Whether a claim of another volume mode than a snapshot's is refused, unless the snapshot allows it.
    pub prevent_volume_mode_conversion: bool,
    /// Whether claims may have sources of other namespaces, where a ReferenceGrant allows it.
    pub cross_namespace_data_sources: bool,
    /// Whether a driver with the capability VOLUME_ACCESSIBILITY_CONSTRAINTS limits its volumes to some nodes. Without this every node is
    /// taken to be able to use every volume.
    pub topology: bool,
    /// Whether the driver gets the cluster's topology for claims that do not wait for a pod. Otherwise it chooses by itself.
    pub immediate_topology: bool,
    /// The pause after a request that the driver calls invalid.
    pub retry_interval_max: Duration,
}

impl Default for Settings {
    /// As external-provisioner without flags.
    fn default() -> Self {
        Self {
            default_fs_type: None,
            extra_create_metadata: false,
            controller_publish_read_only: false,
            prevent_volume_mode_conversion: true,
            cross_namespace_data_sources: false,
            topology: true,
            immediate_topology: true,
            retry_interval_max: Duration::from_secs(300),
        }
    }
}

/// Why a claim and its class make no request.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("the claim has the access mode {0}, which CSI does not have")]
    AccessMode(String),
}

/// The request without Secrets, source and parameters of a VolumeAttributesClass.
pub(crate) fn create_volume(
    request: &ProvisionRequest<Texts>,
    driver: &DriverInfo,
    settings: &Settings,
) -> Result<CreateVolumeRequest, RequestError> {
    let mut parameters = parameters::of_driver(of_class(request))?;
    if settings.extra_create_metadata {
        let tokens = tokens(request);
        let metadata = [("pvc/name", tokens.claim), ("pvc/namespace", tokens.namespace), ("pv/name", tokens.volume)];
        parameters.extend(metadata.map(|(key, value)| (format!("{}{key}", parameters::RESERVED), value.to_owned())));
    }
    let required_bytes = i64::try_from(request.bytes).unwrap_or(i64::MAX);
    Ok(CreateVolumeRequest {
        name: request.name.clone(),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
        volume_capabilities: capabilities(request, driver, settings)?,
        parameters,
        ..CreateVolumeRequest::default()
    })
}

/// The file system of the volume; empty where the driver chooses.
pub(crate) fn fs_type(request: &ProvisionRequest<Texts>, settings: &Settings) -> Result<String, ParameterError> {
    let of_class = parameters::file_system(of_class(request))?;
    Ok(of_class.or(settings.default_fs_type.as_deref()).unwrap_or_default().to_owned())
}

pub(crate) fn tokens(request: &ProvisionRequest<Texts>) -> Tokens<'_> {
    let metadata = &request.claim.metadata;
    Tokens {
        volume: &request.name,
        claim: metadata.name.as_deref().unwrap_or_default(),
        namespace: request.namespace(),
        annotations: metadata.annotations.as_ref(),
    }
}

/// One for each access mode of the claim.
fn capabilities(
    request: &ProvisionRequest<Texts>,
    driver: &DriverInfo,
    settings: &Settings,
) -> Result<Vec<VolumeCapability>, RequestError> {
    let access_type = match request.is_block() {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume {
            fs_type: fs_type(request, settings)?,
            mount_flags: request.mount_options().to_vec(),
            ..MountVolume::default()
        }),
    };
    let single_node = driver.can(Rpc::SingleNodeMultiWriter);
    let capability = |name: &String| {
        let mode = mode(name, single_node).ok_or_else(|| RequestError::AccessMode(name.clone()))?;
        let access_mode = Some(AccessMode { mode: mode.into() });
        Ok(VolumeCapability { access_type: Some(access_type.clone()), access_mode })
    };
    request.access_modes().iter().map(capability).collect()
}

/// The access mode in CSI. Older drivers cannot tell one writer of a node from several.
fn mode(name: &str, single_node: bool) -> Option<Mode> {
    Some(match (name, single_node) {
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        _ => return None,
    })
}
