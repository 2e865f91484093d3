//! What becomes of buckets, service accounts and keys that are not needed any more.

use std::time::Duration;

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, ProvisionedBucket};
use tokio::time::Instant;

use super::{Account, Gcs, Source};
use crate::account::{CLAIM_UID, Owner, owner};
use crate::api::Failure;
use crate::iam::Known;
use crate::parameters::Parameters;
use crate::policy::{revoked, shut};
use crate::principal::title;
use crate::storage::Found;
use crate::store::Store;

/// After this time a call that deletes objects reports its progress, and the next call continues.
const SLICE: Duration = Duration::from_secs(20);

impl Gcs {
    /// Deletes the bucket if it is the claim's, and what was made for it.
    pub(super) async fn remove_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        let policy = bucket.parameters.as_ref().map(|class| class.deletion_policy).unwrap_or_default();
        let name = &bucket.name;
        if let Found::Bucket(live) = store.storage.find_bucket(name).await? {
            match owner(&live, &bucket.claim, &bucket.cluster_id) {
                Owner::Claim => {
                    let only_empty = policy == DeletionPolicy::DeleteIfEmpty;
                    if only_empty && !store.storage.is_empty(name).await? {
                        return Err(DeletionPolicy::not_empty(name));
                    }
                    // Whoever still writes would write forever.
                    account.close(&store, bucket.access_key_id.as_deref()).await?;
                    let title = title(&bucket.claim);
                    store.storage.change_policy(name, |policy| shut(policy, &title)).await?;
                    if !only_empty {
                        empty(&store, name).await?;
                    } else if !store.storage.delete_bucket(name).await? {
                        return Err(DeletionPolicy::not_empty(name));
                    }
                }
                Owner::Unknown if !bucket.state.is_empty() => {
                    return Err(DeleteError::retry(format!(
                        "the bucket {name} has lost its label {CLAIM_UID}, and may be somebody else's: set it to {} if it is \
                         to be deleted, or to another text if it is to stay",
                        bucket.claim.uid
                    )));
                }
                Owner::Other | Owner::Unknown => tracing::info!(bucket = name, "left a bucket that is not the claim's"),
            }
        }
        account.close(&store, bucket.access_key_id.as_deref()).await?;
        Ok(account.remove(&store).await?)
    }

    /// Takes the rights and the keys away, and leaves the bucket.
    pub(super) async fn remove_account(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        let name = &bucket.name;
        account.close(&store, bucket.access_key_id.as_deref()).await?;
        let ours = match bucket.source {
            // What an account that was not made for the claim may do there was not our doing.
            Source::Granted => account.generated,
            Source::Provisioned => {
                let live = store.storage.find_bucket(name).await?;
                matches!(live, Found::Bucket(live) if owner(&live, &bucket.claim, &bucket.cluster_id) != Owner::Other)
            }
        };
        // The rights of somebody else's account of this name are not ours to take.
        if ours {
            let theirs = account.generated && account.known(&store).await? == Known::Foreign;
            let title = title(&account.claim);
            let changed = store.storage.change_policy(name, |policy| {
                let policy = shut(policy, &title);
                if theirs { policy } else { revoked(&policy, &account.email) }
            });
            changed.await?;
        }
        Ok(account.remove(&store).await?)
    }
}

impl Account {
    /// Removes the claim's keys.
    async fn close(&self, store: &Store, recorded: Option<&str>) -> Result<(), Failure> {
        if !self.generated {
            return match recorded {
                Some(key) => self.remove_key(store, key).await,
                None => Ok(()),
            };
        }
        // Somebody else's account of this name keeps its keys.
        match self.known(store).await? {
            Known::Ours => self.remove_keys_but(store, None).await,
            Known::Absent | Known::Foreign => Ok(()),
        }
    }

    /// Removes the claim's own account with its keys.
    pub(super) async fn remove(&self, store: &Store) -> Result<(), Failure> {
        if !self.generated {
            return Ok(());
        }
        self.close(store, None).await?;
        store.iam.delete(&self.email, self.whom()).await
    }
}

/// Deletes the bucket with all that it holds, or a part of it and says so.
async fn empty(store: &Store, name: &str) -> Result<(), DeleteError> {
    let start = Instant::now();
    let mut deleted = 0;
    loop {
        while let Some(count) = store.storage.delete_some_objects(name).await? {
            deleted += count;
            if start.elapsed() >= SLICE {
                let text = format!("{deleted} more objects of the bucket {name} are deleted, and others are left");
                return Err(DeleteError::in_progress(text).after(Duration::from_secs(1)));
            }
        }
        if store.storage.delete_bucket(name).await? {
            return Ok(());
        }
        // Something was written meanwhile, or the list is behind.
        if start.elapsed() >= SLICE || deleted == 0 {
            return Err(DeleteError::in_progress(format!("the bucket {name} is not empty yet")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
