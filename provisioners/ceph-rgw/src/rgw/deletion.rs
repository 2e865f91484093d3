//! Removes buckets and users that are no longer needed.

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, GrantedAccount, ProvisionedBucket};

use super::account::{Account, AccountError};
use super::ownership::BucketOwnership;
use super::{Rgw, Users};
use crate::grants::{change_policy, without_grant};
use crate::parameters::Parameters;
use crate::store::Store;

impl Rgw {
    /// Deletes the bucket if it belongs to the claim, and then the users that were created for the claim.
    pub(super) async fn remove_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, users) = self.recorded(&bucket.record()?)?;
        let name = &bucket.name;
        if let Some(live) = store.admin.bucket(name).await? {
            match users.ownership(&store, &bucket.state, &live).await {
                Err(error @ AccountError::OfAnotherCluster(_)) => {
                    tracing::warn!(bucket = name, "left a bucket and its user: {error}");
                    return Ok(());
                }
                Err(AccountError::Failed(failure)) => return Err(failure.into()),
                Ok(BucketOwnership::Other) => {
                    tracing::info!(
                        bucket = name,
                        owner = live.owner,
                        "kept a bucket that does not belong to the claim"
                    );
                }
                // The bucket was never handed over, or the claim named another owner before the first record.
                Ok(BucketOwnership::Claim | BucketOwnership::PendingTransfer | BucketOwnership::OfFormerOwner) => {
                    empty(&store, &bucket).await?;
                }
            }
        }
        for account in users.generated() {
            delete_user(&store, account).await?;
        }
        Ok(())
    }

    /// Revokes the user's permissions, and keeps the buckets.
    pub(super) async fn remove_user(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, users) = self.of_account(&known)?;
        let mut live = Vec::new();
        for bucket in &known.buckets {
            live.extend(store.admin.bucket(&bucket.name).await?.map(|live| (&bucket.name, live.owner)));
        }
        for account in users.generated() {
            if !is_ours(&store, account).await? {
                continue;
            }
            // The gateway does not delete the owner of a bucket, and suspending the owner would block the bucket for
            // all users. Without keys, the claim's namespace has no access, even if another step fails.
            remove_all_keys(&store, account).await?;
            let mut owns_one = false;
            for (name, owner) in &live {
                owns_one |= *owner == account.id;
                if *owner != account.id && users.owner.generated {
                    self.remove_statement(&store, account, (name, owner)).await?;
                }
            }
            if !owns_one {
                store.admin.delete_user(&account.id).await?;
            }
        }
        Ok(())
    }

    /// Removes the user's statement from the bucket's policy, unless the bucket's owner has no key, or prevents it: the
    /// user's name is never used again, so a statement that remains has no effect. If the owner's claim was deleted and
    /// its bucket retained, the owner receives a temporary key for this purpose.
    async fn remove_statement(
        &self,
        store: &Store,
        account: &Account,
        (bucket, owner): (&str, &str),
    ) -> Result<(), DeleteError> {
        let Some(user) = store.admin.user(owner).await? else { return Ok(()) };
        let lock = self.stores.lock(store.lock_key(bucket));
        let _locked = lock.lock().await;
        let remove = async |key| match change_policy(store, key, bucket, |policy| without_grant(policy, &account.id))
            .await
        {
            Err(error) if error.is_caused_by_owner() => {
                tracing::warn!(bucket, user = account.id, "left the user's statement in the bucket's policy: {error}");
                Ok(())
            }
            removed => removed,
        };
        if let Some(key) = user.key(None) {
            return Ok(remove(key).await?);
        }
        if user.mark().is_none_or(|mark| mark.cluster != account.cluster) {
            return Ok(());
        }
        // An earlier process may have ended before it deleted its key.
        let key = match user.keys.iter().find(|key| key.is_temporary()) {
            Some(known) => Some(known.credentials()),
            None => store.admin.create_temporary_key(owner).await?,
        };
        let Some(key) = key else { return Ok(()) };
        let id = key.access_key_id.clone();
        let removed = remove(key).await;
        store.admin.delete_key(owner, &id).await?;
        Ok(removed?)
    }
}

impl Users {
    /// Returns the users that were created for the claim.
    fn generated(&self) -> impl Iterator<Item = &Account> {
        let own = self.own.as_ref().filter(|own| own.id != self.owner.id);
        Some(&self.owner).filter(|owner| owner.generated).into_iter().chain(own)
    }
}

/// Deletes the claim's bucket according to the deletion policy of its class.
async fn empty(store: &Store, bucket: &ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
    let name = &bucket.name;
    let policy = bucket.parameters.as_ref().map(|class| class.deletion_policy).unwrap_or_default();
    let deleted = store.admin.delete_bucket(name, policy == DeletionPolicy::Delete).await;
    let deleted = deleted.map_err(|failure| {
        if failure.timed_out() {
            DeleteError::in_progress(format!("the gateway is still deleting the contents of {name}"))
        } else {
            failure.into()
        }
    })?;
    if deleted { Ok(()) } else { Err(DeletionPolicy::not_empty(name)) }
}

/// Deletes the user's keys, then the user. The gateway refuses to delete a user who owns another bucket, which an
/// administrator may have transferred to the user.
async fn delete_user(store: &Store, account: &Account) -> Result<(), DeleteError> {
    if is_ours(store, account).await? {
        remove_all_keys(store, account).await?;
        store.admin.delete_user(&account.id).await?;
    }
    Ok(())
}

async fn remove_all_keys(store: &Store, account: &Account) -> Result<(), DeleteError> {
    for key in store.admin.user(&account.id).await?.into_iter().flat_map(|user| user.keys) {
        store.admin.delete_key(&account.id, &key.access_key).await?;
    }
    Ok(())
}

/// Returns whether the user exists and does not belong to another cluster.
async fn is_ours(store: &Store, account: &Account) -> Result<bool, DeleteError> {
    match account.user(store).await {
        Ok(user) => Ok(user.is_some()),
        Err(error @ AccountError::OfAnotherCluster(_)) => {
            tracing::warn!(user = account.id, "left a user: {error}");
            Ok(false)
        }
        Err(AccountError::Failed(failure)) => Err(failure.into()),
    }
}
