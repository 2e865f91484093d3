//! Converts the answer of a successful CreateVolume to a volume.

use driver_rpc::csi::Volume as CsiVolume;
use kube_provisioner::k8s_openapi::api::core::v1::CSIPersistentVolumeSource;
use kube_provisioner::{ProvisionRequest, Volume};

use crate::driver::DriverInfo;
use crate::parameters::Texts;
use crate::request::{RequestedVolume, Settings};
use crate::secret_refs::Role;
use crate::topology;

/// The attribute with which external-provisioner marks volumes.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// The annotations of a volume that name the Secret for DeleteVolume. They are empty if there is no Secret.
pub(crate) const DELETION_SECRET: [&str; 2] = [
    "volume.kubernetes.io/provisioner-deletion-secret-name",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace",
];

/// The annotations of a volume that name the Secret for ControllerModifyVolume, for external-resizer.
const MODIFY_SECRET: [&str; 2] =
    ["volume.kubernetes.io/controller-modify-secret-name", "volume.kubernetes.io/controller-modify-secret-namespace"];

/// Returns the reason why the created volume is unusable, if it is.
pub(crate) fn unusable_reason(made: &CsiVolume, request: &ProvisionRequest<Texts>) -> Option<String> {
    let bytes = u64::try_from(made.capacity_bytes).unwrap_or_default();
    if made.volume_id.is_empty() {
        return Some("the CSI driver created a volume without an id".to_owned());
    }
    // Size 0 means unknown.
    if bytes != 0 && bytes < request.bytes {
        let asked = request.bytes;
        return Some(format!("the CSI driver created a volume of {bytes} bytes, but the claim asks for {asked}"));
    }
    if request.data_source().is_some() && made.content_source.is_none() {
        return Some("the CSI driver created an empty volume, but the claim asks for a copy".to_owned());
    }
    None
}

/// Returns the volume for the PersistentVolume.
pub(crate) fn volume(
    made: CsiVolume,
    wanted: &RequestedVolume,
    request: &ProvisionRequest<Texts>,
    driver: &DriverInfo,
    settings: &Settings,
    identity: &str,
) -> Volume {
    let secret = |role| wanted.secrets.get(&role).cloned();
    let read_only = settings.controller_publish_read_only && request.access_modes() == ["ReadOnlyMany"];
    let places =
        driver.can_restrict_topology(settings).then(|| topology::affinity(&made.accessible_topology)).flatten();
    let mut attributes = made.volume_context;
    attributes.entry(IDENTITY.to_owned()).or_insert_with(|| identity.to_owned());
    let source = CSIPersistentVolumeSource {
        driver: driver.name().to_owned(),
        volume_handle: made.volume_id,
        volume_attributes: Some(attributes),
        fs_type: wanted.fs_type.clone(),
        read_only: read_only.then_some(true),
        controller_publish_secret_ref: secret(Role::ControllerPublish),
        node_stage_secret_ref: secret(Role::NodeStage),
        node_publish_secret_ref: secret(Role::NodePublish),
        controller_expand_secret_ref: secret(Role::ControllerExpand),
        node_expand_secret_ref: secret(Role::NodeExpand),
    };
    let mut volume = Volume::new(source);
    if let Some(nodes) = places {
        volume = volume.node_affinity(nodes);
    }
    if let Ok(bytes @ 1..) = u64::try_from(made.capacity_bytes) {
        volume = volume.capacity(bytes);
    }
    let deletion = Some((DELETION_SECRET, secret(Role::Provisioner).unwrap_or_default()));
    let modification = secret(Role::ControllerModify).map(|secret| (MODIFY_SECRET, secret));
    for (keys, secret) in deletion.into_iter().chain(modification) {
        for (key, value) in keys.into_iter().zip([secret.name, secret.namespace]) {
            volume = volume.annotation(key, value.unwrap_or_default());
        }
    }
    volume
}
