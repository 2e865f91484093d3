//! The users of a claim.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{self, Misconfigured};
use s3_client::Credentials;

use super::{BUCKET_OWNER, CEPH_USER};
use crate::admin::{Failure, Key, User};
use crate::store::Store;
use crate::users::{HandedOver, Mark, is_generated};

/// A user of a claim.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) id: String,
    /// Whether it is made for the claim. Others are never changed and never deleted.
    pub(super) generated: bool,
    /// The cluster in which this provisioner runs.
    pub(super) cluster: String,
}

/// Why a user is not dealt with.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(
        "the user {0} was made for a claim of another cluster, and is left alone; if that cluster is gone for good, an \
         administrator gives the user to this one: radosgw-admin user modify --uid={0} --display-name={0}"
    )]
    OfAnotherCluster(String),
}

impl Account {
    /// The one who owns the claim's bucket. `bucket_owner` is what the claim wants now. An owner who is no longer asked for
    /// stays.
    pub(super) fn of(
        account: &bucket::Account,
        state: &BTreeMap<String, String>,
        bucket_owner: Option<&str>,
        cluster: &str,
    ) -> Result<Self, Misconfigured> {
        let known = |key| state.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let bucket_owner = bucket_owner.filter(|owner| !owner.is_empty()).or(known(BUCKET_OWNER));
        let id = match bucket_owner.or(known(CEPH_USER)) {
            Some(id) => id.to_owned(),
            None if account.claim.uid.is_empty() => {
                return Err(Misconfigured::new("the ObjectBucket names neither cephUser nor its claim's uid"));
            }
            None => account.name.clone(),
        };
        let generated = is_generated(&id, account, bucket_owner);
        Ok(Self { id, generated, cluster: cluster.to_owned() })
    }

    /// The one who is made for the claim, also where another user owns its bucket. Nobody knows it without the claim's uid.
    pub(super) fn own(account: &bucket::Account, cluster: &str) -> Option<Self> {
        let known = !account.claim.uid.is_empty();
        known.then(|| Self { id: account.name.clone(), generated: true, cluster: cluster.to_owned() })
    }

    /// The user, if there is one. One who was made for a claim of another cluster is none of ours.
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

    /// The user, who is made or marked if need be.
    pub(super) async fn ensured(&self, store: &Store, max_buckets: i64) -> Result<User, ProvisionError> {
        if let Some(user) = self.user(store).await? {
            if self.generated && user.mark().is_none() {
                store.admin.set_display_name(&self.id, &Mark::of(&self.cluster).to_string()).await?;
            }
            return Ok(user);
        }
        if !self.generated {
            let id = &self.id;
            return Err(ProvisionError::retry(format!(
                "the user {id} does not exist: make it by radosgw-admin user create --uid={id}, or change bucketOwner"
            )));
        }
        store.admin.create_user(&self.id, &Mark::of(&self.cluster).to_string(), max_buckets).await?;
        let made = self.user(store).await?;
        made.ok_or_else(|| ProvisionError::retry(format!("the user {} was made and is not there", self.id)))
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
            let text = format!("the user {id} has no key: radosgw-admin key create --uid={id} --key-type=s3");
            return Err(ProvisionError::retry(text));
        }
        let keys = store.admin.create_key(&self.id).await?;
        let key = keys.first().map(Key::credentials);
        key.ok_or_else(|| ProvisionError::retry("the gateway made no key"))
    }

    /// Writes down that this bucket is the claim's, before another user owns it.
    pub(super) async fn note(&self, store: &Store, handed_over: HandedOver) -> Result<(), Failure> {
        let mark = Mark { cluster: self.cluster.clone(), handed_over: Some(handed_over) };
        store.admin.set_display_name(&self.id, &mark.to_string()).await
    }

    /// Removes all keys but this one, or but the first where it is not known. The answer is the ids of all that were there.
    pub(super) async fn remove_other_keys(
        &self,
        store: &Store,
        keep: Option<&str>,
    ) -> Result<Vec<String>, AccountError> {
        let Some(user) = self.user(store).await? else { return Ok(Vec::new()) };
        let kept = user.key(keep).map(|key| key.access_key_id);
        for key in user.keys.iter().filter(|key| Some(&key.access_key) != kept.as_ref()) {
            store.admin.delete_key(&self.id, &key.access_key).await?;
        }
        Ok(user.keys.into_iter().map(|key| key.access_key).collect())
    }
}
