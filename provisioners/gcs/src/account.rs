//! Names of the claims' service accounts, and the labels that name a bucket's owner.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{ClaimName, MarkedCluster, Owner};
use ring::digest::{SHA256, digest};
use serde_json::Value;

/// The label that names a bucket's owner.
pub(crate) const CLAIM_UID: &str = "objectbucketclaim-uid";
/// Prefix of the descriptions of service accounts that were created for claims.
const DESCRIPTION: &str = "gcs-provisioner: ObjectBucketClaim ";
/// The label that names the claim's cluster. Buckets of earlier releases lack it.
const CLUSTER: &str = "objectbucketclaim-cluster";

/// Prefix of the service account ids.
const PREFIX: &str = "obc-";

/// Returns the service account id for an account of this name. It is deterministic and has 30 characters, Google's
/// maximum.
pub(crate) fn account_id(name: &str) -> String {
    format!("{PREFIX}{}", hex(name, 26))
}

/// Returns true if the id in this address has the form of the ids that [`account_id`] returns.
pub(crate) fn is_of_a_claim(email: &str) -> bool {
    let id = email.split_once('@').and_then(|(id, _)| id.strip_prefix(PREFIX));
    id.is_some_and(|id| id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the email address of a project's service account.
pub(crate) fn email(id: &str, project: &str) -> String {
    // The id of a domain-scoped project is `domain:project`.
    let project = match project.split_once(':') {
        Some((domain, project)) => format!("{project}.{domain}"),
        None => project.to_owned(),
    };
    format!("{id}@{project}.iam.gserviceaccount.com")
}

/// Returns the description of a service account that is created for a claim. It has at most 256 bytes.
pub(crate) fn description(claim: &ClaimName, cluster: &str) -> String {
    format!("{} of the cluster {cluster}", former_description(claim))
}

/// Returns true if a service account with this description was created for the claim. Earlier releases did not name the
/// cluster.
pub(crate) fn describes(description: &str, claim: &ClaimName, cluster: &str) -> bool {
    let former = former_description(claim);
    !claim.uid.is_empty() && (description == former || description == self::description(claim, cluster))
}

/// Parses the description of a service account into the claim's uid and, if it is named, the cluster.
pub(crate) fn parse_description(description: &str) -> Option<(&str, Option<&str>)> {
    let rest = description.strip_prefix(DESCRIPTION)?;
    match rest.split_once(" of the cluster ") {
        Some((uid, cluster)) => Some((uid, Some(cluster))),
        None => Some((rest, None)),
    }
}

/// Parses a bucket's labels into its claim and cluster. The names are escaped as by [`label_value`].
pub(crate) fn parse_labels(bucket: &Value, cluster: &str) -> Option<(ClaimName, MarkedCluster)> {
    let label = |key: &str| bucket["labels"][key].as_str();
    let text = |key: &str| label(key).unwrap_or_default().to_owned();
    let uid = label(CLAIM_UID)?.to_owned();
    let claim = ClaimName { namespace: text("objectbucketclaim-namespace"), name: text("objectbucketclaim-name"), uid };
    Some((claim, MarkedCluster::of(label(CLUSTER), &cluster_label(cluster))))
}

fn former_description(claim: &ClaimName) -> String {
    format!("{DESCRIPTION}{}", claim.uid)
}

/// Returns the display name of a claim's service account. It has at most 100 bytes, all ASCII.
pub(crate) fn display_name(claim: &ClaimName) -> String {
    claim.to_string().chars().take(100).collect()
}

/// Returns the labels of a claim's bucket, including the labels that class and claim request.
pub(crate) fn labels(claim: &ClaimName, cluster: &str, asked: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [
        (CLAIM_UID, uid_label(&claim.uid)),
        (CLUSTER, cluster_label(cluster)),
        ("objectbucketclaim-name", label_value(&claim.name)),
        ("objectbucketclaim-namespace", label_value(&claim.namespace)),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value));
    asked.into_iter().chain(own).collect()
}

/// Returns the bucket's owner from the view of a claim in this cluster. Labels are trustworthy: writing them needs
/// permission to update the bucket, which claims' accounts lack.
pub(crate) fn owner(bucket: &Value, claim: &ClaimName, cluster: &str) -> Owner {
    let labels = &bucket["labels"];
    let is_here = labels[CLUSTER].as_str().is_none_or(|label| label == cluster_label(cluster));
    match labels[CLAIM_UID].as_str() {
        Some(uid) if !claim.uid.is_empty() && uid == uid_label(&claim.uid) && is_here => Owner::Claim,
        Some(_) => Owner::Other,
        None => Owner::Unknown,
    }
}

/// Returns true if a bucket whose owner is unknown may be a COSI bucket that has lost the label of its owner. COSI
/// stores no state, which would show that an attempt has succeeded.
pub(crate) fn may_have_lost_a_label(bucket: &Value, claim: &ClaimName, cluster: &str) -> bool {
    claim.namespace.is_empty() && bucket["labels"][CLUSTER] == cluster_label(cluster)
}

/// Returns a unique label value for the uid. A claim's uid is a valid label value. The uid of a COSI bucket has a dot
/// after its first letter, which becomes `_`. Any other uid is hashed.
pub(crate) fn uid_label(uid: &str) -> String {
    let is_plain = |text: &str| label_value(text) == text && !text.contains('_');
    let label = label_value(uid);
    let of_cosi =
        || uid.split_once('.').is_some_and(|(kind, name)| label.len() == uid.len() && is_plain(kind) && is_plain(name));
    if is_plain(uid) || of_cosi() { label } else { format!("sha256_{}", hex(uid, 40)) }
}

/// Returns a unique label value for the cluster's id: the id itself if it is valid, or else a hash.
fn cluster_label(cluster: &str) -> String {
    match label_value(cluster) {
        label if label == cluster => label,
        _ => format!("sha256-{}", hex(cluster, 40)),
    }
}

fn hex(text: &str, length: usize) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let mut hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(length);
    hex
}

/// Converts a text to a label value: at most 63 lower case letters, digits, `_` and `-`.
pub(crate) fn label_value(text: &str) -> String {
    let allowed = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || letter == '-' => letter,
        _ => '_',
    };
    text.chars().map(allowed).take(63).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube_provisioner::bucket::Account;
    use serde_json::json;

    use super::*;

    fn claim(name: &str, uid: &str) -> ClaimName {
        ClaimName { namespace: "shop".into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn ids_and_descriptions_fit_the_limits_of_google() {
        let id = account_id("obc-shop-photos-u-1");
        assert_eq!(id, account_id("obc-shop-photos-u-1"));
        assert_ne!(id, account_id("obc-shop-photos-u-2"));
        assert!(
            id.len() == 30 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        );
        assert_eq!(email("a", "p"), "a@p.iam.gserviceaccount.com");
        assert_eq!(email("a", "example.com:p"), "a@p.example.com.iam.gserviceaccount.com");
        let long = claim(&"n".repeat(253), &"u".repeat(36));
        assert!(description(&long, &"c".repeat(63)).len() <= 256);
        assert_eq!(display_name(&claim(&"n".repeat(253), "u")).len(), 100);
    }

    #[test]
    fn determines_the_owner_from_labels() {
        let claim = claim("photos.v2", "u-1");
        let labels = labels(&claim, "c-1", BTreeMap::from([("team".into(), "a".into())]));
        assert_eq!(labels["objectbucketclaim-name"], "photos_v2");
        let bucket = json!({ "labels": labels });
        assert_eq!(owner(&bucket, &claim, "c-1"), Owner::Claim);
        assert_eq!(owner(&bucket, &claim, "c-2"), Owner::Other);
        assert_eq!(owner(&bucket, &ClaimName { uid: "u-2".into(), ..claim.clone() }, "c-1"), Owner::Other);
        assert_eq!(owner(&bucket, &ClaimName { uid: String::new(), ..claim.clone() }, "c-1"), Owner::Other);
        assert_eq!(owner(&json!({}), &claim, "c-1"), Owner::Unknown);
        let former = json!({"labels": {CLAIM_UID: "u-1"}});
        assert_eq!(owner(&former, &claim, "c-1"), Owner::Claim);
        // Label values cannot contain capital letters or dots.
        let labels = ["Shop.EU", "shop.eu", "shop_eu", &"s".repeat(63)].map(cluster_label);
        assert!(labels.iter().all(|label| label_value(label) == *label), "{labels:?}");
        assert_eq!(BTreeSet::from(labels).len(), 4);
    }

    #[test]
    fn account_ids_and_labels_are_unique() {
        let (long, uid) = ("n".repeat(63), "00000000-0000-4000-8000-000000000001");
        let names = ["a", "a-b", "a.b", "a_b", "A-B", "photos.v2", "photos_v2", &long, &format!("{long}n"), uid];
        let of_cosi = names.iter().flat_map(|name| [("bucket", "b", name), ("access", "a", name)]);
        let mut accounts: Vec<Account> = of_cosi
            .map(|(kind, short, name)| {
                let claim =
                    ClaimName { namespace: String::new(), name: (*name).into(), uid: format!("{short}.{name}") };
                let mut account = Account::of(claim);
                account.name = format!("obc-{kind}.{name}");
                account
            })
            .collect();
        for (number, namespace) in names.iter().enumerate() {
            for (other, name) in names.iter().enumerate() {
                let uid = format!("00000000-0000-4000-8000-{number:06}{other:06}");
                accounts.push(Account::of(ClaimName { namespace: (*namespace).into(), name: (*name).into(), uid }));
            }
        }
        let of = |text: &dyn Fn(&Account) -> String| accounts.iter().map(text).collect::<BTreeSet<_>>().len();
        assert_eq!(of(&|account| account_id(&account.name)), accounts.len());
        assert_eq!(of(&|account| uid_label(&account.claim.uid)), accounts.len());
        assert_eq!(of(&|account| description(&account.claim, "c")), accounts.len());
        assert!(
            accounts.iter().all(|account| label_value(&uid_label(&account.claim.uid)) == uid_label(&account.claim.uid))
        );
        assert_eq!(uid_label(uid), uid);
        assert_eq!(uid_label(&format!("b.bc-{uid}")), format!("b_bc-{uid}"), "the label of earlier versions");
    }

    /// The uids have the form that the library derives from COSI names.
    #[test]
    fn accounts_of_claims_and_of_cosi_never_collide() {
        let cosi = |uid: &str| ClaimName { namespace: String::new(), name: "photos".into(), uid: uid.into() };
        let claims = [cosi("b.photos"), cosi("a.photos"), claim("photos", "photos"), claim("photos", "u-1")];
        for (at, one) in claims.iter().enumerate() {
            let bucket = json!({ "labels": labels(one, "c-1", BTreeMap::new()) });
            for (other_at, other) in claims.iter().enumerate() {
                assert_eq!(owner(&bucket, other, "c-1") == Owner::Claim, at == other_at, "{one:?} {other:?}");
                assert_eq!(describes(&description(one, "c-1"), other, "c-1"), at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn recognizes_the_description_of_the_claims_account() {
        let claim = claim("photos", "u-1");
        for (text, ours) in [
            ("gcs-provisioner: ObjectBucketClaim u-1 of the cluster c-1", true),
            ("gcs-provisioner: ObjectBucketClaim u-1", true),
            ("gcs-provisioner: ObjectBucketClaim u-1 of the cluster c-2", false),
            ("gcs-provisioner: ObjectBucketClaim u-2 of the cluster c-1", false),
            ("", false),
        ] {
            assert_eq!(describes(text, &claim, "c-1"), ours, "{text}");
        }
        assert!(!describes("gcs-provisioner: ObjectBucketClaim ", &ClaimName { uid: String::new(), ..claim }, "c-1"));
    }
}
