//! Builds CreateVolume requests from a claim and its class.

use std::collections::BTreeMap;
use std::time::Duration;

use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use driver_rpc::csi::{CapacityRange, CreateVolumeRequest, VolumeCapability};
use kube_provisioner::ProvisionRequest;
use kube_provisioner::k8s_openapi::api::core::v1::SecretReference;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::capacity::CapacitySettings;
use crate::driver::{DriverInfo, Rpc};
use crate::own_node::OwnNode;
use crate::parameters::{self, ParameterError, Texts};
use crate::secret_refs::{Role, SecretRefError, Tokens, secret_ref};

/// The settings of a sidecar that affect requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The file system for classes that do not specify one.
    pub default_fs_type: Option<String>,
    /// If true, the driver receives the names of the claim and the volume as parameters.
    pub extra_create_metadata: bool,
    /// If true, volumes are published read-only if ReadOnlyMany is their claim's only access mode.
    pub controller_publish_read_only: bool,
    /// If true, a claim is refused if its volume mode differs from its snapshot's, unless the snapshot allows it.
    pub prevent_volume_mode_conversion: bool,
    /// If true, claims may have sources in other namespaces, where a ReferenceGrant allows it.
    pub cross_namespace_data_sources: bool,
    /// If true, a driver with the capability VOLUME_ACCESSIBILITY_CONSTRAINTS limits its volumes to some nodes. If
    /// false, every node is assumed to have access to every volume.
    pub topology: bool,
    /// If true, the driver receives the cluster's topology for claims that do not wait for a pod. If false, the driver
    /// chooses.
    pub immediate_topology: bool,
    /// If true, the driver receives only the selected node's topology for claims that wait for a pod. If false, it
    /// receives the topology of all nodes.
    pub strict_topology: bool,
    /// If true, the driver receives the whole topology of the nodes that match the class's `allowedTopologies`, instead
    /// of only the labels in them.
    pub filter_allowed_topologies: bool,
    /// The node of this replica, if each node has one. The replica provisions only this node's volumes, and does not
    /// read other nodes.
    pub own_node: Option<OwnNode>,
    /// The pause after a request that the driver calls invalid.
    pub retry_interval_max: Duration,
    /// The settings for publishing the driver's free capacity for the scheduler. `None` disables it.
    pub capacity: Option<CapacitySettings>,
}

impl Default for Settings {
    /// Returns external-provisioner's default settings.
    fn default() -> Self {
        Self {
            default_fs_type: None,
            extra_create_metadata: false,
            controller_publish_read_only: false,
            prevent_volume_mode_conversion: true,
            cross_namespace_data_sources: false,
            topology: true,
            immediate_topology: true,
            strict_topology: false,
            filter_allowed_topologies: false,
            own_node: None,
            retry_interval_max: Duration::from_secs(300),
            capacity: None,
        }
    }
}

/// The settings and the capability that determine a request, in addition to the claim and the class.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fs_type: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    metadata: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    single_node: bool,
}

impl RequestSettings {
    pub(crate) fn new(driver: &DriverInfo, settings: &Settings) -> Self {
        let single_node = driver.has_rpc(Rpc::SingleNodeMultiWriter);
        Self { fs_type: settings.default_fs_type.clone(), metadata: settings.extra_create_metadata, single_node }
    }
}

/// Reasons why a claim and its class are invalid.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("the claim has the access mode {0}, which CSI does not support")]
    AccessMode(String),
    #[error(transparent)]
    Secret(#[from] SecretRefError),
}

/// The request of a claim. Only this type interprets the class's parameters.
pub(crate) struct RequestedVolume {
    /// The request without Secrets, source and parameters of a VolumeAttributesClass.
    pub(crate) create: CreateVolumeRequest,
    /// `None` for a block device, or if the driver chooses.
    pub(crate) fs_type: Option<String>,
    pub(crate) secrets: BTreeMap<Role, SecretReference>,
}

impl RequestedVolume {
    pub(crate) fn read(request: &ProvisionRequest<Texts>, shape: &RequestSettings) -> Result<Self, RequestError> {
        // The request's own parameters lack the reserved keys.
        static NONE: Texts = Texts::new();
        let class = request.class.parameters.as_ref().unwrap_or(&NONE);
        let metadata = &request.claim.metadata;
        let tokens = Tokens {
            volume: &request.name,
            claim: metadata.name.as_deref().unwrap_or_default(),
            namespace: request.namespace(),
            annotations: metadata.annotations.as_ref(),
        };
        let mut parameters = parameters::of_driver(class)?;
        if shape.metadata {
            let names = [("pvc/name", tokens.claim), ("pvc/namespace", tokens.namespace), ("pv/name", tokens.volume)];
            parameters.extend(names.map(|(key, value)| (format!("{}{key}", parameters::RESERVED), value.to_owned())));
        }
        let mut fs_type = None;
        let access_type = if request.is_block() {
            AccessType::Block(BlockVolume {})
        } else {
            let named = parameters::file_system(class)?.or(shape.fs_type.as_deref());
            fs_type = named.filter(|name| !name.is_empty()).map(str::to_owned);
            AccessType::Mount(MountVolume {
                fs_type: fs_type.clone().unwrap_or_default(),
                mount_flags: request.mount_options().to_vec(),
                ..MountVolume::default()
            })
        };
        let required_bytes = i64::try_from(request.bytes).unwrap_or(i64::MAX);
        let create = CreateVolumeRequest {
            name: request.name.clone(),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            volume_capabilities: capabilities(request.access_modes(), &access_type, shape.single_node)?,
            parameters,
            ..CreateVolumeRequest::default()
        };
        let mut secrets = BTreeMap::new();
        for role in Role::ALL {
            secrets.extend(secret_ref(role, class, &tokens)?.map(|secret| (role, secret)));
        }
        Ok(Self { create, fs_type, secrets })
    }
}

/// Returns one capability for each access mode of the claim.
fn capabilities(
    access_modes: &[String],
    access_type: &AccessType,
    single_node: bool,
) -> Result<Vec<VolumeCapability>, RequestError> {
    let capability = |name: &String| {
        let mode = mode(name, single_node).ok_or_else(|| RequestError::AccessMode(name.clone()))?;
        let access_mode = Some(AccessMode { mode: mode.into() });
        Ok(VolumeCapability { access_type: Some(access_type.clone()), access_mode })
    };
    access_modes.iter().map(capability).collect()
}

/// Returns the CSI access mode. Older drivers cannot distinguish one writer on a node from several.
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
