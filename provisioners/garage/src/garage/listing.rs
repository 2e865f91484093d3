//! Lists the buckets and keys of claims, by the names of the keys. A retained bucket no longer has a key of its claim,
//! and is not listed.

use std::collections::BTreeMap;
use std::error::Error;

use kube_provisioner::bucket::{Asset, AssetKind, Assets, ClaimName, MarkedCluster};

use crate::admin::{BucketInfo, Failure, Key};
use crate::claim::{KeyMark, parse_mark};
use crate::store::Store;

pub(super) async fn list(store: &Store, cluster: &str) -> Result<Assets, Box<dyn Error + Send + Sync>> {
    let (mut assets, mut claims) = (Assets::default(), BTreeMap::<_, Vec<Key>>::new());
    for key in store.admin.all_keys().await? {
        match parse_mark(&key) {
            Some(Ok(KeyMark { cluster, claim })) => {
                let ClaimName { namespace, name, uid } = claim;
                claims.entry((cluster, uid, namespace, name)).or_default().push(key);
            }
            Some(Err(foreign_key)) => assets.unread.push(foreign_key.to_string()),
            None => {}
        }
    }
    for ((of_cluster, uid, namespace, name), keys) in claims {
        let claim = ClaimName { namespace, name, uid };
        let asset = |kind, name: &str| {
            Asset::new(kind, name, claim.clone(), MarkedCluster::of(Some(of_cluster.as_str()), cluster))
        };
        match buckets_of(store, &keys).await? {
            Ok(buckets) => {
                assets.found.extend(buckets.iter().map(|name| asset(AssetKind::Bucket, name)));
                assets.found.extend(keys.iter().map(|key| asset(AssetKind::Account, &key.id)));
            }
            Err(unproven) => assets.unread.push(format!("the keys of {claim} are skipped: {unproven}")),
        }
    }
    Ok(assets)
}

/// Returns the names of the buckets that were created for the claim with these keys, or the reason why one of them may
/// belong to another owner.
async fn buckets_of(store: &Store, keys: &[Key]) -> Result<Result<Vec<String>, String>, Failure> {
    let mut names = Vec::new();
    for key in keys {
        // The claim's buckets are deleted before its keys.
        let Some(info) = store.admin.key(&key.id).await? else { continue };
        for bucket in info.buckets {
            let Some(live) = store.admin.bucket(&bucket.id).await? else { continue };
            if live.is_incomplete() {
                return Ok(Err(format!(
                    "the key {} may have created the bucket {}, which has no name: if it is unused, garage bucket delete removes it",
                    key.id, bucket.id
                )));
            }
            // Without a local alias, the key only has access to the bucket.
            let Some(name) = bucket.local_aliases.first() else { continue };
            match belongs_to_keys(&live, name, keys) {
                true if names.contains(name) => {}
                true => names.push(name.clone()),
                false => {
                    return Ok(Err(format!(
                        "the key {} has the name {name} for the bucket {}, which may not have been created for the claim",
                        key.id, bucket.id
                    )));
                }
            }
        }
    }
    Ok(Ok(names))
}

/// Returns whether the bucket was created for the claim with these keys. An administrator can give a claim's key a
/// local alias for any bucket. A bucket that was created for the claim has the same name as its global alias, unless
/// that alias is not added yet or was removed, and only keys of the claim have a local alias for it.
fn belongs_to_keys(bucket: &BucketInfo, name: &str, keys: &[Key]) -> bool {
    let is_its_name = bucket.global_aliases.is_empty() || bucket.global_aliases.iter().any(|alias| alias == name);
    let mut aliases = bucket.keys.iter().flat_map(|key| key.bucket_local_aliases.iter().map(|alias| (&key.id, alias)));
    is_its_name && aliases.all(|(id, alias)| alias == name && keys.iter().any(|key| key.id == *id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn recognizes_buckets_that_were_created_for_the_claim() {
        let keys = ["GK1", "GK2"].map(|id| Key { id: id.to_owned(), name: String::new(), expired: false });
        let belongs_to_keys = |global: &[&str], local: &[(&str, &[&str])]| {
            let keys_of = local.iter().map(|(id, aliases)| {
                json!({"accessKeyId": id, "name": "", "permissions": {"read": true, "write": true, "owner": false},
                    "bucketLocalAliases": aliases})
            });
            let bucket = json!({"id": "b-1", "globalAliases": global, "keys": keys_of.collect::<Vec<_>>(), "objects": 0,
                "quotas": {"maxSize": null, "maxObjects": null}});
            belongs_to_keys(&serde_json::from_value(bucket).unwrap(), "photos", &keys)
        };
        let own: (&str, &[&str]) = ("GK1", &["photos"]);
        assert!(belongs_to_keys(&["photos"], &[own]));
        assert!(belongs_to_keys(&["photos"], &[own, ("GK2", &["photos"]), ("granted", &[])]));
        assert!(belongs_to_keys(&["photos", "films"], &[own]));
        // The state after an interrupted attempt or deletion.
        assert!(belongs_to_keys(&[], &[own]));
        assert!(!belongs_to_keys(&["films"], &[own]));
        assert!(!belongs_to_keys(&["photos"], &[own, ("somebody", &["photos"])]));
        assert!(!belongs_to_keys(&[], &[own, ("somebody", &["films"])]));
        assert!(!belongs_to_keys(&["photos"], &[("GK1", &["photos", "films"])]));
    }
}
