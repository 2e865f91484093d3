//! Mapping between Kubernetes objects and directories of a root: owner, size, and the effect of deletion on a
//! directory.

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

/// The reclaim policy of volumes whose data is kept.
const RETAIN: &str = "Retain";

/// The annotations in which volumes record what `delete` needs. The class may no longer exist by then.
#[derive(Clone, Copy, Debug)]
pub struct Annotations {
    /// The treatment of the data.
    pub on_delete: &'static str,
    /// The time in seconds that the data stays in the trash; without it, the data stays until an administrator removes
    /// it.
    pub trash_ttl: &'static str,
    /// The id of the root that contains the volume.
    pub root: &'static str,
}

impl Annotations {
    /// Records on a volume how its data is treated, and which root contains it.
    pub fn apply_to(&self, volume: Volume, on_delete: OnDelete, trash_ttl: Option<Duration>, root: &Root) -> Volume {
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

/// The capacity of a volume.
#[derive(Debug)]
pub struct Size {
    /// The limit in bytes, if it is enforced.
    pub limit: Option<u64>,
    /// The reason why there is no limit, unless the class allows that.
    unlimited: Option<String>,
}

impl Size {
    /// Returns the size. `enforced` is the value from the class; without it, sizes are enforced if the file system
    /// supports it.
    ///
    /// # Errors
    /// Fails if the class requires enforcement that the file system does not support.
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

    /// Warns the user if the size is not enforced, with an additional message if there is one.
    pub fn apply_to(&self, volume: Volume, more: Option<String>) -> Volume {
        let of_size = self.unlimited.as_ref().map(|reason| {
            format!("the size of the volume is not enforced: {reason}; a class with enforceSize: \"false\" avoids this warning")
        });
        match [of_size, more].into_iter().flatten().collect::<Vec<_>>() {
            texts if texts.is_empty() => volume,
            texts => volume.warning(texts.join(". ")),
        }
    }
}

/// The action on a directory when its volume is deleted.
#[derive(Debug)]
pub struct Deletion {
    path: VolumePath,
    owner: Owner,
    kind: Kind,
    /// `None` for an attempt.
    volume: Option<PersistentVolume>,
}

#[derive(Debug)]
enum Kind {
    Remove,
    /// Remove the leftovers of an attempt, if there are any.
    RemoveAttempt,
    Keep,
    Trash {
        ttl: Option<Duration>,
        object: serde_json::Value,
    },
}

impl Deletion {
    /// Returns the action recorded on a volume at this path.
    ///
    /// # Errors
    /// Fails if the volume is in another root.
    pub fn of(
        volume: &ProvisionedVolume,
        path: VolumePath,
        annotations: &Annotations,
        root: &Root,
    ) -> Result<Self, DirectoryError> {
        if let (Some(there), Some(here)) = (volume.annotation(annotations.root), root.id())
            && there != here
        {
            return Err(DirectoryError::InOtherRoot {
                path: root.path().to_owned(),
                expected: there.to_owned(),
                found: here.to_owned(),
                volume: volume.name.clone(),
            });
        }
        let kind = match volume.annotation(annotations.on_delete) {
            None | Some("delete") => Kind::Remove,
            Some("retain") => Kind::Keep,
            // An administrator may have set the annotation. Another value, such as `archive` or `Retain`, must not
            // remove data.
            Some(_) => {
                let ttl = volume.annotation(annotations.trash_ttl);
                // An unreadable number must neither keep data forever nor remove it at once.
                let ttl = ttl.map(|text| text.parse().map_or(TRASH_TTL, Duration::from_secs));
                Kind::Trash { ttl, object: serde_json::to_value(&*volume.object).unwrap_or_default() }
            }
        };
        Ok(Self { path, owner: owner_in_this_cluster(volume), kind, volume: Some((*volume.object).clone()) })
    }

    /// Returns the action for an attempt whose claim no longer exists, and whose directory was never used.
    pub fn of_attempt(path: VolumePath, owner: Owner) -> Self {
        Self { path, owner, kind: Kind::RemoveAttempt, volume: None }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &VolumePath {
        &self.path
    }

    /// Returns the expected owner.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the volume, or `None` for an attempt.
    pub(crate) fn volume(&self) -> Option<&PersistentVolume> {
        self.volume.as_ref()
    }

    /// Returns true if the directory stays in its place.
    pub fn keeps(&self) -> bool {
        matches!(self.kind, Kind::Keep)
    }

    /// Returns true if data is removed, which may take long.
    pub(crate) fn removes(&self) -> bool {
        matches!(self.kind, Kind::Remove | Kind::RemoveAttempt)
    }

    pub(crate) fn execute(self, root: &Root, token: &FencingToken) -> Result<(), DirectoryError> {
        let Self { path, owner, kind, .. } = self;
        match kind {
            Kind::Remove => root.remove(&path, &owner, token),
            Kind::RemoveAttempt => match root.remove(&path, &owner, token) {
                // The attempt was refused for the same reason, so it created nothing.
                Err(DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. }) => Ok(()),
                // An attempt marks a path before it creates anything there.
                Err(DirectoryError::InTheWay { .. }) if root.mark_of(&path)?.is_none() => Ok(()),
                removed => removed,
            },
            Kind::Keep => root.keep(&path, &owner),
            Kind::Trash { ttl, object } => root.move_to_trash(&path, &owner, ttl, object, token),
        }
    }
}

/// Returns the directory for a claim, which follows from the claim's names and the class's pattern, and its owner.
///
/// # Errors
/// Fails if the pattern does not produce a valid volume path.
pub fn path_and_owner<P>(
    request: &ProvisionRequest<P>,
    pattern: &PathPattern,
) -> Result<(VolumePath, Owner), ProvisionError> {
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

/// Returns true if the volume of a request will have the reclaim policy Retain.
pub fn has_retain_policy<P>(request: &ProvisionRequest<P>) -> bool {
    request.class.reclaim_policy.as_deref() == Some(RETAIN)
}

/// Returns the owner recorded in a volume, in the cluster where the provisioner runs.
pub fn owner_in_this_cluster(volume: &ProvisionedVolume) -> Owner {
    Owner { cluster: Some(volume.cluster_id.clone()), ..owner_of(&volume.object) }
}

/// Returns true if a volume's reclaim policy is Retain.
pub(crate) fn is_retained(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.persistent_volume_reclaim_policy.as_deref() == Some(RETAIN))
}

/// Returns the owner recorded in a volume. The actual owner of the directory is the one in its mark.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, owner, root};

    #[test]
    fn removing_an_attempt_succeeds_if_its_path_is_blocked() {
        let (dir, root) = root();
        std::fs::write(dir.path().join("shop"), "").unwrap();
        Deletion::of_attempt(at("shop/data"), owner("pvc-1")).execute(&root, &FencingToken::unlimited()).unwrap();
    }

    #[test]
    fn refuses_a_volume_of_another_root_and_suggests_its_adoption() {
        let (_dir, root) = root();
        let annotations = Annotations { on_delete: "on-delete", trash_ttl: "trash-ttl", root: "root" };
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Some("pvc-1".to_owned());
        volume.metadata.annotations = Some([("root".to_owned(), "another".to_owned())].into());
        let refused = Deletion::of(&ProvisionedVolume::new(volume), at("pvc-1"), &annotations, &root).unwrap_err();
        assert!(refused.to_string().contains("run the provisioner's command `adopt --volume pvc-1`"), "{refused}");
    }

    #[test]
    fn removes_data_only_if_the_annotation_is_missing_or_delete() {
        let (_dir, root) = root();
        let annotations = Annotations { on_delete: "on-delete", trash_ttl: "trash-ttl", root: "root" };
        let kind = |word: Option<&str>| {
            let mut volume = PersistentVolume::default();
            volume.metadata.annotations =
                Some(word.map(|word| ("on-delete".to_owned(), word.to_owned())).into_iter().collect());
            Deletion::of(&ProvisionedVolume::new(volume), at("pvc-1"), &annotations, &root).unwrap().kind
        };
        assert!(matches!([None, Some("delete")].map(kind), [Kind::Remove, Kind::Remove]));
        assert!(matches!(kind(Some("retain")), Kind::Keep));
        for word in ["trash", "archive", "Retain", ""] {
            assert!(matches!(kind(Some(word)), Kind::Trash { ttl: None, .. }), "{word}");
        }
    }
}
