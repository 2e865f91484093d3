//! The results of a bucket provisioner's methods.

use std::collections::BTreeMap;
use std::fmt;

use super::endpoint::Endpoint;

/// A created bucket, returned by [`create_bucket`](super::BucketProvisioner::create_bucket).
///
/// ```
/// use kube_provisioner::bucket::{Bucket, Endpoint};
///
/// let bucket = Bucket::new(Endpoint::https("s3.example.com")).state("bucketId", "b-1");
/// assert_eq!(bucket.state["bucketId"], "b-1");
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Bucket {
    /// The endpoint that serves the bucket.
    pub endpoint: Endpoint,
    /// See [`state`](Self::state).
    pub state: BTreeMap<String, String>,
    /// See [`warning`](Self::warning).
    pub warning: Option<String>,
}

impl Bucket {
    /// Creates a result for a bucket at this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: BTreeMap::new(), warning: None }
    }

    /// Stores a value that later calls about the bucket need, in the ObjectBucket's `spec.additionalState`. It must not
    /// contain secrets, because administrators can read it. [`Granted::state`] is stored next to it, so the two need
    /// distinct keys.
    pub fn state(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// Sets a warning for the claim's user although the call succeeded; it becomes an event.
    pub fn warning(self, text: impl Into<String>) -> Self {
        Self { warning: Some(text.into()), ..self }
    }
}

/// An account with access to buckets, returned by [`grant`](super::BucketProvisioner::grant).
///
/// ```
/// use kube_provisioner::bucket::{Credentials, Endpoint, Granted};
///
/// let granted = Granted::new(Endpoint::https("s3.example.com"), Credentials::new("AKIA", "secret")).state("userName", "obc-shop-photos");
/// assert_eq!(granted.state["userName"], "obc-shop-photos");
/// ```
#[derive(Clone)]
#[must_use]
#[non_exhaustive]
pub struct Granted {
    /// The endpoint that serves the buckets.
    pub endpoint: Endpoint,
    /// The account's key. `None` if pods identify themselves by their service account.
    pub credentials: Option<Credentials>,
    /// See [`state`](Self::state).
    pub state: BTreeMap<String, String>,
    /// See [`config`](Self::config).
    pub config_data: BTreeMap<String, String>,
    /// See [`secret`](Self::secret).
    pub secret_data: BTreeMap<String, String>,
    /// See [`warning`](Self::warning).
    pub warning: Option<String>,
}

impl Granted {
    /// Grants access with this key to buckets at this endpoint.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..Self::without_key(endpoint) }
    }

    /// Grants access without a key: the backend recognises the pods of a service account. The claim's Secret contains
    /// no key; put the values that clients need in [the ConfigMap](Self::config).
    pub fn without_key(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            credentials: None,
            state: BTreeMap::new(),
            config_data: BTreeMap::new(),
            secret_data: BTreeMap::new(),
            warning: None,
        }
    }

    /// Stores a value that later calls about the account need, like [`Bucket::state`].
    pub fn state(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// Adds an entry to the claim's ConfigMap.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config_data.insert(key.into(), value.into());
        self
    }

    /// Adds an entry to the claim's Secret.
    pub fn secret(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.secret_data.insert(key.into(), value.into());
        self
    }

    /// Sets a warning, like [`Bucket::warning`].
    pub fn warning(self, text: impl Into<String>) -> Self {
        Self { warning: Some(text.into()), ..self }
    }
}

/// Omits the values of the Secret.
impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, credentials, state, config_data, secret_data, warning } = self;
        f.debug_struct("Granted")
            .field("endpoint", endpoint)
            .field("credentials", credentials)
            .field("state", state)
            .field("config_data", config_data)
            .field("secret_data", &secret_data.keys())
            .field("warning", warning)
            .finish()
    }
}

/// A key of the backend.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The key's ID, which is not secret.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: String,
}

impl Credentials {
    /// Creates a key from its two parts.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self { access_key_id: access_key_id.into(), secret_access_key: secret_access_key.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_secret() {
        let granted = Granted::new(Endpoint::https("store"), Credentials::new("id", "hidden-key"));
        let text = format!("{:?}", granted.secret("PASSWORD", "hidden-entry"));
        assert!(text.contains("PASSWORD") && !text.contains("hidden"), "{text}");
    }
}
