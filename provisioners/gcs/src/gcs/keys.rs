//! The keys of service accounts. Google shows a key's secret once, when it creates the key.
//!
//! An account that is made for a claim has no keys but the claim's, so whatever is not recorded, and not in its Secret, is of
//! an attempt whose answer was lost: it is removed. An account that is not made for a claim has keys of others, and only the
//! recorded key is ever touched.

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::Credentials;

use super::Account;
use crate::api::Failure;
use crate::store::Store;

impl Account {
    /// The claim's key: the one in its Secret while that works, or else a new one. `recorded` is the key that the ObjectBucket
    /// names.
    pub(super) async fn key(
        &self,
        store: &Store,
        recorded: Option<&str>,
        in_secret: Option<Credentials>,
    ) -> Result<Credentials, ProvisionError> {
        if let Some(key) = in_secret
            && self.owns_active(store, &key.access_key_id).await?
        {
            return Ok(key);
        }
        // Pods may use the recorded key, and keys before it for their overlap. Without one, no key was delivered.
        if self.generated && recorded.is_none() {
            self.remove_keys_but(store, None).await?;
        }
        let made = match store.storage.create_key(&self.email).await {
            Err(failure) if self.generated && is_full(&failure) => {
                self.remove_keys_but(store, recorded).await?;
                store.storage.create_key(&self.email).await
            }
            made => made,
        };
        let made = made.map_err(|failure| self.full(failure))?;
        // The keys of an account that is not the claim's are never retired.
        if let Some(recorded) = recorded.filter(|_| !self.generated) {
            self.remove_key(store, recorded).await?;
        }
        Ok(made)
    }

    /// Removes all keys of the claim's own account but this one.
    pub(super) async fn remove_keys_but(&self, store: &Store, kept: Option<&str>) -> Result<(), Failure> {
        for key in store.storage.keys(&self.email).await? {
            if Some(key.id.as_str()) != kept {
                store.storage.delete_key(&key).await?;
            }
        }
        Ok(())
    }

    /// Removes one key of the account.
    pub(super) async fn remove_key(&self, store: &Store, id: &str) -> Result<(), Failure> {
        match store.storage.key(id).await? {
            Some(key) if key.email == self.email => store.storage.delete_key(&key).await,
            _ => Ok(()),
        }
    }

    async fn owns_active(&self, store: &Store, id: &str) -> Result<bool, Failure> {
        Ok(store.storage.key(id).await?.is_some_and(|key| key.email == self.email && key.active))
    }

    fn full(&self, failure: Failure) -> ProvisionError {
        if is_full(&failure) {
            ProvisionError::retry(format!(
                "{failure}; {} has as many keys as Google allows: delete those that nobody uses (gcloud storage hmac list)",
                self.email
            ))
        } else {
            self.spreading(failure)
        }
    }
}

/// Returns true if the account has as many keys as Google allows.
fn is_full(failure: &Failure) -> bool {
    let message = failure.message().to_lowercase();
    message.contains("maximum") || message.contains("limit")
}
