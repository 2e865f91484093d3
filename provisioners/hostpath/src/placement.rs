//! Where a volume is: from the claim and its class to the PersistentVolume, and back from that to the directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use directory_volumes::{Claim, DirectoryError, Names, Owner, Root, VolumePath};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{DeleteError, FencingToken, ProvisionError, ProvisionRequest, ProvisionedVolume, Volume};

use crate::node::Node;
use crate::parameters::{OnDelete, Parameters, VolumeType};

/// On a volume: what becomes of its data. The class may be gone by then.
const ON_DELETE: &str = "hostpath-provisioner/on-delete";
/// On a volume: how many seconds its data stay in the trash.
const TRASH_TTL: &str = "hostpath-provisioner/trash-ttl-seconds";
/// On a volume: the id of the root that it is in.
pub(crate) const ROOT: &str = "hostpath-provisioner/root";
/// On a volume: since when its node is known to be gone.
pub(crate) const GONE_SINCE: &str = "hostpath-provisioner/node-gone-since";
/// On a claim: `hostPath` or `local`, instead of what its class says.
pub(crate) const VOLUME_TYPE: &str = "hostpath-provisioner/volume-type";

/// Where the volume of a claim is, and what is told of it.
pub(crate) struct Placement {
    pub(crate) path: VolumePath,
    pub(crate) owner: Owner,
    parameters: Arc<Parameters>,
    volume_type: VolumeType,
    /// The label and the value by which its node is found, and the node's annotations.
    node: Option<NodePlace>,
    root_id: Option<String>,
}

/// What a volume says about its node.
pub(crate) struct NodePlace {
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) annotations: Vec<(&'static str, String)>,
}

impl Placement {
    pub(crate) fn of(
        request: &ProvisionRequest<Parameters>,
        root: &Root,
        node: Option<&Node>,
    ) -> Result<Self, ProvisionError> {
        if let (Some(here), Some(selected)) = (node, &request.selected_node)
            && here.name() != selected
        {
            let here = here.name();
            return Err(ProvisionError::not_mine(format!("the claim's pod runs on {selected}, this is {here}")));
        }
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
            (Some(node), _) => Some(node.place(key).map_err(ProvisionError::invalid)?),
            (None, None) => None,
            (None, Some(what)) => {
                let text = format!("{what} needs a provisioner that is started with --node-name");
                return Err(ProvisionError::invalid(text));
            }
        };
        let (path, owner) = whose(request).map_err(ProvisionError::invalid)?;
        let root_id = root.id().map(str::to_owned);
        Ok(Self { path, owner, parameters, volume_type, node, root_id })
    }

    /// The PersistentVolume's description.
    pub(crate) fn volume(&self, path: &Path) -> Volume {
        let path = path.to_string_lossy();
        let mut volume = match self.volume_type {
            VolumeType::HostPath => Volume::host_path(path),
            VolumeType::Local => Volume::local(path),
        };
        match self.parameters.on_delete {
            OnDelete::Delete => {}
            OnDelete::Retain => volume = volume.annotation(ON_DELETE, "retain"),
            OnDelete::Trash => {
                let ttl = self.parameters.trash_ttl().as_secs().to_string();
                volume = volume.annotation(ON_DELETE, "trash").annotation(TRASH_TTL, ttl);
            }
        }
        if let Some(id) = &self.root_id {
            volume = volume.annotation(ROOT, id);
        }
        if let Some(node) = &self.node {
            volume = volume.in_topology(&node.label, &node.value);
            for (key, value) in &node.annotations {
                volume = volume.annotation(*key, value);
            }
        }
        volume
    }
}

/// What a volume can hold.
pub(crate) struct Size {
    pub(crate) limit: Option<u64>,
    /// Why there is no limit, where the class does not say that there need be none.
    unlimited: Option<String>,
}

impl Size {
    pub(crate) fn of(request: &ProvisionRequest<Parameters>, root: &Root) -> Result<Self, ProvisionError> {
        let enforced = request.parameters.enforce_size;
        let unlimited = match enforced {
            Some(false) => return Ok(Self { limit: None, unlimited: None }),
            Some(true) | None => root.why_unlimited()?,
        };
        match (enforced, unlimited) {
            (Some(true), Some(reason)) => Err(ProvisionError::retry(format!(
                "the class says enforceSize: \"true\", but the size cannot be enforced: {reason}"
            ))),
            (_, Some(reason)) => Ok(Self { limit: None, unlimited: Some(reason) }),
            (_, None) => Ok(Self { limit: Some(request.bytes), unlimited: None }),
        }
    }

    /// A size that is a mere number is nothing to keep from the user.
    pub(crate) fn tell(&self, volume: Volume) -> Volume {
        match &self.unlimited {
            Some(reason) => volume.warning(format!(
                "the size of the volume is not enforced: {reason}; a class with enforceSize: \"false\" says so beforehand"
            )),
            None => volume,
        }
    }
}

/// What is to be done with a directory when its volume goes.
pub(crate) struct Deletion {
    path: VolumePath,
    owner: Owner,
    kind: Kind,
}

enum Kind {
    Remove,
    /// What an attempt has left, if anything.
    RemoveAttempt,
    Keep,
    Trash {
        ttl: Duration,
        object: serde_json::Value,
    },
}

impl Deletion {
    pub(crate) fn of(volume: &ProvisionedVolume, root: &Root) -> Result<Self, DeleteError> {
        if let (Some(there), Some(here)) = (volume.annotation(ROOT), root.id())
            && there != here
        {
            let (path, expected) = (root.path().to_owned(), there.to_owned());
            return Err(DirectoryError::OtherRoot { path, expected, found: here.to_owned() }.into());
        }
        let kind = match volume.annotation(ON_DELETE) {
            Some("retain") => Kind::Keep,
            Some("trash") => {
                let seconds = volume.annotation(TRASH_TTL).and_then(|text| text.parse().ok());
                let ttl = seconds.map_or_else(|| Parameters::default().trash_ttl(), Duration::from_secs);
                Kind::Trash { ttl, object: serde_json::to_value(volume.object()).unwrap_or_default() }
            }
            _ => Kind::Remove,
        };
        Ok(Self { path: path_of(volume.object(), root)?, owner: owner_of(volume.object()), kind })
    }

    /// The claim of an attempt is gone, and nobody has used its directory. `None` where it was refused before anything was
    /// made.
    pub(crate) fn of_attempt(attempt: &ProvisionRequest<Parameters>) -> Option<Self> {
        let (path, owner) = whose(attempt).ok()?;
        Some(Self { path, owner, kind: Kind::RemoveAttempt })
    }

    pub(crate) fn carry_out(self, root: &Root, token: &FencingToken) -> Result<(), DirectoryError> {
        let Self { path, owner, kind } = self;
        match kind {
            Kind::Remove => root.remove(&path, &owner, token),
            Kind::RemoveAttempt => match root.remove(&path, &owner, token) {
                // The attempt was refused because of it.
                Err(DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. }) => Ok(()),
                removed => removed,
            },
            Kind::Keep => root.keep(&path, &owner),
            Kind::Trash { ttl, object } => root.move_to_trash(&path, &owner, Some(ttl), object, token),
        }
    }
}

/// The directory that a claim gets, by its class and its names.
fn whose(request: &ProvisionRequest<Parameters>) -> Result<(VolumePath, Owner), DirectoryError> {
    let (namespace, metadata) = (request.namespace(), &request.claim.metadata);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let claim = Claim { namespace: namespace.to_owned(), name: text(&metadata.name), uid: text(&metadata.uid) };
    let names = Names { namespace, claim: &claim.name, volume: &request.name };
    let path = request.parameters.path_pattern.path(&names)?;
    let provisioner = request.class.provisioner.clone();
    Ok((path, Owner { volume: request.name.clone(), uid: None, claim: Some(claim), provisioner }))
}

/// The directory that a volume names, if it is below the root. Whose that is, its mark says.
pub(crate) fn path_of(volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
    let spec = volume.spec.as_ref();
    let host_path = spec.and_then(|spec| Some(spec.host_path.as_ref()?.path.as_str()));
    let local = spec.and_then(|spec| Some(spec.local.as_ref()?.path.as_str()));
    VolumePath::below(root.path(), host_path.or(local).unwrap_or_default())
}

/// Who a volume says that it is.
pub(crate) fn owner_of(volume: &PersistentVolume) -> Owner {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).map(|claim| Claim {
        namespace: text(&claim.namespace),
        name: text(&claim.name),
        uid: text(&claim.uid),
    });
    let provisioner = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY)).cloned();
    Owner {
        volume: text(&volume.metadata.name),
        uid: volume.metadata.uid.clone(),
        claim,
        provisioner: provisioner.unwrap_or_default(),
    }
}
