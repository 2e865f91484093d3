//! Ownership marks for volume directories.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The volume that a directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The uid of the PersistentVolume, if the volume existed before its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The claim that the volume was created for. An adopted directory has none until it is bound to a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The name of the provisioner.
    pub provisioner: String,
    /// The id of the cluster. Marks of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which distinguishes it from a later claim with the same name.
    pub uid: String,
}

impl Owner {
    /// Returns true if both are the same volume. The cluster and the uids of the volume and its claim are compared only
    /// if both owners have them.
    pub(crate) fn is_same_volume(&self, other: &Self) -> bool {
        let claim = |owner: &Self| owner.claim.as_ref().map(|claim| claim.uid.clone());
        let same = |one: Option<String>, other: Option<String>| one.zip(other).is_none_or(|(one, other)| one == other);
        self.volume == other.volume
            && self.provisioner == other.provisioner
            && same(self.cluster.clone(), other.cluster.clone())
            && same(self.uid.clone(), other.uid.clone())
            && same(claim(self), claim(other))
    }

    /// Returns true if the claims of both are in one namespace of one cluster, as far as that is known.
    pub(crate) fn shares_namespace(&self, other: &Self) -> bool {
        let namespace = |owner: &Self| owner.claim.as_ref().map(|claim| claim.namespace.clone());
        namespace(self) == namespace(other) && !self.is_of_another_cluster(other.cluster.as_deref())
    }

    /// Returns true if the owner belongs to a cluster other than this one. Returns false if either is unknown.
    pub(crate) fn is_of_another_cluster(&self, here: Option<&str>) -> bool {
        self.cluster.as_deref().zip(here).is_some_and(|(there, here)| there != here)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the volume {}", self.volume)?;
        if let Some(claim) = &self.claim {
            write!(f, " of the claim {}/{} ({})", claim.namespace, claim.name, claim.uid)?;
        }
        write!(f, ", created by {}", self.provisioner)?;
        match &self.cluster {
            Some(cluster) => write!(f, " in the cluster {cluster}"),
            None => Ok(()),
        }
    }
}

/// The ownership mark of one directory: a file outside the volume, where no tenant can reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The owner of the directory.
    #[serde(flatten)]
    pub owner: Owner,
    /// UID of the PersistentVolume, recorded once it is saved. It proves ownership after the volume was bound to
    /// another claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_uid: Option<String>,
    /// The time when the mark was created.
    pub created: Timestamp,
    /// The time when the volume was deleted, if its class requested that the directory be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Timestamp>,
    /// True if the volume's reclaim policy is Retain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
}

impl Mark {
    /// Returns true if the directory belongs to this volume. The claim is compared only until the UID of the volume is
    /// known.
    pub(crate) fn belongs_to(&self, owner: &Owner) -> bool {
        let known = self.volume_uid.as_ref().or(self.owner.uid.as_ref());
        if known.is_some() && known == owner.uid.as_ref() {
            self.owner.is_same_volume(&Owner { claim: None, ..owner.clone() })
        } else {
            self.owner.is_same_volume(owner)
        }
    }

    /// Returns the mark with the current state of its volume, if that differs.
    pub(crate) fn updated(&self, owner: &Owner, retain: bool) -> Option<Self> {
        // The mark of an adopted volume already contains its UID.
        let volume_uid = owner.uid.clone().filter(|_| self.owner.uid.is_none());
        let updated = Self { volume_uid, retain, ..self.clone() };
        (self.belongs_to(owner) && updated != *self).then_some(updated)
    }
}
