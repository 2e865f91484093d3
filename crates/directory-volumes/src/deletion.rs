//! Between the objects of Kubernetes and the directories of a root: owner, size, and what happens to a directory at deletion.

use std::time::Duration;

use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::protocol::{CLUSTER_ID, PROVISIONED_BY};
use kube_provisioner::{FencingToken, ProvisionError, ProvisionRequest, ProvisionedVolume, Volume};

use crate::error::DirectoryError;
use crate::mark::{Claim, Owner};
use crate::parameters::{OnDelete, TRASH_TTL};
use crate::path::VolumePath;
use crate::pattern::{Names, PathPattern};
use crate::root::Root;
use crate::state::State;

/// The reclaim policy of volumes whose data stay.
const RETAIN: &str = "Retain";

/// The annotations by which the volumes of one provisioner say what `delete` needs. The class may be gone by then.
#[derive(Clone, Copy, Debug)]
pub struct Annotations {
    /// What becomes of the data.
    pub on_delete: &'static str,
    /// How many seconds the data stay in the trash; without it, as long as nobody removes them.
    pub trash_ttl: &'static str,
    /// The id of the root that the volume is in.
    pub root: &'static str,
}

impl Annotations {
    /// Says on a volume what becomes of its data, and where they are.
    pub fn tell(&self, volume: Volume, on_delete: OnDelete, trash_ttl: Option<Duration>, root: &Root) -> Volume {
        let volume = match (on_delete, trash_ttl) {
            (OnDelete::Delete, _) => volume,
            (OnDelete::Retain, _) => volume.annotation(self.on_delete, "retain"),
            (OnDelete::Trash, None) => volume.annotation(self.on_delete, "trash"),
            (OnDelete::Trash, Some(ttl)) => {
                volume.annotation(self.on_delete, "trash").annotation(self.trash_ttl, ttl.as_secs().to_string())
            }
        };
        match root.id() {
            Some(id) => volume.annotation(self.root, id),
            None => volume,
        }
    }
}

/// What a volume can hold.
#[derive(Debug)]
pub struct Size {
    /// In bytes, where it is enforced.
    pub limit: Option<u64>,
    /// Why there is no limit, where the class does not say that there need be none.
    unlimited: Option<String>,
}

impl Size {
    /// `enforced` is what the class says; without it sizes are enforced where the file system can.
    ///
    /// # Errors
    /// When the class needs what the file system cannot.
    pub(crate) fn of(bytes: u64, enforced: Option<bool>, root: &Root, state: &State) -> Result<Self, DirectoryError> {
        let unlimited = match enforced {
            Some(false) => return Ok(Self { limit: None, unlimited: None }),
            Some(true) | None => root.why_unlimited_within(state),
        };
        match (enforced, unlimited) {
            (Some(true), Some(reason)) => Err(DirectoryError::MustBeEnforced(reason)),
            (_, Some(reason)) => Ok(Self { limit: None, unlimited: Some(reason) }),
            (_, None) => Ok(Self { limit: Some(bytes), unlimited: None }),
        }
    }

    /// A size that is a mere number is nothing to keep from the user.
    pub fn tell(&self, volume: Volume) -> Volume {
        self.tell_with(volume, None)
    }

    /// The same, with something else that the user is to know.
    pub fn tell_with(&self, volume: Volume, more: Option<String>) -> Volume {
        let of_size = self.unlimited.as_ref().map(|reason| {
            format!("the size of the volume is not enforced: {reason}; a class with enforceSize: \"false\" says so beforehand")
        });
        match [of_size, more].into_iter().flatten().collect::<Vec<_>>() {
            texts if texts.is_empty() => volume,
            texts => volume.warning(texts.join(". ")),
        }
    }
}

/// What is to be done with a directory when its volume is deleted.
#[derive(Debug)]
pub struct Deletion {
    path: VolumePath,
    owner: Owner,
    kind: Kind,
    /// None for an attempt.
    volume: Option<PersistentVolume>,
}

#[derive(Debug)]
enum Kind {
    Remove,
    /// What an attempt has left, if anything.
    RemoveAttempt,
    Keep,
    Trash {
        ttl: Option<Duration>,
        object: serde_json::Value,
    },
}

impl Deletion {
    /// What a volume at this path says.
    ///
    /// # Errors
    /// When the volume is in another root.
    pub fn of(
        volume: &ProvisionedVolume,
        path: VolumePath,
        annotations: &Annotations,
        root: &Root,
    ) -> Result<Self, DirectoryError> {
        if let (Some(there), Some(here)) = (volume.annotation(annotations.root), root.id())
            && there != here
        {
            let (path, expected) = (root.path().to_owned(), there.to_owned());
            return Err(DirectoryError::OtherRoot { path, expected, found: here.to_owned() });
        }
        let kind = match volume.annotation(annotations.on_delete) {
            Some("retain") => Kind::Keep,
            Some("trash") => {
                let ttl = volume.annotation(annotations.trash_ttl);
                // A number that nobody can read is no reason to keep data forever, nor to remove them at once.
                let ttl = ttl.map(|text| text.parse().map_or(TRASH_TTL, Duration::from_secs));
                Kind::Trash { ttl, object: serde_json::to_value(&*volume.object).unwrap_or_default() }
            }
            _ => Kind::Remove,
        };
        Ok(Self { path, owner: owner_here(volume), kind, volume: Some((*volume.object).clone()) })
    }

    /// The claim of an attempt is gone, and nobody has used its directory.
    pub fn of_attempt(path: VolumePath, owner: Owner) -> Self {
        Self { path, owner, kind: Kind::RemoveAttempt, volume: None }
    }

    /// Where the directory is.
    pub fn path(&self) -> &VolumePath {
        &self.path
    }

    /// Whose it is to be.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The volume, unless it is an attempt whose directory nobody else has.
    pub(crate) fn volume(&self) -> Option<&PersistentVolume> {
        self.volume.as_ref().filter(|_| !matches!(self.kind, Kind::Keep))
    }

    /// Whether data are removed, which may take long.
    pub(crate) fn removes(&self) -> bool {
        matches!(self.kind, Kind::Remove | Kind::RemoveAttempt)
    }

    pub(crate) fn execute(self, root: &Root, token: &FencingToken) -> Result<(), DirectoryError> {
        let Self { path, owner, kind, .. } = self;
        match kind {
            Kind::Remove => root.remove(&path, &owner, token),
            Kind::RemoveAttempt => match root.remove(&path, &owner, token) {
                // The attempt was refused because of it.
                Err(DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. }) => Ok(()),
                removed => removed,
            },
            Kind::Keep => root.keep(&path, &owner),
            Kind::Trash { ttl, object } => root.move_to_trash(&path, &owner, ttl, object, token),
        }
    }
}

/// The directory that a claim gets, by a pattern of its class and by its names.
///
/// # Errors
/// When the pattern gives no path of a volume.
pub fn whose<P>(request: &ProvisionRequest<P>, pattern: &PathPattern) -> Result<(VolumePath, Owner), ProvisionError> {
    let (namespace, metadata) = (request.namespace(), &request.claim.metadata);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let claim = Claim { namespace: namespace.to_owned(), name: text(&metadata.name), uid: text(&metadata.uid) };
    let names = Names {
        namespace,
        claim: &claim.name,
        volume: &request.name,
        labels: metadata.labels.as_ref(),
        annotations: metadata.annotations.as_ref(),
    };
    let path = pattern.path(&names).map_err(ProvisionError::invalid)?;
    let (provisioner, cluster) = (request.class.provisioner.clone(), Some(request.cluster_id.clone()));
    Ok((path, Owner { volume: request.name.clone(), uid: None, claim: Some(claim), provisioner, cluster }))
}

/// Whether the volume of a request is to have the reclaim policy Retain.
pub fn retains<P>(request: &ProvisionRequest<P>) -> bool {
    request.class.reclaim_policy.as_deref() == Some(RETAIN)
}

/// Who a volume says that it is, in the cluster in which the provisioner runs.
pub fn owner_here(volume: &ProvisionedVolume) -> Owner {
    Owner { cluster: Some(volume.cluster_id.clone()), ..owner_of(&volume.object) }
}

/// Whether a volume's reclaim policy is Retain.
pub(crate) fn is_retained(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.persistent_volume_reclaim_policy.as_deref() == Some(RETAIN))
}

/// Who a volume says that it is. Whose the directory is, its mark says.
pub fn owner_of(volume: &PersistentVolume) -> Owner {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).map(|claim| Claim {
        namespace: text(&claim.namespace),
        name: text(&claim.name),
        uid: text(&claim.uid),
    });
    let annotation = |key: &str| volume.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    Owner {
        volume: text(&volume.metadata.name),
        uid: volume.metadata.uid.clone(),
        claim,
        provisioner: annotation(PROVISIONED_BY).unwrap_or_default(),
        cluster: annotation(CLUSTER_ID),
    }
}
