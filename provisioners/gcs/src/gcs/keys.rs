//! The keys of service accounts. Google shows a key's secret once, when it creates the key.
//!
//! An account that is generated for a claim has only the claim's keys. A key that is neither recorded nor in the Secret
//! is left over from an attempt whose response was lost, and is deleted. An existing account may have other users'
//! keys, so the provisioner deletes only keys that the state names.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Credentials, GrantOf};

use super::{ACCESS_KEY_ID, Account, FORMER_KEYS, Gcs};
use crate::api::Failure;
use crate::storage::Key;
use crate::store::Store;

impl Account {
    /// Returns the key in the claim's Secret if it is active, or else a new key.
    pub(super) async fn key(&self, store: &Store, request: &GrantOf<Gcs>) -> Result<Credentials, ProvisionError> {
        let recorded = request.access_key_id.as_deref();
        if let Some(key) = request.credentials.clone()
            && self.own_key(store, &key.access_key_id).await?.is_some_and(|known| known.active)
        {
            return Ok(key);
        }
        // Pods may use the recorded key, and its predecessors during their overlap. Without a recorded key, none was
        // delivered.
        if self.generated && recorded.is_none() {
            self.remove_keys_except(store, None).await?;
        }
        // Only the state records a key that was not delivered.
        if let Some(undelivered) = request.state.get(ACCESS_KEY_ID).filter(|_| !self.generated && recorded.is_none()) {
            self.remove_key(store, undelivered).await?;
        }
        let made = match store.storage.create_key(&self.email).await {
            Err(failure) if is_key_limit(&failure) && (self.generated || recorded.is_some()) => {
                match recorded {
                    Some(recorded) if !self.generated => self.remove_key(store, recorded).await?,
                    recorded => self.remove_keys_except(store, recorded).await?,
                }
                store.storage.create_key(&self.email).await
            }
            made => made,
        };
        made.map_err(|failure| self.key_limit_error(failure))
    }

    /// Returns the claim's keys of an existing account that are not deleted yet.
    pub(super) async fn known_keys(&self, store: &Store, request: &GrantOf<Gcs>) -> Result<Vec<String>, Failure> {
        let mut known = Vec::new();
        for id in former_keys(&request.state).chain(request.access_key_id.as_deref()) {
            if self.own_key(store, id).await?.is_some() {
                known.push(id.to_owned());
            }
        }
        Ok(known)
    }

    /// Deletes all keys of the claim's own account except this one.
    pub(super) async fn remove_keys_except(&self, store: &Store, kept: Option<&str>) -> Result<(), Failure> {
        for key in store.storage.keys(&self.email).await? {
            if Some(key.id.as_str()) != kept {
                store.storage.delete_key(&key).await?;
            }
        }
        Ok(())
    }

    /// Deletes one key if it belongs to the account.
    pub(super) async fn remove_key(&self, store: &Store, id: &str) -> Result<(), Failure> {
        match self.own_key(store, id).await? {
            Some(key) => store.storage.delete_key(&key).await,
            None => Ok(()),
        }
    }

    /// Returns one key if it belongs to the account.
    async fn own_key(&self, store: &Store, id: &str) -> Result<Option<Key>, Failure> {
        Ok(store.storage.key(id).await?.filter(|key| key.email == self.email))
    }

    fn key_limit_error(&self, failure: Failure) -> ProvisionError {
        if is_key_limit(&failure) {
            ProvisionError::retry(format!(
                "{failure}; {} has as many keys as Google allows: delete unused keys (gcloud storage hmac list)",
                self.email
            ))
        } else {
            self.propagation_error(failure)
        }
    }
}

/// Returns the IDs of the replaced keys of an existing account.
pub(super) fn former_keys(state: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    state.get(FORMER_KEYS).into_iter().flat_map(|ids| ids.split(','))
}

/// Returns true if the account has reached Google's limit of keys.
fn is_key_limit(failure: &Failure) -> bool {
    let message = failure.message().to_lowercase();
    // "Rate limit exceeded" does not concern the account's keys, which may all be in use.
    !failure.is_rate_limited() && (message.contains("maximum") || message.contains("limit"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Refusal;

    #[test]
    fn detects_accounts_that_reached_the_key_limit() {
        for (status, reason, message, full) in [
            (400, "invalid", "The maximum number of HMAC keys for the service account is reached.", true),
            (403, "quotaExceeded", "Service account HMAC key limit reached", true),
            (429, "rateLimitExceeded", "Rate limit exceeded.", false),
            (403, "userRateLimitExceeded", "User Rate Limit Exceeded", false),
            (403, "forbidden", "no storage.hmacKeys.create access", false),
        ] {
            let refusal = Refusal { status, reason: reason.to_owned(), message: message.to_owned() };
            let failure = Failure::Refused { doing: "create a key".to_owned(), refusal, advice: String::new() };
            assert_eq!(is_key_limit(&failure), full, "{message}");
        }
    }
}
