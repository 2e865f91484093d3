//! What becomes of buckets and users that are not needed any more.

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, ProvisionedBucket};

use super::{Account, Rgw};
use crate::grants::{change_policy, revoked};
use crate::parameters::Parameters;
use crate::store::Store;

impl Rgw {
    /// Deletes the bucket if it is the claim's, and then its user.
    pub(super) async fn remove_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of(&bucket)?;
        // Before the first success the claim may have wanted an owner and none by turns.
        if bucket.state.is_empty() && !account.generated && !bucket.claim.uid.is_empty() {
            let own = Account { id: bucket.claim.user(), generated: true };
            remove(&store, &own, &bucket).await?;
        }
        remove(&store, &account, &bucket).await
    }

    /// Takes the user's rights away and leaves the bucket.
    pub(super) async fn remove_user(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of(&bucket)?;
        if !account.generated {
            return Ok(());
        }
        match store.admin.bucket(&bucket.name).await? {
            // The gateway deletes no owner of a bucket, and one who is suspended closes the bucket for all. Without keys the
            // claim's namespace has no way in.
            Some(live) if live.owner == account.id => self.remove_all_keys(&store, &account).await,
            Some(live) => {
                self.remove_statement(&store, &account, &bucket.name, &live.owner).await?;
                Ok(store.admin.delete_user(&account.id).await?)
            }
            None => Ok(store.admin.delete_user(&account.id).await?),
        }
    }

    async fn remove_all_keys(&self, store: &Store, account: &Account) -> Result<(), DeleteError> {
        for key in store.admin.user(&account.id).await?.into_iter().flat_map(|user| user.keys) {
            store.admin.delete_key(&account.id, &key.access_key).await?;
        }
        Ok(())
    }

    async fn remove_statement(
        &self,
        store: &Store,
        account: &Account,
        bucket: &str,
        owner: &str,
    ) -> Result<(), DeleteError> {
        // An owner without keys cannot change the policy. No user ever gets this name again, so what stays is of no use.
        let Some(key) = store.admin.user(owner).await?.and_then(|owner| owner.key(None)) else { return Ok(()) };
        let lock = self.stores.lock(store.place(bucket));
        let _locked = lock.lock().await;
        change_policy(store, key, bucket, |policy| revoked(policy, &account.id)).await?;
        Ok(())
    }
}

async fn remove(store: &Store, account: &Account, bucket: &ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
    let name = &bucket.name;
    match store.admin.bucket(name).await? {
        Some(live) if live.owner != account.id => {
            tracing::info!(bucket = name, owner = live.owner, "left a bucket that is not the claim's");
        }
        Some(_) if !account.made_for(store, name, &bucket.claim, &bucket.state).await? => {
            tracing::info!(bucket = name, owner = account.id, "left a bucket that was not made for the claim");
        }
        Some(_) => {
            let policy = bucket.parameters.as_ref().map(|class| class.deletion_policy).unwrap_or_default();
            let deleted = match policy {
                DeletionPolicy::Delete => store.admin.delete_bucket(name).await.map(|()| true),
                DeletionPolicy::DeleteIfEmpty => store.admin.delete_empty_bucket(name).await,
            };
            let deleted = deleted.map_err(|failure| match failure.timed_out() {
                true => DeleteError::in_progress(format!("the gateway is still deleting what {name} holds")),
                false => failure.into(),
            })?;
            if !deleted {
                return Err(DeletionPolicy::not_empty(name));
            }
        }
        None => {}
    }
    if account.generated {
        store.admin.delete_user(&account.id).await?;
    }
    Ok(())
}
