//! Whose a directory is.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The volume that a directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The uid of the PersistentVolume, where the volume was there before its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The claim that it was made for. An adopted directory has none, until a claim gets it.
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
    /// Its uid, by which a claim of the same name made later is another one.
    pub uid: String,
}

impl Owner {
    /// Whether both are the same volume. The cluster and the uids of the volume and of its claim count where both know them.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let claim = |owner: &Self| owner.claim.as_ref().map(|claim| claim.uid.clone());
        let same = |one: Option<String>, other: Option<String>| one.zip(other).is_none_or(|(one, other)| one == other);
        self.volume == other.volume
            && self.provisioner == other.provisioner
            && same(self.cluster.clone(), other.cluster.clone())
            && same(self.uid.clone(), other.uid.clone())
            && same(claim(self), claim(other))
    }

    /// Whether the claims of both are in one namespace of one cluster, as far as that is known.
    pub(crate) fn shares_namespace(&self, other: &Self) -> bool {
        let namespace = |owner: &Self| owner.claim.as_ref().map(|claim| claim.namespace.clone());
        namespace(self) == namespace(other) && !self.is_of_another_cluster(other.cluster.as_deref())
    }

    /// Whether the mark names another cluster than this one. Where either is not known, it does not say so.
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
        write!(f, ", made by {}", self.provisioner)?;
        match &self.cluster {
            Some(cluster) => write!(f, " in the cluster {cluster}"),
            None => Ok(()),
        }
    }
}

/// The ownership mark of one directory: a file beside the volumes, where no tenant can reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Whose the directory is.
    #[serde(flatten)]
    pub owner: Owner,
    /// UID of the PersistentVolume, recorded once it is saved. It proves ownership after the volume was bound to another claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_uid: Option<String>,
    /// When the mark was made.
    pub created: Timestamp,
    /// Since when the directory is kept although its volume was deleted, as the volume's class said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Timestamp>,
    /// Whether the volume's reclaim policy is Retain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
}

impl Mark {
    /// Returns whether the directory belongs to this volume. The claim counts only until the UID of the volume is known.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        let known = self.volume_uid.as_ref().or(self.owner.uid.as_ref());
        if known.is_some() && known == owner.uid.as_ref() {
            self.owner.is(&Owner { claim: None, ..owner.clone() })
        } else {
            self.owner.is(owner)
        }
    }

    /// Returns the mark with what is known of its volume now, if that differs.
    pub(crate) fn updated(&self, owner: &Owner, retain: bool) -> Option<Self> {
        // The mark of an adopted volume contains its UID already.
        let volume_uid = owner.uid.clone().filter(|_| self.owner.uid.is_none());
        let updated = Self { volume_uid, retain, ..self.clone() };
        (self.is_of(owner) && updated != *self).then_some(updated)
    }
}
