//! Deletes buckets and keys that are no longer needed.

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, EmptyingTimeLimit, GrantedAccount, ProvisionedBucket};

use super::{Garage, delete_keys};
use crate::admin::{BucketInfo, Failure, Permissions};
use crate::claim::Claim;
use crate::parameters::Parameters;
use crate::store::Store;

impl Garage {
    /// Deletes the bucket if it belongs to the claim, and then the claim's keys.
    pub(super) async fn remove_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let record = bucket.record()?;
        let (store, claim) = self.recorded(&record)?;
        let policy = record.parameters.deletion_policy;
        let named = store.admin.bucket_named(&bucket.name).await?;
        if let Some(live) = claim.bucket(&store, &bucket.name, named.as_ref(), &bucket.state).await? {
            // Abort uploads and remove the name only if the bucket will be deleted.
            if policy == DeletionPolicy::DeleteIfEmpty && live.objects > 0 {
                return Err(DeletionPolicy::not_empty(&bucket.name));
            }
            let has_lost_name = bucket.state.is_empty() && remove_alias(&store, &bucket.name, &live).await?;
            match policy {
                DeletionPolicy::Delete => empty(&store, &claim, &bucket.name, &live).await?,
                DeletionPolicy::DeleteIfEmpty if delete_empty(&store, &live).await? => {}
                DeletionPolicy::DeleteIfEmpty => {
                    if has_lost_name {
                        store.admin.add_global_alias(&live.id, &bucket.name).await?;
                    }
                    return Err(DeletionPolicy::not_empty(&bucket.name));
                }
            }
        }
        Ok(delete_keys(&store, &claim).await?)
    }

    /// Removes the claim's keys, and keeps the buckets.
    pub(super) async fn remove_keys(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, claim) = self.of_account(&account)?;
        for bucket in account.buckets.iter().filter(|bucket| bucket.belongs_to(&account.account)) {
            if let Some(live) = self.live(&store, bucket, (&account.account, &account.cluster_id)).await?
                && live.global_aliases.is_empty()
            {
                // Without its keys, the bucket could only be found by a global alias.
                match store.admin.add_global_alias(&live.id, &bucket.name).await {
                    Err(failure) if failure.is_bad_request() => {
                        return Err(DeleteError::retry(format!(
                            "the bucket {id} needs a name before its keys are removed, and another bucket has the name \
                             {}: an administrator adds one with garage bucket alias {id} <another name>",
                            bucket.name,
                            id = live.id
                        )));
                    }
                    named => drop(named?),
                }
            }
        }
        Ok(delete_keys(&store, &claim).await?)
    }
}

/// Removes the bucket's global alias. When Garage deletes a bucket, it removes the claim's mark before this alias. If
/// that were interrupted, an unrecorded bucket would keep its name without an owner. Returns whether the bucket had the
/// alias.
async fn remove_alias(store: &Store, name: &str, live: &BucketInfo) -> Result<bool, Failure> {
    match store.admin.bucket_named(name).await? {
        Some(named) if named.id == live.id => store.admin.remove_global_alias(&live.id, name).await.map(|()| true),
        _ => Ok(false),
    }
}

async fn delete_empty(store: &Store, live: &BucketInfo) -> Result<bool, Failure> {
    store.admin.end_uploads(&live.id).await?;
    store.admin.delete_bucket(&live.id).await
}

/// Deletes the bucket and its contents. If this takes too long, deletes a part of the contents and returns an error.
/// Revokes all access first. The keys remain until the bucket is deleted, because they prove its ownership.
async fn empty(store: &Store, claim: &Claim, name: &str, live: &BucketInfo) -> Result<(), DeleteError> {
    let (_, for_deletion) = claim.keys(store).await?;
    for key in live.keys.iter().filter(|key| key.permissions.any()) {
        if for_deletion.iter().all(|own| own.id != key.id) {
            store.admin.set_permissions(&live.id, &key.id, (key.permissions, Permissions::NONE)).await?;
        }
    }
    if delete_empty(store, live).await? {
        return Ok(());
    }
    let known = match for_deletion.iter().find(|key| !key.expired) {
        Some(known) => store.admin.credentials(&known.id).await?,
        None => None,
    };
    let key = match known {
        Some(known) => known,
        None => claim.make_key_for_deletion(store).await?,
    };
    // With this local alias, the key finds this bucket even if another bucket has the name.
    store.admin.add_local_alias(&live.id, &key.access_key_id, name).await?;
    let permissions = Permissions { read: true, write: true, owner: false };
    store.admin.set_permissions(&live.id, &key.access_key_id, (Permissions::NONE, permissions)).await?;
    let (s3, mut emptying) = (store.s3(key), EmptyingTimeLimit::new(name));
    let failed = |error| Failure::of_s3(format!("empty the bucket {name}"), error);
    loop {
        match s3.delete_some(name).await.map_err(failed)? {
            0 if delete_empty(store, live).await? => return Ok(()),
            0 => {
                return Err(DeleteError::retry(format!(
                    "the bucket {name} lists no objects, and Garage does not delete it: it may contain items of K2V, \
                     which an administrator deletes"
                )));
            }
            count => emptying.add(count)?,
        }
    }
}
