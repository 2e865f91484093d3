//! Names: the service account of a claim, and the labels that say whose a bucket is.

use std::collections::BTreeMap;

use kube_provisioner::bucket::ClaimName;
use ring::digest::{SHA256, digest};
use serde_json::Value;

/// The label that tells whose a bucket is.
pub(crate) const CLAIM_UID: &str = "objectbucketclaim-uid";

/// The id of the service account of a claim: always the same, of 30 characters, which is what Google allows.
pub(crate) fn account_id(claim: &ClaimName) -> String {
    let hash = digest(&SHA256, claim.user().as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("obc-{}", &hex[..26])
}

/// The address of a project's service account.
pub(crate) fn email(id: &str, project: &str) -> String {
    // A project of a domain is `domain:project`.
    let project = match project.split_once(':') {
        Some((domain, project)) => format!("{project}.{domain}"),
        None => project.to_owned(),
    };
    format!("{id}@{project}.iam.gserviceaccount.com")
}

/// What a service account says of itself that was made for a claim. At most 256 bytes.
pub(crate) fn description(claim: &ClaimName) -> String {
    format!("gcs-provisioner: ObjectBucketClaim {}", claim.uid)
}

/// What is shown of it. At most 100 bytes, which are all ASCII.
pub(crate) fn display_name(claim: &ClaimName) -> String {
    claim.to_string().chars().take(100).collect()
}

/// The labels of a claim's bucket, with those of its class.
pub(crate) fn labels(claim: &ClaimName, of_class: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [
        (CLAIM_UID, claim.uid.as_str()),
        ("objectbucketclaim-name", &claim.name),
        ("objectbucketclaim-namespace", &claim.namespace),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), label_value(value)));
    of_class.clone().into_iter().chain(own).collect()
}

/// Whose a bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Claim,
    Other,
    /// It does not tell.
    Unknown,
}

/// Whose this bucket is, for a claim.
pub(crate) fn owner(bucket: &Value, claim: &ClaimName) -> Owner {
    match bucket["labels"][CLAIM_UID].as_str() {
        Some(uid) if !claim.uid.is_empty() && uid == label_value(&claim.uid) => Owner::Claim,
        Some(_) => Owner::Other,
        None => Owner::Unknown,
    }
}

/// A text as labels allow it: lower case letters, digits, `_` and `-`, at most 63.
pub(crate) fn label_value(text: &str) -> String {
    let allowed = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || letter == '-' => letter,
        _ => '_',
    };
    text.chars().map(allowed).take(63).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, uid: &str) -> ClaimName {
        ClaimName { namespace: "shop".into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn ids_are_of_the_claim_alone_and_short_enough() {
        let id = account_id(&claim("photos", "u-1"));
        assert_eq!(id, account_id(&claim("photos", "u-1")));
        assert_ne!(id, account_id(&claim("photos", "u-2")));
        assert!(
            id.len() == 30 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        );
        assert_eq!(email("a", "p"), "a@p.iam.gserviceaccount.com");
        assert_eq!(email("a", "example.com:p"), "a@p.example.com.iam.gserviceaccount.com");
        assert!(description(&claim(&"n".repeat(253), &"u".repeat(36))).len() <= 256);
        assert_eq!(display_name(&claim(&"n".repeat(253), "u")).len(), 100);
    }

    #[test]
    fn labels_tell_whose_a_bucket_is() {
        let claim = claim("photos.v2", "U-1");
        let labels = labels(&claim, &BTreeMap::from([("team".into(), "a".into())]));
        assert_eq!(labels["objectbucketclaim-name"], "photos_v2");
        let bucket = json!({ "labels": labels });
        assert_eq!(owner(&bucket, &claim), Owner::Claim);
        assert_eq!(owner(&bucket, &ClaimName { uid: "u-2".into(), ..claim.clone() }), Owner::Other);
        assert_eq!(owner(&bucket, &ClaimName { uid: String::new(), ..claim.clone() }), Owner::Other);
        assert_eq!(owner(&json!({}), &claim), Owner::Unknown);
    }
}
