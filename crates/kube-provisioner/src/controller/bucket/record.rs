//! What an ObjectBucket records beside its own fields, in one annotation: all that deletion needs.
//!
//! Only administrators may write ObjectBuckets, so it can be trusted. The object's own fields stay as others of this API
//! write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::delivered_names::DeliveredNames;
use crate::bucket::{Account, ClaimName};

/// Where a claim's bucket comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// It is made for the claim.
    Provisioned,
    /// It exists: the class names it, or it was made for another claim of the namespace.
    Granted,
}

/// The annotation of an ObjectBucket. The default is that of a bucket of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// `None` if nobody knows: the object is another provisioner's, and its class was gone already.
    #[serde(with = "source")]
    pub(crate) source: Option<Source>,
    /// The claim. Some CustomResourceDefinitions drop the object's own reference to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<ClaimName>,
    /// The uid of the claim that the bucket was made for, where a person has given it to another one of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made_for_uid: Option<String>,
    /// The claim that the bucket was made for, where the claim uses the bucket of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<ClaimName>,
    /// The account that the claim shared with other claims of its namespace in an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<SharedAccount>,
    /// The class's parameters. `None` if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<BTreeMap<String, String>>,
    /// The claim's `additionalConfig` as it was applied the last time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) config: BTreeMap<String, String>,
    /// What of `additionalConfig` an attempt that has not come to its end may have applied, or taken away, unlike `config`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attempted: BTreeMap<String, String>,
    /// Whether a call of the author's code has succeeded.
    #[serde(default)]
    pub(crate) made: bool,
    /// Whether a person has given it to another claim and no call has succeeded since: bucket and user may be gone since the
    /// backup that the record comes from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) assigned: bool,
    #[serde(default)]
    pub(crate) tls: bool,
    /// What the author has added to the ConfigMap.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) data: BTreeMap<String, String>,
    /// The id of the key that the user has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key_id: Option<String>,
    /// Whether the user has no key: pods identify themselves otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keyless: bool,
    /// The names of the Secret and the ConfigMap, where they are not the claim's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivered: Option<DeliveredNames>,
    /// The rotation that was done last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rotation: Option<String>,
    /// A key that was made and is not known to be in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new_key: Option<NewKey>,
    /// The ids of keys that the claim's Secret had before, until they are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_keys: Vec<String>,
    /// When the other keys are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retire_at: Option<String>,
}

/// An account that an earlier version made for several claims. New claims do not get one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SharedAccount {
    pub(crate) name: String,
    /// Identifies the account: no claim and no other account has this uid.
    pub(crate) uid: String,
    /// Set once the claim's Secret contains the key of an account of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) left: bool,
    /// The state that the author keeps for the account.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) state: BTreeMap<String, String>,
}

/// A rotation that has begun. Until the Secret has its key, the user keeps [`Record::access_key_id`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewKey {
    pub(crate) access_key_id: String,
    /// What [`Record::rotation`] will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rotation: Option<String>,
}

impl SharedAccount {
    /// The account as the author's methods receive it.
    pub(crate) fn account(&self, namespace: &str) -> Account {
        let (namespace, name, uid) = (namespace.to_owned(), self.name.clone(), self.uid.clone());
        Account::of(ClaimName { namespace, name, uid })
    }
}

impl Record {
    /// Returns true if the key in the claim's Secret belongs to the claim alone, so that it can be rotated.
    pub(crate) fn has_own_account(&self) -> bool {
        self.account.as_ref().is_none_or(|shared| shared.left)
    }

    /// Returns the id of the key that this provisioner has delivered to an account of the claim's own. The accounts of adopted buckets
    /// may have other names, so their keys are left alone. Each delivery has written entries for the ConfigMap.
    pub(crate) fn delivered_key(&self) -> Option<&String> {
        self.access_key_id.as_ref().filter(|_| self.has_own_account() && !self.data.is_empty())
    }

    /// Returns true if the provisioner knows that the claim's Secret has or had the key of this id, or is about to get it.
    pub(crate) fn knows_key(&self, id: &str) -> bool {
        let new = self.new_key.as_ref().map(|new| &new.access_key_id);
        self.former_keys.iter().chain(&self.access_key_id).chain(new).any(|known| known == id)
    }

    /// Returns true if a rotation has begun or ended, and the keys before it are not removed yet.
    pub(crate) fn has_rotated(&self) -> bool {
        self.new_key.is_some() || !self.former_keys.is_empty()
    }

    /// The key that a new Secret gets. Pods may have read one that was made last, even if its Secret is gone.
    pub(crate) fn newest_key(&self) -> Option<&str> {
        let new = self.new_key.as_ref().map(|new| &new.access_key_id);
        new.or(self.access_key_id.as_ref()).map(String::as_str)
    }

    /// The names of the Secret and the ConfigMap of the claim of this name.
    pub(crate) fn delivered_names(&self, claim: &str) -> DeliveredNames {
        self.delivered.clone().unwrap_or_else(|| DeliveredNames::of(claim))
    }

    /// Records the names of the Secret and the ConfigMap of the claim of this name.
    pub(crate) fn named(self, claim: &str, names: DeliveredNames) -> Self {
        Self { delivered: Some(names).filter(|names| *names != DeliveredNames::of(claim)), ..self }
    }
}

mod source {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Source;

    pub(super) fn serialize<S: Serializer>(source: &Option<Source>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match source {
            Some(Source::Provisioned) => "Provisioned",
            Some(Source::Granted) => "Granted",
            None => "Unknown",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Source>, D::Error> {
        match &*String::deserialize(deserializer)? {
            "Provisioned" => Ok(Some(Source::Provisioned)),
            "Granted" => Ok(Some(Source::Granted)),
            "Unknown" => Ok(None),
            other => Err(serde::de::Error::custom(format!("unknown source {other:?}"))),
        }
    }
}
