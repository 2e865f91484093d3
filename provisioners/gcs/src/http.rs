//! HTTP client for Google's services, with custom CA certificates, proxies, timeouts and size limits. Errors contain no
//! secrets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Uri};
use reqwest::{Certificate, NoProxy, Proxy, redirect};

/// Size limit of a response in bytes. The largest responses are lists of 500 objects.
const ANSWER_LIMIT: usize = 8 << 20;
/// Limit of the cache, because clients with replaced certificates are never used again.
const MAX_CLIENTS: usize = 100;

/// A request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{endpoint} cannot be reached: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// The service may have executed the request.
    #[error("{endpoint} did not answer within {limit:?}")]
    TimedOut { endpoint: String, limit: Duration },
    #[error("{endpoint} answered with more than {ANSWER_LIMIT} bytes")]
    TooLarge { endpoint: String },
    #[error("invalid request: {0}")]
    Request(&'static str),
}

/// A response with any status.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The proxy for each scheme. Its address may contain a password.
#[derive(Clone, Default)]
pub(crate) struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case.
    pub(crate) fn from_env() -> Result<Self, String> {
        Self::of(|name| std::env::var(name).or_else(|_| std::env::var(name.to_lowercase())).unwrap_or_default())
    }

    /// `value` returns the value of a variable, or an empty text if it is not set.
    pub(crate) fn of(value: impl Fn(&str) -> String) -> Result<Self, String> {
        let proxy = |name: &str, make: fn(String) -> reqwest::Result<Proxy>| {
            let text = value(name);
            if text.is_empty() {
                return Ok(None);
            }
            let address = if text.contains("://") { text } else { format!("http://{text}") };
            let is_known = address.starts_with("http://") || address.starts_with("https://");
            let proxy = is_known.then(|| make(address).ok()).flatten();
            let proxy = proxy.ok_or_else(|| format!("{name} is not a valid proxy URL: expected http://host:port"))?;
            Ok::<_, String>(Some(proxy.no_proxy(NoProxy::from_string(&value("NO_PROXY")))))
        };
        Ok(Self { http: proxy("HTTP_PROXY", Proxy::http)?, https: proxy("HTTPS_PROXY", Proxy::https)? })
    }
}

/// Cache of one client per service.
pub(crate) struct Clients {
    proxies: Proxies,
    time_limit: Duration,
    made: Mutex<BTreeMap<Key, Client>>,
}

/// Address, CA certificates, and true if a proxy may be used.
type Key = (String, Option<Vec<u8>>, bool);

impl Clients {
    pub(crate) fn new(proxies: Proxies, time_limit: Duration) -> Self {
        Self { proxies, time_limit, made: Mutex::default() }
    }

    /// Returns a client for the service at this URL. The CA certificates (PEM) replace the system's.
    pub(crate) fn get(&self, url: &str, ca_bundle: Option<Vec<u8>>) -> Result<Client, String> {
        self.cached((url.to_owned(), ca_bundle, true))
    }

    /// Returns a client that uses no proxy, for a service on this host or its network.
    pub(crate) fn direct(&self, url: &str) -> Result<Client, String> {
        self.cached((url.to_owned(), None, false))
    }

    fn cached(&self, key: Key) -> Result<Client, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let (url, ca_bundle, through_proxy) = &key;
        let none = Proxies::default();
        let proxies = if *through_proxy { &self.proxies } else { &none };
        let client = Client::new(url, ca_bundle.as_deref(), proxies, self.time_limit)?;
        if made.len() >= MAX_CLIENTS {
            made.clear();
        }
        made.insert(key, client.clone());
        Ok(client)
    }
}

/// HTTP client for one service. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// The URL without a trailing slash.
    base: String,
    /// Text appended to the reason if the service is unreachable.
    hint: &'static str,
    time_limit: Duration,
}

impl Client {
    fn new(url: &str, ca_bundle: Option<&[u8]>, proxies: &Proxies, time_limit: Duration) -> Result<Self, String> {
        let base = base_of(url)?;
        let (proxy, hint) = if base.starts_with("https:") {
            (&proxies.https, "; HTTPS_PROXY is set")
        } else {
            (&proxies.http, "; HTTP_PROXY is set")
        };
        let hint = if proxy.is_some() { hint } else { "" };
        // reqwest uses the process's provider. An error means that one is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().redirect(redirect::Policy::none()).no_proxy();
        let builder = proxy.iter().cloned().fold(builder, reqwest::ClientBuilder::proxy);
        let builder = match ca_bundle {
            Some(pem) => builder.tls_certs_only(certificates(pem)?),
            // Without TLS, the client must work on a host without CA certificates.
            None if base.starts_with("http:") && proxy.is_none() => builder.tls_certs_only([]),
            None => builder,
        };
        let http = builder.build().map_err(unusable)?;
        Ok(Self { http, base, hint, time_limit })
    }

    /// Returns the service's URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.base
    }

    /// Sends a request. Its path and query are appended to the service's URL.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response, Error> {
        let (mut parts, body) = request.into_parts();
        let uri: Result<Uri, _> = format!("{}{}", self.base, parts.uri).parse();
        parts.uri = uri.map_err(|_| Error::Request("the names in the request are too long"))?;
        let path = parts.uri.path().to_owned();
        let request = reqwest::Request::try_from(Request::from_parts(parts, body));
        let request = request.map_err(|_| Error::Request("a name in the request is malformed"))?;
        // Parsing a URL removes `.` and `..`, so it would name another resource.
        if request.url().path() != path {
            return Err(Error::Request("a name in the request is not valid in a URL"));
        }
        let limit = self.time_limit;
        let timed_out = || Error::TimedOut { endpoint: self.base.clone(), limit };
        tokio::time::timeout(limit, self.exchange(request)).await.map_err(|_| timed_out())?
    }

    async fn exchange(&self, request: reqwest::Request) -> Result<Response, Error> {
        let unreachable = |error| {
            let reason = format!("{}{}", chain(error), self.hint);
            Error::Unreachable { endpoint: self.base.clone(), reason }
        };
        let mut answer = self.http.execute(request).await.map_err(unreachable)?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(Error::TooLarge { endpoint: self.base.clone() });
            }
            body.extend_from_slice(&chunk);
        }
        let (status, headers) = (answer.status().as_u16(), std::mem::take(answer.headers_mut()));
        Ok(Response { status, headers, body: body.into() })
    }
}

/// Validates a service's URL and returns it without a trailing slash.
fn base_of(url: &str) -> Result<String, String> {
    let base = || {
        let uri: Uri = url.parse().ok()?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority())?;
        // A user or password in the URL would appear in error texts.
        let is_plain = uri.query().is_none() && !authority.as_str().contains('@') && !authority.host().is_empty();
        let path = uri.path().trim_end_matches('/');
        (is_plain && ["http", "https"].contains(&scheme)).then(|| format!("{scheme}://{authority}{path}"))
    };
    base().ok_or_else(|| {
        let shown = url.rsplit('@').next().unwrap_or_default();
        format!("{shown:?} is not a valid endpoint URL: expected http://host:port or https://host:port")
    })
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let certificates = Certificate::from_pem_bundle(pem).map_err(unusable)?;
    if certificates.is_empty() {
        Err("the CA bundle cannot be used: it contains no PEM certificate".to_owned())
    } else {
        Ok(certificates)
    }
}

fn unusable(error: reqwest::Error) -> String {
    format!("the CA bundle cannot be used: {}", chain(error))
}

/// Formats an error with its causes, without the URL, which contains names.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
