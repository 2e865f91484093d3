//! Access keys.

use std::fmt;

use aws_credential_types::Credentials as SdkCredentials;
use aws_credential_types::provider::SharedCredentialsProvider;

/// An access key. Its `Debug` output does not contain the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The id, which is not secret.
    pub access_key_id: String,
    /// The secret.
    pub secret_access_key: String,
}

impl Credentials {
    /// Creates a key.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self { access_key_id: access_key_id.into(), secret_access_key: secret_access_key.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

impl From<Credentials> for SharedCredentialsProvider {
    fn from(key: Credentials) -> Self {
        Self::new(SdkCredentials::new(key.access_key_id, key.secret_access_key, None, None, "a Secret"))
    }
}
