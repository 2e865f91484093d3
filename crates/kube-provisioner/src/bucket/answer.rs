//! What an author's methods for buckets answer.

use std::collections::BTreeMap;
use std::fmt;

use super::endpoint::Endpoint;

/// A bucket that was made, as [`create_bucket`](super::BucketProvisioner::create_bucket) answers.
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
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// See [`state`](Self::state).
    pub state: BTreeMap<String, String>,
    /// See [`warning`](Self::warning).
    pub warning: Option<String>,
}

impl Bucket {
    /// A bucket that is reached here.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: BTreeMap::new(), warning: None }
    }

    /// Something that later calls about the bucket need, kept in the ObjectBucket's `spec.additionalState`. No secrets:
    /// administrators see it. [`Granted::state`] is kept beside it, so the two need keys of their own.
    pub fn state(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// A warning for the claim's user although the call succeeded; it becomes an event.
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warning = Some(text.into());
        self
    }
}

/// An account that was let into buckets, as [`grant`](super::BucketProvisioner::grant) answers.
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
    /// Where the buckets are reached.
    pub endpoint: Endpoint,
    /// The account's key. `None` where pods identify themselves by their service account.
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
    /// Access with this key to buckets that are reached here.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..Self::without_key(endpoint) }
    }

    /// Access without a key: the backend knows the pods of a service account. The claim's Secret gets no key, and what clients
    /// need stands in [its ConfigMap](Self::config).
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

    /// Something that later calls about the account need, kept as [`Bucket::state`].
    pub fn state(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// Another entry of the claim's ConfigMap.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config_data.insert(key.into(), value.into());
        self
    }

    /// Another entry of the claim's Secret.
    pub fn secret(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.secret_data.insert(key.into(), value.into());
        self
    }

    /// As [`Bucket::warning`].
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warning = Some(text.into());
        self
    }
}

/// Without the values of the Secret.
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

/// A key of the backend's.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Its id, which is no secret.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
}

impl Credentials {
    /// A key of these two parts.
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
