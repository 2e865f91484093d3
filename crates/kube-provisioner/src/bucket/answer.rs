//! What an author's methods for buckets answer.

use std::collections::BTreeMap;
use std::fmt;

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
#[derive(Clone, Debug)]
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

    /// The URL of it.
    #[cfg(feature = "cosi")]
    pub(crate) fn url(&self) -> String {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        match self.port == usual {
            true => format!("{scheme}://{}", self.host),
            false => format!("{scheme}://{}:{}", self.host, self.port),
        }
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
