//! Ownership of a claim's keys and bucket on Garage, which has no tags.
//!
//! Only an administrator can write the name of a key. The name of our keys contains the claim's uid and the cluster. A
//! key's ID begins with a digest of both, so the keys of a claim can be listed without the keys of other claims. A key
//! also has local aliases for buckets, which a tenant's key cannot change, because it can neither create nor own
//! buckets. Therefore, a bucket belongs to a claim if one of the claim's keys has the bucket's name as a local alias
//! for it. Garage writes that alias together with the bucket, before other users can find the bucket.
//!
//! If an administrator has deleted these keys, the ID in the ObjectBucket identifies the bucket, unless the bucket has
//! another claim's mark now.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{BackendConfigError, ClaimName};
use s3_client::Credentials;
use sha2::{Digest, Sha256};

use crate::admin::{BucketInfo, BucketInfoKey, Failure, Key};
use crate::store::Store;

/// The key of the bucket's ID in an ObjectBucket.
pub(crate) const BUCKET_ID: &str = "bucketId";

const MARK: &str = "kube-provisioner cluster=";
/// The suffix of the name of a key that is only used to empty a bucket.
const FOR_DELETION: &str = " for-deletion";

/// The names that identify a claim's keys. Only the provisioner writes them.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The prefix of the names of all its keys.
    mark: String,
    /// The name of the tenant's keys.
    key_name: String,
    /// The prefix of the IDs of all its keys.
    id_prefix: String,
}

/// The contents of the name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyMark {
    pub(crate) cluster: String,
    pub(crate) claim: ClaimName,
}

/// The error for a key whose name has a claim's mark, although it was not created for the claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key {0} is skipped: its name marks it as a claim's key, but its id does not match that claim")]
pub(crate) struct ForeignKeyError(String);

/// Returns the claim that the key was created for, or `None` if its name does not have a claim's mark.
pub(crate) fn parse_mark(key: &Key) -> Option<Result<KeyMark, ForeignKeyError>> {
    let text = key.name.strip_prefix(MARK)?;
    let text = text.strip_suffix(FOR_DELETION).unwrap_or(text);
    let read = || {
        // A cluster ID may be any text. The other parts do not contain spaces.
        let (text, claim) = text.rsplit_once(" claim=")?;
        let (cluster, uid) = text.rsplit_once(" uid=")?;
        let (namespace, name) = claim.split_once('/').unwrap_or(("", claim));
        let claim = ClaimName { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        let known = Claim::of(&claim, cluster).ok()?;
        key.id.starts_with(&known.id_prefix).then(|| KeyMark { cluster: cluster.to_owned(), claim })
    };
    Some(read().ok_or_else(|| ForeignKeyError(key.id.clone())))
}

impl Claim {
    pub(crate) fn of(name: &ClaimName, cluster_id: &str) -> Result<Self, BackendConfigError> {
        if name.uid.is_empty() {
            return Err(BackendConfigError::new(
                "the ObjectBucket does not name its claim's uid, so nothing shows which keys are the claim's",
            ));
        }
        let mark = format!("{MARK}{cluster_id} uid={} ", name.uid);
        let digest = hex(&Sha256::digest(mark.as_bytes())[..8]);
        // The IDs have Garage's own format: 12 bytes, of which the last four are random.
        Ok(Self { key_name: format!("{mark}claim={name}"), id_prefix: format!("GK{digest}"), mark })
    }

    /// Returns the claim's keys, and separately its keys for deletion.
    pub(crate) async fn keys(&self, store: &Store) -> Result<(Vec<Key>, Vec<Key>), Failure> {
        let mut keys = store.admin.keys(&self.id_prefix).await?;
        keys.retain(|key| key.name.starts_with(&self.mark));
        Ok(keys.into_iter().partition(|key| !key.name.ends_with(FOR_DELETION)))
    }

    /// Creates a key without permissions.
    pub(crate) async fn make_key(&self, store: &Store) -> Result<Credentials, Failure> {
        self.import(store, &self.key_name).await
    }

    /// Creates a key that is only used to empty a bucket, and is never delivered.
    pub(crate) async fn make_key_for_deletion(&self, store: &Store) -> Result<Credentials, Failure> {
        self.import(store, &format!("{}{FOR_DELETION}", self.key_name)).await
    }

    async fn import(&self, store: &Store, name: &str) -> Result<Credentials, Failure> {
        let random = |bytes: &mut [u8]| {
            let cannot = |error: getrandom::Error| {
                Failure::of_s3("create a key".to_owned(), s3_client::Error::Request(error.to_string()))
            };
            getrandom::fill(bytes).map(|()| hex(bytes)).map_err(cannot)
        };
        let id = format!("{}{}", self.id_prefix, random(&mut [0; 4])?);
        let key = Credentials::new(id, random(&mut [0; 32])?);
        store.admin.import_key(&key, name).await?;
        Ok(key)
    }

    /// Returns whether the bucket with this name was created for this claim.
    pub(crate) fn owns(&self, bucket: &BucketInfo, name: &str, state: &BTreeMap<String, String>) -> bool {
        let has_name = |aliases: &[String]| aliases.iter().any(|alias| alias == name);
        let makers = bucket.keys.iter().filter(|key| has_name(&key.bucket_local_aliases) && key.name.starts_with(MARK));
        // A cluster ID may be any text, and may even contain the mark of another cluster's claim.
        let is_ours = |key: &BucketInfoKey| key.id.starts_with(&self.id_prefix) && key.name.starts_with(&self.mark);
        let makers: Vec<bool> = makers.map(is_ours).collect();
        if makers.is_empty() { state.get(BUCKET_ID) == Some(&bucket.id) } else { makers.contains(&true) }
    }

    /// Returns the claim's bucket, even if another bucket has its global alias. `named` is the bucket with that alias.
    pub(crate) async fn bucket(
        &self,
        store: &Store,
        name: &str,
        named: Option<&BucketInfo>,
        state: &BTreeMap<String, String>,
    ) -> Result<Option<BucketInfo>, Failure> {
        if let Some(named) = named.filter(|named| self.owns(named, name, state)) {
            return Ok(Some(named.clone()));
        }
        let recorded = match state.get(BUCKET_ID) {
            Some(id) => store.admin.bucket(id).await?.filter(|bucket| self.owns(bucket, name, state)),
            None => None,
        };
        if recorded.is_some() {
            return Ok(recorded);
        }
        let (keys, for_deletion) = self.keys(store).await?;
        for key in keys.iter().chain(&for_deletion) {
            let Some(info) = store.admin.key(&key.id).await? else { continue };
            for bucket in info.buckets {
                let Some(mut live) = store.admin.bucket(&bucket.id).await? else { continue };
                if live.is_incomplete() {
                    live = store.admin.add_local_alias(&live.id, &key.id, name).await?;
                }
                if self.owns(&live, name, state) {
                    return Ok(Some(live));
                }
            }
        }
        Ok(None)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "00000000-0000-4000-8000-000000000001";

    fn claim(uid: &str, cluster: &str) -> Claim {
        let name = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: uid.into() };
        Claim::of(&name, cluster).unwrap()
    }

    fn bucket(keys: &[(&str, &[&str])]) -> BucketInfo {
        let permissions = json!({"read": true, "write": true, "owner": false});
        let id = |name: &str| match name.rsplit_once("claim=") {
            Some((mark, _)) => format!("GK{}00000000", hex(&Sha256::digest(mark.as_bytes())[..8])),
            None => "GK".to_owned(),
        };
        let keys = keys.iter().map(|(name, aliases)| {
            json!({"accessKeyId": id(name), "name": name, "permissions": permissions, "bucketLocalAliases": aliases})
        });
        let keys: Vec<_> = keys.collect();
        let quotas = json!({"maxSize": null, "maxObjects": null});
        serde_json::from_value(
            json!({"id": "b-1", "globalAliases": ["photos"], "keys": keys, "objects": 0, "quotas": quotas}),
        )
        .unwrap()
    }

    #[test]
    fn key_ids_identify_claim_and_cluster() {
        let of = |uid: &str, cluster: &str| claim(uid, cluster).id_prefix;
        assert_eq!(of(UID, "a").len(), 18);
        assert_ne!(of(UID, "a"), of(UID, "b"));
        assert_ne!(of(UID, "a"), of("00000000-0000-4000-8000-000000000002", "a"));
        assert_eq!(claim(UID, "a").key_name, format!("kube-provisioner cluster=a uid={UID} claim=shop/photos"));
        let nameless = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: String::new() };
        assert!(Claim::of(&nameless, "a").is_err());
    }

    #[test]
    fn reads_the_claim_from_the_key_name() {
        let shop = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: UID.into() };
        let cosi = ClaimName { namespace: String::new(), name: "bc-1".into(), uid: "b.bc-1".into() };
        let key = |id: &str, name: &str| Key { id: id.to_owned(), name: name.to_owned(), expired: false };
        for (claim, cluster) in [(shop.clone(), "a"), (shop, "a uid=b claim=c/d"), (cosi, "a")] {
            let Claim { key_name, id_prefix, .. } = Claim::of(&claim, cluster).unwrap();
            let id = format!("{id_prefix}00000000");
            let expected = KeyMark { cluster: cluster.to_owned(), claim };
            for name in [&key_name, &format!("{key_name}{FOR_DELETION}")] {
                assert_eq!(parse_mark(&key(&id, name)), Some(Ok(expected.clone())), "{name}");
            }
            // Another key has the same name, or the same ID.
            assert_eq!(parse_mark(&key("GK0", &key_name)), Some(Err(ForeignKeyError("GK0".to_owned()))));
            assert_eq!(parse_mark(&key(&id, "somebody")), None);
        }
        assert_eq!(parse_mark(&key("GK0", MARK)), Some(Err(ForeignKeyError("GK0".to_owned()))));
    }

    #[test]
    fn marks_and_key_ids_are_unique() {
        let uids = [UID, "00000000-0000-4000-8000-000000000002", "b.photos", "a.photos", "b.photos-2"];
        let clusters = ["a", "b", "a uid=b.photos claim=x", "a uid=b.photos"];
        let claims: Vec<Claim> = uids.iter().flat_map(|uid| clusters.map(|cluster| claim(uid, cluster))).collect();
        for (at, one) in claims.iter().enumerate() {
            let bucket = bucket(&[(&one.key_name, &["photos"])]);
            for (other_at, other) in claims.iter().enumerate() {
                assert_eq!(one.id_prefix == other.id_prefix, at == other_at, "{one:?} {other:?}");
                assert_eq!(other.owns(&bucket, "photos", &BTreeMap::new()), at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn local_aliases_of_claim_keys_prove_ownership() {
        let ours = claim(UID, "a");
        let (own, retired) = (ours.key_name.as_str(), format!("{}{FOR_DELETION}", ours.key_name));
        let (elsewhere, other) = (claim(UID, "b").key_name, claim("u-2", "a").key_name);
        let state = |id: &str| BTreeMap::from([(BUCKET_ID.to_owned(), id.to_owned())]);
        for (keys, state, expected) in [
            (vec![(own, &["photos"][..])], BTreeMap::new(), true),
            (vec![(&retired, &["photos"])], BTreeMap::new(), true),
            (vec![(&other, &["photos"]), (own, &["photos"])], BTreeMap::new(), true),
            // An administrator has granted the key access.
            (vec![(own, &[])], BTreeMap::new(), false),
            (vec![(own, &["other-name"])], BTreeMap::new(), false),
            (vec![("somebody", &["photos"])], BTreeMap::new(), false),
            (vec![(&other, &["photos"])], BTreeMap::new(), false),
            (vec![], BTreeMap::new(), false),
            // The keys were deleted manually.
            (vec![], state("b-1"), true),
            (vec![], state("b-2"), false),
            (vec![("somebody", &["photos"])], state("b-1"), true),
            // The ObjectBucket is a copy in another cluster.
            (vec![(&elsewhere, &["photos"])], state("b-1"), false),
        ] {
            assert_eq!(ours.owns(&bucket(&keys), "photos", &state), expected, "{keys:?} {state:?}");
        }
    }
}
