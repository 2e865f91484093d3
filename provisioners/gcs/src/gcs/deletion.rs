//! Deletion of buckets, service accounts and keys.

use std::time::Duration;

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, EmptyingTimeLimit, GrantedAccount, Owner, ProvisionedBucket};

use super::keys::former_keys;
use super::{ACCOUNT_PROPAGATION_TIME, Account, Gcs, SERVICE_ACCOUNT};
use crate::account::{CLAIM_UID, may_have_lost_a_label, owner, uid_label};
use crate::api::Failure;
use crate::iam::AddressOwner;
use crate::parameters::Parameters;
use crate::policy::{without_account, without_claims, without_title};
use crate::principal::title;
use crate::storage::BucketState;
use crate::store::Store;

/// Pause before the bucket's objects are listed again.
const LISTING_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 500 });

impl Gcs {
    /// Deletes the bucket if it belongs to the claim.
    pub(super) async fn remove_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let record = bucket.record()?;
        let (store, account) = self.recorded(&record).await?;
        let name = &bucket.name;
        let BucketState::Bucket(live) = store.storage.find_bucket(name).await? else { return Ok(()) };
        let (claim, cluster) = (&bucket.owner.claim, &bucket.cluster_id);
        match owner(&live, claim, cluster) {
            // Access is revoked only after the deletion, so that a bucket with objects stays usable.
            Owner::Claim if record.parameters.deletion_policy == DeletionPolicy::DeleteIfEmpty => {
                if store.storage.delete_bucket(name).await? { Ok(()) } else { Err(DeletionPolicy::not_empty(name)) }
            }
            Owner::Claim => {
                // Deletion would never end while the owner's account or a COSI account keeps writing.
                store.storage.change_policy(name, |policy| without_claims(policy, &account.email)).await?;
                empty(&store, name).await
            }
            Owner::Unknown if !bucket.state.is_empty() || may_have_lost_a_label(&live, claim, cluster) => {
                Err(DeleteError::retry(format!(
                    "the bucket {name} has lost its label {CLAIM_UID}, and may belong to another owner: set it to {} to \
                     delete the bucket, or to another text to keep it",
                    uid_label(&claim.uid)
                )))
            }
            Owner::Other | Owner::Unknown => {
                tracing::info!(bucket = name, "kept a bucket that does not belong to the claim");
                Ok(())
            }
        }
    }

    /// Revokes the account's permissions and keys, and keeps the buckets.
    pub(super) async fn remove_account(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of_account(&known).await?;
        // A claim without a key may have requested one since its state was recorded.
        if !known.state.contains_key(SERVICE_ACCOUNT) {
            account.wait_for_unfinished(&store).await?;
        }
        let recorded: Vec<&str> = former_keys(&known.state).chain(known.access_key_id.as_deref()).collect();
        account.delete_keys(&store, &recorded).await?;
        account.remove_rights(&store, &known).await?;
        Ok(account.remove(&store).await?)
    }
}

impl Account {
    /// Waits before the removal of an unfinished attempt's service account that is absent: a process that has just
    /// ended may have created it, and Google may not show it yet.
    pub(super) async fn wait_for_unfinished(&self, store: &Store) -> Result<(), Failure> {
        if self.generated && self.address_owner(store).await? == AddressOwner::Absent {
            tokio::time::sleep(ACCOUNT_PROPAGATION_TIME).await;
        }
        Ok(())
    }

    async fn remove_rights(&self, store: &Store, known: &GrantedAccount<Parameters>) -> Result<(), Failure> {
        // A foreign account with this name keeps its permissions.
        let theirs = self.generated && self.address_owner(store).await? == AddressOwner::Foreign;
        let title = title(&self.claim);
        for bucket in &known.buckets {
            let ours = if bucket.belongs_to(&known.account) {
                let live = store.storage.find_bucket(&bucket.name).await?;
                let is_others = |live| owner(live, &self.claim, &known.cluster_id) == Owner::Other;
                matches!(&live, BucketState::Bucket(live) if !is_others(live))
            } else {
                // An administrator has granted an existing account its permissions on such a bucket.
                self.generated
            };
            if ours {
                let changed = store.storage.change_policy(&bucket.name, |policy| {
                    let policy = without_title(policy, &title);
                    if theirs { policy } else { without_account(&policy, &self.email) }
                });
                changed.await?;
            }
        }
        Ok(())
    }

    /// Deletes the claim's keys. In an existing account, only the `recorded` keys are the claim's.
    async fn delete_keys(&self, store: &Store, recorded: &[&str]) -> Result<(), Failure> {
        if !self.generated {
            for key in recorded {
                self.remove_key(store, key).await?;
            }
            return Ok(());
        }
        // A foreign account with this name keeps its keys.
        match self.address_owner(store).await? {
            AddressOwner::Ours => self.remove_keys_except(store, None).await,
            AddressOwner::Absent | AddressOwner::Foreign => Ok(()),
        }
    }

    /// Deletes the claim's own account and its keys.
    pub(super) async fn remove(&self, store: &Store) -> Result<(), Failure> {
        if !self.generated {
            return Ok(());
        }
        self.delete_keys(store, &[]).await?;
        store.iam.delete(&self.email, self.identity()).await
    }
}

/// Deletes the bucket and its objects. If this takes too long, deletes only some of the objects and returns an
/// error.
async fn empty(store: &Store, name: &str) -> Result<(), DeleteError> {
    let mut emptying = EmptyingTimeLimit::new(name);
    loop {
        loop {
            match store.storage.delete_some_objects(name).await? {
                0 => break,
                count => emptying.add(count)?,
            }
        }
        if store.storage.delete_bucket(name).await? {
            return Ok(());
        }
        if emptying.deleted() == 0 && store.storage.is_empty(name).await? {
            return Err(DeleteError::retry(format!(
                "the bucket {name} lists no objects, and Google does not delete it: it may have managed folders or an \
                 Anywhere Cache, which an administrator deletes"
            )));
        }
        // A client wrote an object in between, or the list is outdated.
        if emptying.is_over() || emptying.deleted() == 0 {
            return Err(DeleteError::in_progress(format!("the bucket {name} is not empty yet")));
        }
        tokio::time::sleep(LISTING_PAUSE).await;
    }
}
