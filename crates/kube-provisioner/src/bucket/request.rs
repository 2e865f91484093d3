//! The arguments and the answers of an author's methods for buckets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use provisioner_runtime::controller::FencingToken;
use serde::Deserialize;

use super::provisioner::BucketProvisioner;
use crate::error::{DeleteError, ProvisionError};
use crate::secrets::Secrets;

/// What [`BucketProvisioner::provision`] and [`BucketProvisioner::grant`] are asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BucketRequest<P, C> {
    /// The bucket's name: the claim's own, one made of its prefix and its uid, or the one that the class names.
    pub name: String,
    /// The claim.
    pub claim: ClaimName,
    /// The class's parameters, as they were when the attempt began.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The same as texts, to be written down for others to read.
    pub config_texts: BTreeMap<String, String>,
    /// What [`Bucket::state`] was the last time; empty the first time. Other provisioners of the same backend may have
    /// written it.
    pub state: BTreeMap<String, String>,
    /// The id of the key that the user has, once it is known. The backend may have others: they are about to be removed.
    pub access_key_id: Option<String>,
    /// That key as it is in the claim's Secret, where the Secret is as the controller has written it. For backends that
    /// show a key only once.
    pub credentials: Option<Credentials>,
    /// The Secrets that the class names, by the roles that [the author declares](super::BucketCapabilities::secret).
    pub secrets: Secrets,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The request of one author.
pub type RequestOf<B> = BucketRequest<<B as BucketProvisioner>::Parameters, <B as BucketProvisioner>::Config>;

impl<P, C> BucketRequest<P, C> {
    /// A request of the claim `test/claim` for a bucket of this name, for an author's own tests. Its fields may be changed.
    pub fn new(name: impl Into<String>, parameters: P, config: C) -> Self {
        Self {
            name: name.into(),
            claim: ClaimName {
                namespace: "test".to_owned(),
                name: "claim".to_owned(),
                uid: "00000000-0000-4000-8000-000000000001".to_owned(),
            },
            parameters: Arc::new(parameters),
            config: Arc::new(config),
            config_texts: BTreeMap::new(),
            state: BTreeMap::new(),
            access_key_id: None,
            credentials: None,
            secrets: Secrets::default(),
            fencing_token: FencingToken::unlimited(),
        }
    }
}

/// Namespace, name and uid of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid. Empty where an object of another provisioner does not tell it.
    pub uid: String,
}

impl ClaimName {
    /// A name for the claim's user in the backend. It is the same in every attempt, and no other claim ever has it.
    pub fn user(&self) -> String {
        format!("obc-{}-{}-{}", self.namespace, self.name, self.uid)
    }
}

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a claim's bucket comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It is made for the claim ([`BucketProvisioner::provision`]).
    Provisioned,
    /// It exists, and the class names it ([`BucketProvisioner::grant`]).
    Granted,
}

/// What a user may do with the objects of a bucket, for an author's parameters. `read-write`, `read-only` or `write-only`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reads, writes and deletes objects.
    #[default]
    ReadWrite,
    /// Lists and reads objects.
    ReadOnly,
    /// Writes objects.
    WriteOnly,
}

impl Access {
    /// What a claim may do whose class allows this and that asks for `asked`, or for nothing by itself.
    ///
    /// # Errors
    /// When the claim asks for more.
    pub fn restricted_to(self, asked: Option<Self>) -> Result<Self, ProvisionError> {
        match asked {
            None => Ok(self),
            Some(asked) if self == Self::ReadWrite || self == asked => Ok(asked),
            Some(_) => Err(ProvisionError::retry(
                "accessMode in additionalConfig allows what the class does not: leave it out",
            )),
        }
    }

    /// Whether objects may be read.
    pub fn reads(self) -> bool {
        self != Self::WriteOnly
    }

    /// Whether objects may be written.
    pub fn writes(self) -> bool {
        self != Self::ReadOnly
    }
}

/// What becomes of the objects of a bucket whose claim is deleted, for an author's parameters. `Delete` or `DeleteIfEmpty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum DeletionPolicy {
    /// They go with the bucket.
    #[default]
    Delete,
    /// A bucket with objects stays until somebody has deleted them.
    DeleteIfEmpty,
}

impl DeletionPolicy {
    /// Why a bucket that holds objects is not deleted.
    pub fn not_empty(bucket: &str) -> DeleteError {
        DeleteError::retry(format!(
            "the bucket {bucket} holds objects, and its class deletes empty buckets only (deletionPolicy): delete them, with \
             the keys of the claim's Secret for example"
        ))
    }
}

/// A key of the backend's.
#[derive(Clone, PartialEq, Eq)]
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

/// Where clients reach a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether clients speak TLS with it.
    pub tls: bool,
    /// The region, for backends that have some.
    pub region: String,
    /// A part of the region, for backends that have some.
    pub sub_region: String,
}

impl Endpoint {
    /// That of a URL with `http` or `https`, without a region. `None` for a text that is none.
    pub fn of_url(url: &str) -> Option<Self> {
        let url: http::Uri = url.parse().ok()?;
        let (tls, standard) = match url.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return None,
        };
        let host = url.host().filter(|host| !host.is_empty())?.to_owned();
        Some(Self { host, port: url.port_u16().unwrap_or(standard), tls, ..Self::default() })
    }
}

/// A bucket with a user for it, as [`BucketProvisioner::provision`] and [`BucketProvisioner::grant`] answer.
///
/// ```
/// use kube_provisioner::bucket::{Bucket, Credentials, Endpoint};
///
/// let endpoint = Endpoint { host: "s3.example.com".into(), port: 443, tls: true, ..Endpoint::default() };
/// let bucket = Bucket::new(endpoint, Credentials::new("AKIA", "secret")).state("userName", "obc-shop-photos");
/// # let _ = bucket;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Bucket {
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: Credentials,
    pub(crate) state: BTreeMap<String, String>,
    pub(crate) config_data: BTreeMap<String, String>,
    pub(crate) secret_data: BTreeMap<String, String>,
    pub(crate) warning: Option<String>,
}

impl Bucket {
    /// A bucket that is reached here with this key.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self {
            endpoint,
            credentials,
            state: BTreeMap::new(),
            config_data: BTreeMap::new(),
            secret_data: BTreeMap::new(),
            warning: None,
        }
    }

    /// Something that deletion needs, kept in the ObjectBucket's `spec.additionalState`. No secrets: administrators see it.
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

    /// What the claim's user should know although all went well; an event tells it.
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warning = Some(text.into());
        self
    }

    /// Where it is reached.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The user's key.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// What is kept for deletion.
    pub fn kept_state(&self) -> &BTreeMap<String, String> {
        &self.state
    }
}

/// The bucket that is to be deleted, or whose user's rights or keys are to be changed: what its ObjectBucket records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProvisionedBucket<P> {
    /// The bucket's name.
    pub name: String,
    /// The claim that it was made for. It may be gone.
    pub claim: ClaimName,
    /// Whether it was made for the claim.
    pub source: Source,
    /// The class's parameters as they were when the bucket was made. `None` for a bucket of another provisioner whose class
    /// is gone.
    pub parameters: Option<Arc<P>>,
    /// What [`Bucket::state`] was. Empty where no call has succeeded yet. Other provisioners of the same backend may have
    /// written it.
    pub state: BTreeMap<String, String>,
    /// The claim's `additionalConfig`, as it was applied the last time.
    pub config_texts: BTreeMap<String, String>,
    /// The id of the key that the user has, if it is known.
    pub access_key_id: Option<String>,
    /// The Secrets that the class named, as they are now.
    pub secrets: Secrets,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl<P> ProvisionedBucket<P> {
    /// A bucket of the claim `test/claim`, for an author's own tests. Its fields may be changed.
    pub fn new(name: impl Into<String>, source: Source, parameters: P) -> Self {
        let request = BucketRequest::new(name, parameters, ());
        Self {
            name: request.name,
            claim: request.claim,
            source,
            parameters: Some(request.parameters),
            state: request.state,
            config_texts: request.config_texts,
            access_key_id: None,
            secrets: request.secrets,
            fencing_token: request.fencing_token,
        }
    }
}
