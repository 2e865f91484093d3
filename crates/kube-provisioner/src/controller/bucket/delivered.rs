//! The Secret and the ConfigMap that a claim's pods use: their content, and the detection of changes.
//!
//! A checksum in an annotation reveals an edited object. Entries added by others are left alone.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use objectbucket_api::names::{
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, BUCKET_HOST, BUCKET_NAME, BUCKET_PORT, BUCKET_REGION, BUCKET_SUBREGION,
};
use provisioner_runtime::watch::FromJson;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::facts::{Delivered, EndpointFacts};
use super::record::Record;
use crate::controller::shared::checksum::{CHECKSUM, hash_of};

/// A Secret or a ConfigMap.
pub(crate) trait Deliverable:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + FromJson
    + Send
    + Sync
    + 'static
{
    const KIND: &'static str;
    /// The position of the kind in pairs of Secret and ConfigMap.
    const INDEX: usize;
    /// The field of a write that contains the entries.
    const ENTRIES: &'static str;

    fn to_watched(&self) -> Option<WatchedDelivered>;
}

impl Deliverable for Secret {
    const KIND: &'static str = "Secret";
    const INDEX: usize = 0;
    const ENTRIES: &'static str = "stringData";

    /// Returns the watched facts. Of the data, only the ID of the key is kept.
    fn to_watched(&self) -> Option<WatchedDelivered> {
        let data = self.data.as_ref();
        let entries = data.into_iter().flatten().map(|(name, value)| (name.as_str(), value.0.as_slice())).collect();
        let given = |name| data.and_then(|data| data.get(name)).filter(|value| !value.0.is_empty());
        let complete = given(AWS_ACCESS_KEY_ID).is_some() && given(AWS_SECRET_ACCESS_KEY).is_some();
        let access_key_id = given(AWS_ACCESS_KEY_ID).and_then(|id| str::from_utf8(&id.0).ok()).map(Into::into);
        watched_delivered(&self.metadata, &entries, complete, access_key_id)
    }
}

impl Deliverable for ConfigMap {
    const KIND: &'static str = "ConfigMap";
    const INDEX: usize = 1;
    const ENTRIES: &'static str = "data";

    fn to_watched(&self) -> Option<WatchedDelivered> {
        let data = self.data.as_ref();
        let entries = data.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        watched_delivered(&self.metadata, &entries, data.is_some_and(|data| data.contains_key(BUCKET_NAME)), None)
    }
}

/// A Secret or ConfigMap with our label.
#[derive(Clone, Debug)]
pub(crate) struct DeliveredFacts {
    pub(crate) uid: Box<str>,
    pub(crate) resource_version: u64,
    /// The claim that owns it.
    pub(crate) owner: Option<Box<str>>,
    unowned: bool,
    pub(crate) finalizers: Vec<String>,
    /// The ID of the key that it contains.
    pub(crate) access_key_id: Option<Box<str>>,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Unchanged since it was written with this checksum.
    Intact(Box<str>),
    Changed,
    /// Written by another provisioner.
    Unmarked {
        complete: bool,
    },
}

/// An object from the watch: its path, and its facts.
#[derive(Clone, Debug)]
pub(crate) struct WatchedDelivered {
    pub(crate) path: Box<str>,
    pub(crate) facts: DeliveredFacts,
}

impl DeliveredFacts {
    /// Returns the state of this claim's Secret. It must contain the user's key, if that is known, or the key that was
    /// created last.
    pub(crate) fn as_secret(&self, claim_uid: &str, record: Option<&Record>) -> Delivered {
        let known = record.and_then(|record| record.access_key_id.as_deref());
        let new = record.and_then(|record| record.new_key.as_ref()).map(|new| &*new.access_key_id);
        let keyless = record.is_some_and(|record| record.keyless);
        let recorded_key = if keyless {
            self.access_key_id.is_none()
        } else {
            [known, new].into_iter().flatten().any(|id| self.has_key(id))
        };
        match self.state(claim_uid, |_| known.is_none() && !keyless || recorded_key) {
            Delivered::Unowned if !recorded_key => Delivered::Unmanaged,
            state => state,
        }
    }

    /// Returns the state of this claim's ConfigMap, which should have these entries.
    pub(crate) fn as_config_map(&self, claim_uid: &str, wanted: &BTreeMap<String, String>) -> Delivered {
        let bytes = wanted.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        self.state(claim_uid, |sum| *checksum(bytes.collect()) == *sum)
    }

    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.access_key_id.as_deref() == Some(id)
    }

    fn state(&self, claim_uid: &str, is_wanted: impl FnOnce(&str) -> bool) -> Delivered {
        let (written, intact) = match &self.content {
            Content::Intact(sum) => (true, is_wanted(sum)),
            Content::Unmarked { complete } => (false, *complete),
            Content::Changed => (false, false),
        };
        match (self.owner.as_deref() == Some(claim_uid), intact) {
            (true, true) => Delivered::Intact,
            (true, false) => Delivered::Changed,
            (false, true) if self.unowned && written => Delivered::Unowned,
            (false, _) => Delivered::Unmanaged,
        }
    }
}

/// Returns the entries of the claim's ConfigMap.
pub(crate) fn config_map_entries(record: &Record, endpoint: &EndpointFacts) -> BTreeMap<String, String> {
    let mut data = record.data.clone();
    data.insert(BUCKET_NAME.to_owned(), endpoint.bucket.to_string());
    data.insert(BUCKET_HOST.to_owned(), endpoint.host.to_string());
    data.insert(BUCKET_PORT.to_owned(), endpoint.port.to_string());
    data.insert(BUCKET_REGION.to_owned(), endpoint.region.to_string());
    data.insert(BUCKET_SUBREGION.to_owned(), endpoint.sub_region.to_string());
    data
}

/// Returns the annotation for these entries: their names, and a hash of them.
pub(crate) fn checksum(entries: BTreeMap<&str, &[u8]>) -> String {
    let names: Vec<&str> = entries.keys().copied().collect();
    json!([names, hash_of(entries)]).to_string()
}

fn watched_delivered(
    metadata: &ObjectMeta,
    entries: &BTreeMap<&str, &[u8]>,
    complete: bool,
    access_key_id: Option<Box<str>>,
) -> Option<WatchedDelivered> {
    let path = format!("{}/{}", metadata.namespace.as_deref()?, metadata.name.as_deref()?).into();
    let content = match metadata.annotations.as_ref().and_then(|annotations| annotations.get(CHECKSUM)) {
        None => Content::Unmarked { complete },
        Some(sum) if is_sum_of(sum, entries) => Content::Intact(sum.as_str().into()),
        Some(_) => Content::Changed,
    };
    let owners = metadata.owner_references.iter().flatten();
    let unowned = owners.clone().next().is_none();
    let owner = owners.filter(|owner| owner.kind == "ObjectBucketClaim").map(|owner| owner.uid.as_str().into()).next();
    let finalizers = metadata.finalizers.clone().unwrap_or_default();
    let uid = metadata.uid.as_deref()?.into();
    let resource_version =
        metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default();
    let facts = DeliveredFacts { uid, resource_version, owner, unowned, finalizers, access_key_id, content };
    Some(WatchedDelivered { path, facts })
}

/// Returns the names of the entries that were written with this annotation; none if it is not such an annotation.
pub(crate) fn written_names(sum: &str) -> Vec<String> {
    serde_json::from_str::<(Vec<String>, String)>(sum).map(|(names, _)| names).unwrap_or_default()
}

/// Returns true if the entries are unchanged since they were written.
fn is_sum_of(sum: &str, entries: &BTreeMap<&str, &[u8]>) -> bool {
    let names = written_names(sum);
    let written = entries.iter().filter(|(name, _)| names.iter().any(|written| written == *name));
    checksum(written.map(|(name, value)| (*name, *value)).collect()) == sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: &[(&str, &str)], sum: Option<&str>) -> DeliveredFacts {
        let owner =
            json!([{"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "name": "c", "uid": "u"}]);
        owned(data, sum, &owner)
    }

    fn owned(data: &[(&str, &str)], sum: Option<&str>, owners: &serde_json::Value) -> DeliveredFacts {
        let text = json!({
            "metadata": {
                "namespace": "n", "name": "c", "uid": "s",
                "annotations": sum.map(|sum| json!({CHECKSUM: sum})),
                "ownerReferences": owners,
            },
        });
        let mut secret: Secret = serde_json::from_value(text).unwrap();
        let bytes = |value: &str| k8s_openapi::ByteString(value.as_bytes().to_vec());
        secret.data = Some(data.iter().map(|(name, value)| ((*name).to_owned(), bytes(value))).collect());
        secret.to_watched().unwrap().facts
    }

    fn record(access_key_id: &str) -> Record {
        Record { access_key_id: Some(access_key_id.to_owned()), ..Record::default() }
    }

    #[test]
    fn detects_edits_but_ignores_added_entries() {
        let data = [(AWS_ACCESS_KEY_ID, "id"), (AWS_SECRET_ACCESS_KEY, "secret")];
        let sum = checksum(data.iter().map(|(name, value)| (*name, value.as_bytes())).collect());
        let state = |data: &[(&str, &str)], sum| secret(data, sum).as_secret("u", Some(&record("id")));
        assert_eq!(state(&data, Some(&sum)), Delivered::Intact);
        let [id, key] = data;
        assert_eq!(state(&[id, key, ("mine", "x")], Some(&sum)), Delivered::Intact);
        assert_eq!(state(&[id, (key.0, "other")], Some(&sum)), Delivered::Changed);
        assert_eq!(state(&[id], Some(&sum)), Delivered::Changed);
        assert_eq!(state(&data, Some("nonsense")), Delivered::Changed);
        assert_eq!(secret(&data, Some(&sum)).as_secret("u", Some(&record("newer"))), Delivered::Changed);
        assert_eq!(secret(&data, Some(&sum)).as_secret("another", Some(&record("id"))), Delivered::Unmanaged);
    }

    #[test]
    fn identifies_a_restored_secret_by_checksum_and_key() {
        let data = [(AWS_ACCESS_KEY_ID, "id"), (AWS_SECRET_ACCESS_KEY, "secret")];
        let sum = checksum(data.iter().map(|(name, value)| (*name, value.as_bytes())).collect());
        let (none, pod) = (json!([]), json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}]));
        let state =
            |sum, owners: &_, key: Option<&str>| owned(&data, sum, owners).as_secret("u", key.map(record).as_ref());
        assert_eq!(state(Some(&sum), &none, Some("id")), Delivered::Unowned);
        assert_eq!(state(Some(&sum), &pod, Some("id")), Delivered::Unmanaged);
        assert_eq!(state(Some(&sum), &none, Some("other")), Delivered::Unmanaged);
        assert_eq!(state(Some(&sum), &none, None), Delivered::Unmanaged);
        assert_eq!(state(Some("nonsense"), &none, Some("id")), Delivered::Unmanaged);
        assert_eq!(state(None, &none, Some("id")), Delivered::Unmanaged);
    }

    #[test]
    fn the_secret_of_a_keyless_claim_contains_no_key() {
        let keyless = Record { keyless: true, ..Record::default() };
        let (empty, key) = (checksum(BTreeMap::new()), [(AWS_ACCESS_KEY_ID, "id"), (AWS_SECRET_ACCESS_KEY, "secret")]);
        let of_key = checksum(key.iter().map(|(name, value)| (*name, value.as_bytes())).collect());
        assert_eq!(secret(&[], Some(&empty)).as_secret("u", Some(&keyless)), Delivered::Intact);
        assert_eq!(secret(&key, Some(&of_key)).as_secret("u", Some(&keyless)), Delivered::Changed, "an old key");
        assert_eq!(secret(&key, Some(&empty)).as_secret("u", Some(&keyless)), Delivered::Changed, "a foreign key");
        assert_eq!(secret(&[], Some(&empty)).as_secret("u", Some(&record("id"))), Delivered::Changed);
        assert_eq!(owned(&[], Some(&empty), &json!([])).as_secret("u", Some(&keyless)), Delivered::Unowned);
    }

    #[test]
    fn accepts_the_secret_of_another_provisioner() {
        let data = [(AWS_ACCESS_KEY_ID, "id"), (AWS_SECRET_ACCESS_KEY, "secret")];
        assert_eq!(secret(&data, None).as_secret("u", None), Delivered::Intact);
        assert_eq!(secret(&[(AWS_ACCESS_KEY_ID, "")], None).as_secret("u", None), Delivered::Changed);
    }
}
