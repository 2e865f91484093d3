//! The users of a claim.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{self, BackendConfigError};
use s3_client::Credentials;

use super::{BUCKET_OWNER, CEPH_USER};
use crate::admin::{Failure, User};
use crate::store::Store;
use crate::users::{Mark, TransferredBucket, is_generated};

/// A user of a claim.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) id: String,
    /// True if the user is created for the claim. Other users are never changed or deleted.
    pub(super) generated: bool,
    /// The cluster in which this provisioner runs.
    pub(super) cluster: String,
}

/// The reason why a user is not processed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(
        "the user {0} was created for a claim of another cluster, so this provisioner does not change it; if that \
         cluster no longer exists, an administrator can transfer the user to this cluster with: radosgw-admin user modify --uid={0} \
         --display-name={0}"
    )]
    OfAnotherCluster(String),
}

impl Account {
    /// Returns the user who owns the claim's bucket. `bucket_owner` is the owner that the claim names now. If the claim
    /// no longer names an owner, the recorded owner remains.
    pub(super) fn of(
        account: &bucket::Account,
        state: &BTreeMap<String, String>,
        bucket_owner: Option<&str>,
        cluster: &str,
    ) -> Result<Self, BackendConfigError> {
        let known = |key| state.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let bucket_owner = bucket_owner.filter(|owner| !owner.is_empty()).or(known(BUCKET_OWNER));
        let id = match bucket_owner.or(known(CEPH_USER)) {
            Some(id) => id.to_owned(),
            None if account.claim.uid.is_empty() => {
                return Err(BackendConfigError::new("the ObjectBucket names neither cephUser nor its claim's uid"));
            }
            None => account.name.clone(),
        };
        let generated = is_generated(&id, account, bucket_owner);
        Ok(Self { id, generated, cluster: cluster.to_owned() })
    }

    /// Returns the user who is created for the claim, even if another user owns its bucket. Returns `None` if the
    /// claim's uid is unknown.
    pub(super) fn own(account: &bucket::Account, cluster: &str) -> Option<Self> {
        let known = !account.claim.uid.is_empty();
        known.then(|| Self { id: account.name.clone(), generated: true, cluster: cluster.to_owned() })
    }

    /// Returns the user, if it exists. Fails if the user was created for a claim in another cluster.
    pub(super) async fn user(&self, store: &Store) -> Result<Option<User>, AccountError> {
        let user = store.admin.user(&self.id).await?;
        match user.as_ref().and_then(User::mark) {
            Some(mark) if self.generated && mark.cluster != self.cluster => {
                tracing::warn!(
                    user = self.id,
                    cluster = mark.cluster,
                    "the user belongs to a claim of another cluster"
                );
                Err(AccountError::OfAnotherCluster(self.id.clone()))
            }
            _ => Ok(user),
        }
    }

    /// Returns the user, after creating or marking it if necessary.
    pub(super) async fn ensure(&self, store: &Store, max_buckets: i64) -> Result<User, ProvisionError> {
        if let Some(user) = self.user(store).await? {
            if !self.generated && user.is_of_account() {
                return Err(ProvisionError::retry(format!(
                    "the bucketOwner {} belongs to an account of the gateway, which would own the bucket: name a user \
                     without an account",
                    self.id
                )));
            }
            if self.generated && user.mark().is_none() {
                store.admin.set_display_name(&self.id, &Mark::of(&self.cluster).to_string()).await?;
            }
            return Ok(user);
        }
        if !self.generated {
            let id = &self.id;
            return Err(ProvisionError::retry(format!(
                "the user {id} does not exist: create it with radosgw-admin user create --uid={id} \
                 --display-name={id}, or change bucketOwner"
            )));
        }
        store.admin.create_user(&self.id, &Mark::of(&self.cluster).to_string(), max_buckets).await?;
        let made = self.user(store).await?;
        made.ok_or_else(|| ProvisionError::retry(format!("the user {} was created but cannot be found", self.id)))
    }

    pub(super) async fn key(
        &self,
        store: &Store,
        user: &User,
        wanted: Option<&str>,
    ) -> Result<Credentials, ProvisionError> {
        if let Some(key) = user.key(wanted) {
            return Ok(key);
        }
        if !self.generated {
            let id = &self.id;
            return Err(ProvisionError::retry(format!("the user {id} has no active key: {}", key_command(id))));
        }
        let keys = store.admin.create_key(&self.id).await?;
        user.new_key(&keys).ok_or_else(|| ProvisionError::retry("the gateway returned no new key"))
    }

    /// Records in the user's mark that this bucket belongs to the claim, before the transfer to another user.
    pub(super) async fn record_transfer(
        &self,
        store: &Store,
        transferred_bucket: TransferredBucket,
    ) -> Result<(), Failure> {
        let mark = Mark { cluster: self.cluster.clone(), transferred_bucket: Some(transferred_bucket) };
        store.admin.set_display_name(&self.id, &mark.to_string()).await
    }

    /// Removes all keys except `keep`, or except the first usable key if the user has no such key. Returns the IDs of
    /// all keys before the removal.
    pub(super) async fn remove_other_keys(
        &self,
        store: &Store,
        keep: Option<&str>,
    ) -> Result<Vec<String>, AccountError> {
        let Some(user) = self.user(store).await? else { return Ok(Vec::new()) };
        let recorded = user.keys.iter().map(|key| &key.access_key).find(|id| Some(id.as_str()) == keep).cloned();
        let kept = recorded.or_else(|| user.key(None).map(|key| key.access_key_id));
        for key in user.keys.iter().filter(|key| Some(&key.access_key) != kept.as_ref()) {
            store.admin.delete_key(&self.id, &key.access_key).await?;
        }
        Ok(user.keys.into_iter().map(|key| key.access_key).collect())
    }
}

/// Returns the command with which an administrator creates a key for a user.
pub(super) fn key_command(user: &str) -> String {
    format!("radosgw-admin key create --uid={user} --key-type=s3 --gen-access-key --gen-secret")
}
