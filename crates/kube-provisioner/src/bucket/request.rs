//! The arguments and the answers of an author's methods for buckets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::Client;
use provisioner_runtime::controller::FencingToken;

use super::provisioner::BucketProvisioner;
use crate::protocol::BUCKET_CLAIM_NAME;
use crate::request::TEST_CLUSTER;
use crate::secrets::Secrets;

/// What [`BucketProvisioner::provision`] and [`BucketProvisioner::grant`] are asked for.
///
/// One for an author's own tests:
///
/// ```
/// # use kube_provisioner::bucket::BucketRequest;
/// let mut request = BucketRequest::new("photos", (), ());
/// request.config_texts.insert("maxObjects".to_owned(), "1000".to_owned());
/// assert_eq!(request.claim.user(), "obc-test-claim-00000000-0000-4000-8000-000000000001");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BucketRequest<P, C> {
    /// The bucket's name: the claim's own, one made of its prefix and its uid, the one that the class names, or that of another
    /// claim's bucket.
    pub name: String,
    /// The claim that the bucket is made for. After a restore it keeps the uid that the claim had when the bucket was made.
    pub claim: ClaimName,
    /// For a claim that uses the bucket of another claim of its namespace ([`BucketProvisioner::grant`]): that one. A bucket that
    /// was not made for it is refused. `None` where the class names the bucket.
    pub made_for: Option<MadeFor>,
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
    /// Every key of the claim's `additionalConfig` that may have been applied: the last time, by an attempt that failed on its
    /// way, or by another provisioner of the same backend. What it has and `config_texts` lacks is to be taken away.
    pub applied_config: BTreeMap<String, String>,
    /// The cluster in which this provisioner runs, for the tags and labels that prove ownership: a bucket whose tags name
    /// another cluster belongs to that cluster.
    pub cluster_id: String,
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
            made_for: None,
            parameters: Arc::new(parameters),
            config: Arc::new(config),
            config_texts: BTreeMap::new(),
            state: BTreeMap::new(),
            access_key_id: None,
            credentials: None,
            secrets: Secrets::default(),
            applied_config: BTreeMap::new(),
            cluster_id: TEST_CLUSTER.to_owned(),
            fencing_token: FencingToken::unlimited(),
        }
    }
}

/// Namespace, name and uid of a claim: all that identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid. Empty if an object of another provisioner does not have it.
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

/// The claim that a bucket was made for, where another one uses it.
///
/// One for an author's own tests:
///
/// ```
/// # use kube_provisioner::bucket::{BucketRequest, MadeFor};
/// let mut request = BucketRequest::new("photos", (), ());
/// let owner = BucketRequest::new("photos", (), ()).claim;
/// request.made_for = Some(MadeFor::new(owner, [("userName".to_owned(), "obc-test-claim".to_owned())].into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MadeFor {
    /// The claim, with the uid that it had when the bucket was made.
    pub claim: ClaimName,
    /// What [`Bucket::state`] was the last time.
    pub state: BTreeMap<String, String>,
}

impl MadeFor {
    /// A claim, and what [`Bucket::state`] of its bucket was.
    pub fn new(claim: ClaimName, state: BTreeMap<String, String>) -> Self {
        Self { claim, state }
    }

    /// Why a claim is not let into a bucket that was not made for the claim that it names, or not any more.
    pub fn is_not_its(&self, bucket: &str) -> String {
        let claim = &self.claim;
        format!(
            "the bucket {bucket} of the claim {claim} is gone, or was replaced by another one: create {claim} again, or name another claim in {BUCKET_CLAIM_NAME}"
        )
    }
}

/// Where a claim's bucket comes from. There will be no third way, so that authors can match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It is made for the claim ([`BucketProvisioner::provision`]).
    Provisioned,
    /// It exists: the class names it, or it was made for another claim of the namespace ([`BucketProvisioner::grant`]).
    Granted,
}

/// What [`BucketProvisioner::start`] is given.
#[derive(Clone)]
#[non_exhaustive]
pub struct BucketStart {
    /// The client that the controller uses. What the author does with it needs
    /// [rights of its own](BucketProvisioner::access_rules).
    pub client: Client,
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
}

impl BucketStart {
    /// For an author's own tests. Its fields may be changed.
    pub fn new(client: Client) -> Self {
        Self { client, cluster_id: TEST_CLUSTER.to_owned() }
    }
}

impl fmt::Debug for BucketStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStart").field("cluster_id", &self.cluster_id).finish_non_exhaustive()
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

/// Where clients reach a bucket.
///
/// ```
/// use kube_provisioner::bucket::Endpoint;
///
/// let endpoint = Endpoint::https("s3.example.com").region("eu-1");
/// assert_eq!((endpoint.port, endpoint.tls), (443, true));
/// assert_eq!(Endpoint::of_url("http://store:8080").unwrap(), Endpoint::http("store").port(8080));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// That of a host which serves HTTPS on port 443.
    pub fn https(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: 443, tls: true, ..Self::default() }
    }

    /// That of a host which serves HTTP on port 80.
    pub fn http(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: 80, ..Self::default() }
    }

    /// Another port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// In this region.
    #[must_use]
    pub fn region(self, region: impl Into<String>) -> Self {
        Self { region: region.into(), ..self }
    }

    /// In this part of its region.
    #[must_use]
    pub fn sub_region(self, sub_region: impl Into<String>) -> Self {
        Self { sub_region: sub_region.into(), ..self }
    }

    /// That of a URL with `http` or `https`, without a region. `None` for a text that is none.
    pub fn of_url(url: &str) -> Option<Self> {
        let url: http::Uri = url.parse().ok()?;
        let host = url.host().filter(|host| !host.is_empty())?;
        let endpoint = match url.scheme_str() {
            Some("https") => Self::https(host),
            Some("http") => Self::http(host),
            _ => return None,
        };
        let port = url.port_u16().unwrap_or(endpoint.port);
        Some(endpoint.port(port))
    }
}

/// A bucket with a user for it, as [`BucketProvisioner::provision`] and [`BucketProvisioner::grant`] answer.
///
/// ```
/// use kube_provisioner::bucket::{Bucket, Credentials, Endpoint};
///
/// let bucket = Bucket::new(Endpoint::https("s3.example.com"), Credentials::new("AKIA", "secret")).state("userName", "obc-shop-photos");
/// assert_eq!(bucket.state["userName"], "obc-shop-photos");
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Bucket {
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// The user's key. `None` where pods identify themselves by their service account.
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

impl Bucket {
    /// A bucket that is reached here with this key.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..Self::without_key(endpoint) }
    }

    /// A bucket that is reached here without a key: the backend knows the pods of a service account. The claim's Secret gets
    /// no key, and what clients need stands in [its ConfigMap](Self::config).
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

    /// A warning for the claim's user although the call succeeded; it becomes an event.
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warning = Some(text.into());
        self
    }
}

/// The bucket that is to be deleted, or whose user's rights or keys are to be changed: what its ObjectBucket records.
///
/// One for an author's own tests:
///
/// ```
/// # use kube_provisioner::bucket::{ProvisionedBucket, Source};
/// let mut bucket = ProvisionedBucket::new("photos", Source::Provisioned, ());
/// bucket.state.insert("userName".to_owned(), bucket.claim.user());
/// assert_eq!(bucket.name, "photos");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProvisionedBucket<P> {
    /// The bucket's name.
    pub name: String,
    /// The claim that it was made for. It may be gone.
    pub claim: ClaimName,
    /// Whether it was made for the claim.
    pub source: Source,
    /// The claim that it was made for, as [`BucketRequest::made_for`].
    pub made_for: Option<MadeFor>,
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
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
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
            made_for: None,
            parameters: Some(request.parameters),
            state: request.state,
            config_texts: request.config_texts,
            access_key_id: None,
            secrets: request.secrets,
            cluster_id: request.cluster_id,
            fencing_token: request.fencing_token,
        }
    }
}
