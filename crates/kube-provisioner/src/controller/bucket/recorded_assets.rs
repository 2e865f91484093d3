//! The assets that the cluster's ObjectBuckets and claims of any provisioner represent, for the command `orphans`.

use std::collections::BTreeSet;

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Resource};
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use provisioner_runtime::watch::FromJson as _;

use super::facts::{BucketFacts, RecordState};
use super::partial::{WatchedBucket, bucket_facts};
use crate::bucket::{Account, Asset, AssetKind, ClaimName};

#[derive(Debug, Default)]
pub(crate) struct RecordedAssets {
    buckets: BTreeSet<String>,
    /// Names of users, and other values in the provisioners' state.
    names: BTreeSet<String>,
    /// The uids of claims that ObjectBuckets name.
    uids: BTreeSet<String>,
    /// The prefixes of the accounts of claims whose uids are missing in their ObjectBuckets.
    prefixes: BTreeSet<String>,
    /// The uids of the existing claims.
    claims: BTreeSet<String>,
    /// ObjectBuckets that cannot be read: each may represent any asset.
    pub(crate) unreadable: Vec<String>,
}

impl RecordedAssets {
    pub(crate) async fn read(client: &Client) -> kube::Result<Self> {
        let mut all = Self::default();
        // An ObjectBucket is written while its claim exists, so this order misses nothing.
        for claim in list::<ObjectBucketClaim>(client).await? {
            all.claims.extend(claim.metadata.uid);
        }
        for object in list::<ObjectBucket>(client).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let text = serde_json::to_string(&object).map_err(kube::Error::SerdeError)?;
            match WatchedBucket::from_json(&text).ok().and_then(|watched| bucket_facts(&watched)) {
                Some(bucket) => all.add(&bucket),
                None => all.unreadable.push(name),
            }
        }
        Ok(all)
    }

    fn add(&mut self, bucket: &BucketFacts) {
        if bucket.unreadable.is_some() || matches!(bucket.record, RecordState::Unreadable(_)) {
            self.unreadable.push(bucket.name.to_string());
        }
        let record = bucket.record();
        self.buckets.extend(Some(bucket.endpoint.bucket.to_string()).filter(|name| !name.is_empty()));
        self.names.extend(bucket.state.values().filter(|text| !text.is_empty()).cloned());
        self.uids.extend(record.and_then(|record| record.made_for_uid.clone()));
        let recorded = record.into_iter().flat_map(|record| [record.claim.clone(), record.owner.clone()]);
        for ClaimName { namespace, name, uid } in recorded.chain([bucket.reference.clone()]).flatten() {
            if uid.is_empty() {
                self.prefixes.insert(format!("obc-{namespace}-{name}-"));
            }
            self.uids.extend(Some(uid).filter(|uid| !uid.is_empty()));
        }
    }

    /// Returns true if an ObjectBucket represents this asset.
    pub(crate) fn names(&self, asset: &Asset) -> bool {
        let Account { name, claim, .. } = &asset.owner;
        self.uids.contains(&claim.uid)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
            || asset.kind == AssetKind::Bucket && self.buckets.contains(&asset.name)
            || [name, &asset.name].into_iter().any(|name| self.names.contains(name))
    }

    pub(crate) fn has_claim(&self, claim: &ClaimName) -> bool {
        self.claims.contains(&claim.uid)
    }
}

/// Lists all objects of a kind, without reading their fields.
async fn list<K: Resource<DynamicType = ()>>(client: &Client) -> kube::Result<Vec<DynamicObject>> {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    Ok(objects.list(&ListParams::default()).await?.items)
}
