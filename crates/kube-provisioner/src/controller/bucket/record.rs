//! The record in an annotation of an ObjectBucket: all data that deletion needs in addition to the object's own fields.
//!
//! Only administrators may write ObjectBuckets, so it can be trusted. The object's own fields are written as other
//! programs of this API write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::delivered_names::DeliveredNames;
use crate::bucket::ClaimName;

/// The maximum number of recorded former keys. The others only count as unknown when they are removed.
const FORMER_KEYS: usize = 100;

/// The source of a claim's bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The bucket is created for the claim.
    Provisioned,
    /// The bucket exists: the class names it, or it was created for another claim in the namespace.
    Granted,
    /// The object belongs to another provisioner, and its class no longer existed.
    #[default]
    Unknown,
}

/// The annotation of an ObjectBucket. The default describes an unknown bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) source: Source,
    /// The claim. Some CustomResourceDefinitions drop the object's own reference to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<ClaimName>,
    /// The uid of the claim that the bucket was created for, if an administrator has assigned it to another claim of
    /// the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made_for_uid: Option<String>,
    /// The claim that the bucket was created for, if the claim uses the bucket of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<ClaimName>,
    /// The class's parameters. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<BTreeMap<String, String>>,
    /// The claim's `additionalConfig`, as it was last applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) config: BTreeMap<String, String>,
    /// The entries of `additionalConfig` that an unfinished attempt may have applied or removed, unlike `config`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attempted: BTreeMap<String, String>,
    /// True if a call to the provisioner has succeeded.
    #[serde(default)]
    pub(crate) made: bool,
    /// True if an administrator has assigned it to another claim and no call has succeeded since: bucket and user may
    /// have been deleted since the backup that the record comes from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) assigned: bool,
    #[serde(default)]
    pub(crate) tls: bool,
    /// The entries that the provisioner has added to the ConfigMap.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) data: BTreeMap<String, String>,
    /// The ID of the user's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key_id: Option<String>,
    /// True if the user has no key: pods identify themselves in another way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keyless: bool,
    /// The names of the Secret and the ConfigMap, if they differ from the claim's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivered: Option<DeliveredNames>,
    /// The last completed rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rotation: Option<String>,
    /// A created key that may not be in the Secret yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new_key: Option<NewKey>,
    /// The IDs of former keys of the claim's Secret, until they are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_keys: Vec<String>,
    /// The time at which the other keys are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retire_at: Option<String>,
}

/// A rotation that has begun. Until the Secret contains its key, the user keeps [`Record::access_key_id`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewKey {
    pub(crate) access_key_id: String,
    /// The next value of [`Record::rotation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rotation: Option<String>,
}

impl Record {
    /// Returns the ID of the key that this provisioner has delivered. The accounts of adopted buckets may have other
    /// names, so their keys are left alone. Each delivery has written entries for the ConfigMap.
    pub(crate) fn delivered_key(&self) -> Option<&String> {
        self.access_key_id.as_ref().filter(|_| !self.data.is_empty())
    }

    /// Returns true if the provisioner knows that the claim's Secret has or had the key of this ID, or is about to get
    /// it.
    pub(crate) fn knows_key(&self, id: &str) -> bool {
        let new = self.new_key.as_ref().map(|new| &new.access_key_id);
        self.former_keys.iter().chain(&self.access_key_id).chain(new).any(|known| known == id)
    }

    /// Adds the current key to the former ones, of which it keeps the newest: another writer who keeps changing the
    /// Secret must not fill the annotation.
    pub(crate) fn keep_former_key(&mut self) {
        self.former_keys.extend(self.access_key_id.clone());
        self.former_keys.drain(..self.former_keys.len().saturating_sub(FORMER_KEYS));
    }

    /// Returns true if a rotation has begun or ended, and the former keys are not removed yet.
    pub(crate) fn has_rotated(&self) -> bool {
        self.new_key.is_some() || !self.former_keys.is_empty()
    }

    /// Returns the key for a new Secret. Pods may have read the key that was created last, even if its Secret was
    /// deleted.
    pub(crate) fn newest_key(&self) -> Option<&str> {
        let new = self.new_key.as_ref().map(|new| &new.access_key_id);
        new.or(self.access_key_id.as_ref()).map(String::as_str)
    }

    /// Returns the names of the Secret and the ConfigMap of the claim of this name.
    pub(crate) fn delivered_names(&self, claim: &str) -> DeliveredNames {
        self.delivered.clone().unwrap_or_else(|| DeliveredNames::of(claim))
    }

    /// Records the names of the Secret and the ConfigMap of the claim of this name.
    pub(crate) fn named(self, claim: &str, names: DeliveredNames) -> Self {
        Self { delivered: Some(names).filter(|names| *names != DeliveredNames::of(claim)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_former_keys() {
        let mut record = Record::default();
        for number in 0..1000 {
            record.access_key_id = Some(number.to_string());
            record.keep_former_key();
        }
        let former = record.former_keys;
        assert_eq!((former.len(), &*former[0], &*former[FORMER_KEYS - 1]), (FORMER_KEYS, "900", "999"));
    }
}
