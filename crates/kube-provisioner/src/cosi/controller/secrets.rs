//! The Secrets of a BucketAccess: owner, entries, and a checksum that detects edits.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::super::v1alpha2::region;
use super::objects::{API_VERSION, AccessFacts, S3};
use crate::bucket::{Credentials, Endpoint};
use crate::controller::shared::checksum::{CHECKSUM, hash_of};
use crate::protocol::COSI_DRIVER;

/// All entries that the controller writes. v1alpha2 has not been released, and its names have changed. The AWS SDKs
/// recognise the current names. Pods written for the earlier names read those that begin with `COSI_S3_`.
const ENTRIES: [&str; 13] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_S3_ADDRESSING_STYLE",
    "AWS_SECRET_ACCESS_KEY",
    "BUCKET_NAME",
    "COSI_PROTOCOL",
    "COSI_S3_ACCESS_KEY_ID",
    "COSI_S3_ACCESS_SECRET_KEY",
    "COSI_S3_ADDRESSING_STYLE",
    "COSI_S3_BUCKET_ID",
    "COSI_S3_ENDPOINT",
    "COSI_S3_REGION",
];

pub(super) type Entries = BTreeMap<&'static str, String>;

/// The facts about a Secret. Its data is not kept.
#[derive(Clone, Debug)]
pub(super) struct SecretFacts {
    pub(super) uid: String,
    pub(super) version: String,
    /// Name and uid of the BucketAccess that controls it.
    pub(super) owner: Option<(Arc<str>, String)>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
    /// True if the Secret is unchanged since it was written, and has the label that our watch selects.
    intact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SecretState {
    Absent,
    /// The Secret belongs to another owner.
    Foreign,
    /// The Secret is being deleted, but a finalizer still holds it.
    Deleting,
    /// The Secret is empty, or was edited.
    Changed,
    Intact,
}

impl SecretFacts {
    pub(super) fn of(secret: &Secret, driver: &str) -> Self {
        let owner = secret.owner_references().iter().find(|owner| owner.controller == Some(true));
        let owner = owner.filter(|owner| owner.kind == "BucketAccess" && owner.api_version == API_VERSION);
        let is_labelled = secret.labels().get(COSI_DRIVER).is_some_and(|label| label == driver);
        let data = secret.data.as_ref();
        let entry = |name: &'static str| Some((name, &*data?.get(name)?.0));
        let sum = secret.annotations().get(CHECKSUM);
        Self {
            uid: secret.uid().unwrap_or_default(),
            version: secret.resource_version().unwrap_or_default(),
            owner: owner.map(|owner| (owner.name.as_str().into(), owner.uid.clone())),
            deleting: secret.metadata.deletion_timestamp.is_some(),
            finalizers: secret.finalizers().to_vec(),
            intact: is_labelled && sum == Some(&hash_of(ENTRIES.into_iter().filter_map(entry))),
        }
    }

    pub(super) fn state(&self, access: &AccessFacts) -> SecretState {
        match &self.owner {
            Some((_, uid)) if **uid == *access.object.uid => match (self.deleting, self.intact) {
                (true, _) => SecretState::Deleting,
                (false, true) => SecretState::Intact,
                (false, false) => SecretState::Changed,
            },
            _ => SecretState::Foreign,
        }
    }
}

/// Returns the entries that are not secret, which the status of a Bucket also contains.
pub(super) fn bucket_info(id: &str, endpoint: &Endpoint) -> Entries {
    let (url, region) = (endpoint.url(), region(endpoint));
    [
        (["BUCKET_NAME", "COSI_S3_BUCKET_ID"], id.to_owned()),
        (["AWS_ENDPOINT_URL", "COSI_S3_ENDPOINT"], url),
        (["AWS_DEFAULT_REGION", "COSI_S3_REGION"], region),
        // Every backend accepts the bucket's name in the path.
        (["AWS_S3_ADDRESSING_STYLE", "COSI_S3_ADDRESSING_STYLE"], "path".to_owned()),
    ]
    .into_iter()
    .flat_map(|(names, value)| names.map(|name| (name, value.clone())))
    .collect()
}

pub(super) fn entries(id: &str, endpoint: &Endpoint, key: &Credentials) -> Entries {
    let (id_of_key, secret) = (&key.access_key_id, &key.secret_access_key);
    let mut entries = bucket_info(id, endpoint);
    entries.extend([
        ("COSI_PROTOCOL", S3.to_owned()),
        ("AWS_ACCESS_KEY_ID", id_of_key.clone()),
        ("COSI_S3_ACCESS_KEY_ID", id_of_key.clone()),
        ("AWS_SECRET_ACCESS_KEY", secret.clone()),
        ("COSI_S3_ACCESS_SECRET_KEY", secret.clone()),
    ]);
    entries
}

/// Returns a Secret without entries, which reserves its name for the access. It has no finalizer: a deleted Secret is
/// recreated, and a namespace can be deleted at any time.
pub(super) fn reserved(access: &AccessFacts, name: &str, driver: &str) -> Value {
    let object = &access.object;
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "namespace": &*object.namespace, "name": name,
            "labels": {COSI_DRIVER: driver},
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": "BucketAccess", "name": &*object.name, "uid": &*object.uid,
                "controller": true,
            }],
        },
    })
}

/// Returns the merge patch that writes entries into this version of a Secret. Foreign entries are kept.
pub(super) fn patch(secret: &SecretFacts, entries: &Entries, driver: &str) -> Value {
    let data: BTreeMap<_, _> =
        entries.iter().map(|(name, value)| (*name, ByteString(value.clone().into_bytes()))).collect();
    let sum = hash_of(entries.iter().map(|(name, value)| (*name, value.as_bytes())));
    json!({
        "metadata": {
            "uid": secret.uid, "resourceVersion": secret.version,
            "labels": {COSI_DRIVER: driver}, "annotations": {CHECKSUM: sum},
        },
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Entries {
        let endpoint = Endpoint::https("store.example.com").region("eu");
        entries("bc-1", &endpoint, &Credentials::new("id", "key"))
    }

    fn secret(change: impl FnOnce(&mut Value)) -> SecretFacts {
        let blank = SecretFacts::of(&Secret::default(), "s3.example.com");
        let mut object = patch(&blank, &written(), "s3.example.com");
        change(&mut object);
        SecretFacts::of(&serde_json::from_value(object).unwrap(), "s3.example.com")
    }

    #[test]
    fn a_secret_has_all_entries() {
        let names: Vec<_> = written().into_keys().collect();
        assert_eq!(names, ENTRIES);
        assert_eq!(written()["AWS_ENDPOINT_URL"], "https://store.example.com");
        assert_eq!(written()["BUCKET_NAME"], "bc-1");
        assert!(bucket_info("bc-1", &Endpoint::https("x")).keys().all(|name| !name.contains("KEY")));
    }

    #[test]
    fn patches_only_the_version_that_was_read() {
        let mut read = SecretFacts::of(&Secret::default(), "s3.example.com");
        read.version = "7".to_owned();
        assert_eq!(patch(&read, &written(), "s3.example.com")["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn detects_edits_but_ignores_added_entries() {
        assert!(secret(|_| {}).intact);
        assert!(secret(|secret| secret["data"]["mine"] = json!("eA==")).intact);
        assert!(!secret(|secret| secret["data"]["BUCKET_NAME"] = json!("eA==")).intact);
        assert!(!secret(|secret| drop(secret["data"].as_object_mut().unwrap().remove("AWS_DEFAULT_REGION"))).intact);
        assert!(!secret(|secret| secret["metadata"]["labels"] = json!({})).intact);
        assert!(!secret(|secret| secret["metadata"]["annotations"] = json!({})).intact);
        assert!(!secret(|secret| secret["data"] = json!({})).intact);
    }
}
