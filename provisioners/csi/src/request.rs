//! The request of CreateVolume, from a claim and its class.

use std::collections::BTreeMap;
use std::time::Duration;

use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use driver_rpc::csi::{CapacityRange, CreateVolumeRequest, VolumeCapability};
use kube_provisioner::ProvisionRequest;
use kube_provisioner::k8s_openapi::api::core::v1::SecretReference;
use thiserror::Error;

use crate::capacity::CapacitySettings;
use crate::driver::{DriverInfo, Rpc};
use crate::own_node::OwnNode;
use crate::parameters::{self, ParameterError, Texts};
use crate::secret_refs::{Role, SecretRefError, Tokens, secret_ref};

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
    /// Whether the driver gets only the selected node's topology for claims that wait for a pod. Otherwise it gets that of all nodes.
    pub strict_topology: bool,
    /// True if the driver receives the whole topology of the nodes that the class's `allowedTopologies` match, instead of the labels in them.
    pub filter_allowed_topologies: bool,
    /// The node of this process, if each node has a replica: only its volumes are served, and no other node is looked at.
    pub own_node: Option<OwnNode>,
    /// The pause after a request that the driver calls invalid.
    pub retry_interval_max: Duration,
    /// Where and how often the driver's free storage is published for the scheduler. `None`: it is not.
    pub capacity: Option<CapacitySettings>,
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
            strict_topology: false,
            filter_allowed_topologies: false,
            own_node: None,
            retry_interval_max: Duration::from_secs(300),
            capacity: None,
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
    #[error(transparent)]
    Secret(#[from] SecretRefError),
}

/// What a claim asks for by its class's parameters, which are read here and nowhere else.
pub(crate) struct Wanted {
    /// The request without Secrets, source and parameters of a VolumeAttributesClass.
    pub(crate) create: CreateVolumeRequest,
    /// `None` for a block device, and where the driver chooses.
    pub(crate) fs_type: Option<String>,
    pub(crate) secrets: BTreeMap<Role, SecretReference>,
}

impl Wanted {
    pub(crate) fn read(
        request: &ProvisionRequest<Texts>,
        driver: &DriverInfo,
        settings: &Settings,
    ) -> Result<Self, RequestError> {
        // The library hands the parameters to authors without the reserved ones.
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
        if settings.extra_create_metadata {
            let names = [("pvc/name", tokens.claim), ("pvc/namespace", tokens.namespace), ("pv/name", tokens.volume)];
            parameters.extend(names.map(|(key, value)| (format!("{}{key}", parameters::RESERVED), value.to_owned())));
        }
        let mut fs_type = None;
        let access_type = if request.is_block() {
            AccessType::Block(BlockVolume {})
        } else {
            let named = parameters::file_system(class)?.or(settings.default_fs_type.as_deref());
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
            volume_capabilities: capabilities(request.access_modes(), &access_type, driver)?,
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

/// One for each access mode of the claim.
fn capabilities(
    access_modes: &[String],
    access_type: &AccessType,
    driver: &DriverInfo,
) -> Result<Vec<VolumeCapability>, RequestError> {
    let single_node = driver.can(Rpc::SingleNodeMultiWriter);
    let capability = |name: &String| {
        let mode = mode(name, single_node).ok_or_else(|| RequestError::AccessMode(name.clone()))?;
        let access_mode = Some(AccessMode { mode: mode.into() });
        Ok(VolumeCapability { access_type: Some(access_type.clone()), access_mode })
    };
    access_modes.iter().map(capability).collect()
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
