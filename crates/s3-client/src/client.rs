//! The client: signed requests over HTTP, with limits.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::encode;
use crate::error::{Answer, Error, refusal};
use crate::sign::{self, Credentials, Rule, Scope, Signable};

/// The pauses before a request is sent again.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(900)];

/// Where a service is and how it is asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address: `https://host:port`, or with `http`. A path in it comes before every request's path.
    pub endpoint: String,
    /// The region that signatures are for.
    pub region: String,
    /// The service that signatures are for; `s3` is signed by S3's rule and any other by the general one.
    pub service: String,
    /// Certificates in PEM that the service's certificate must be signed by, instead of those that the system trusts.
    pub ca_bundle: Option<Vec<u8>>,
    /// The time limit of one request, from the connection to the end of the answer.
    pub time_limit: Duration,
    /// The most bytes of an answer that are read.
    pub answer_limit: usize,
    /// Whether a request is sent again, twice at most, when the service is too busy, or when it fails and can be sent twice.
    pub repeats: bool,
    /// The clock, for signatures.
    pub clock: fn() -> SystemTime,
}

impl Settings {
    /// S3 at this address: region `us-east-1`, 15 seconds and 64 MiB for each answer.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            region: "us-east-1".to_owned(),
            service: "s3".to_owned(),
            ca_bundle: None,
            time_limit: Duration::from_secs(15),
            answer_limit: 64 << 20,
            repeats: false,
            clock: SystemTime::now,
        }
    }
}

/// Why there can be no client of these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The address is none.
    #[error("{0:?} is no address of a service: expected http://host:port or https://host:port")]
    Endpoint(String),
    /// The certificates cannot be used.
    #[error("the CA bundle cannot be used: {0}")]
    CaBundle(String),
}

/// Sends signed requests to one service. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    credentials: Arc<Credentials>,
    time_limit: Duration,
}

struct Shared {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    settings: Settings,
    /// `http://host:port` without a slash at the end.
    base: String,
    base_path: String,
    host: String,
}

impl Client {
    /// A client that signs with this key. It connects when it is used.
    ///
    /// # Errors
    /// When the address or the certificates make no sense.
    pub fn new(settings: Settings, credentials: Credentials) -> Result<Self, SettingsError> {
        let malformed = || SettingsError::Endpoint(settings.endpoint.clone());
        let uri: Uri = settings.endpoint.parse().map_err(|_| malformed())?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(malformed());
        };
        // A user or a password in the address would end up in errors.
        if uri.query().is_some() || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(malformed());
        }
        let standard = if scheme == "https" { 443 } else { 80 };
        let host = match authority.port_u16() {
            Some(port) if port != standard => authority.as_str().to_owned(),
            _ => authority.host().to_owned(),
        };
        let base_path = uri.path().trim_end_matches('/').to_owned();
        let base = format!("{scheme}://{authority}");
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector(scheme == "https", settings.ca_bundle.as_deref())?);
        let time_limit = settings.time_limit;
        let shared = Shared { http, base, base_path, host, settings };
        Ok(Self { shared: Arc::new(shared), credentials: Arc::new(credentials), time_limit })
    }

    /// The same client with another key.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        Self { credentials: Arc::new(credentials), ..self.clone() }
    }

    /// The same client with another time limit.
    #[must_use]
    pub fn with_time_limit(&self, time_limit: Duration) -> Self {
        Self { time_limit, ..self.clone() }
    }

    /// The service's address.
    pub fn endpoint(&self) -> &str {
        &self.shared.base
    }

    /// Sends a request and reads the answer; again, if the settings say so.
    ///
    /// # Errors
    /// When there is no answer, or another one than 2xx.
    pub async fn request(&self, request: Request) -> Result<Response, Error> {
        let pauses: &[Duration] = if self.shared.settings.repeats { &PAUSES } else { &[] };
        for pause in pauses {
            match self.request_once(request.clone()).await {
                Err(error) if request.may_be_repeated_after(&error) => tokio::time::sleep(*pause).await,
                answer => return answer,
            }
        }
        self.request_once(request).await
    }

    async fn request_once(&self, request: Request) -> Result<Response, Error> {
        let limit = self.time_limit;
        let timed_out = || Error::TimedOut { endpoint: self.endpoint().to_owned(), limit };
        tokio::time::timeout(limit, self.send(request)).await.map_err(|_| timed_out())?
    }

    /// Sends a request as it is, without a signature, to a path with a query of this service: for services that want other
    /// proof. Any answer is one, not only 2xx.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn request_unsigned(&self, request: http::Request<Bytes>) -> Result<Response, Error> {
        let limit = self.time_limit;
        let timed_out = || Error::TimedOut { endpoint: self.endpoint().to_owned(), limit };
        let Shared { base, base_path, .. } = &*self.shared;
        let (mut parts, body) = request.into_parts();
        let uri = format!("{base}{base_path}{}", parts.uri).parse();
        parts.uri = uri.map_err(|_| Error::Request("the names in the request are too long".to_owned()))?;
        let exchange = self.exchange(http::Request::from_parts(parts, Full::new(body)));
        tokio::time::timeout(limit, exchange).await.map_err(|_| timed_out())?
    }

    async fn send(&self, request: Request) -> Result<Response, Error> {
        let Response { status, headers, body } = self.exchange(self.signed(request)?).await?;
        match (200..300).contains(&status) {
            true => Ok(Response { status, headers, body }),
            false => Err(refusal(self.endpoint(), status, &headers, &body)),
        }
    }

    async fn exchange(&self, request: http::Request<Full<Bytes>>) -> Result<Response, Error> {
        let unreachable = |reason: String| Error::Unreachable { endpoint: self.endpoint().to_owned(), reason };
        let answer = self.shared.http.request(request).await.map_err(|error| unreachable(chain(&error)))?;
        let (parts, body) = answer.into_parts();
        let limit = self.shared.settings.answer_limit;
        let body = Limited::new(body, limit).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => Error::TooLarge { endpoint: self.endpoint().to_owned(), limit },
            false => unreachable(error.to_string()),
        })?;
        Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() })
    }

    fn signed(&self, request: Request) -> Result<http::Request<Full<Bytes>>, Error> {
        let Shared { settings, base, base_path, host, .. } = &*self.shared;
        let Request { method, path, query, mut headers, body, .. } = request;
        let rule = if settings.service == "s3" { Rule::S3 } else { Rule::General };
        let path = format!("{base_path}{path}");
        let time = (settings.clock)();
        let payload_hash = sign::sha256_hex(&body);
        headers.push(("host".to_owned(), host.clone()));
        headers.push(("x-amz-date".to_owned(), sign::amz_date(time)));
        if rule == Rule::S3 {
            headers.push(("x-amz-content-sha256".to_owned(), payload_hash.clone()));
        }
        if let Some(token) = &self.credentials.session_token {
            headers.push(("x-amz-security-token".to_owned(), token.clone()));
        }
        let scope = Scope { region: &settings.region, service: &settings.service, rule, time };
        let signable = Signable {
            method: method.as_str(),
            path: &path,
            query: &query,
            headers: &headers,
            payload_hash: &payload_hash,
        };
        let authorization = sign::authorization(&self.credentials, scope, signable);
        let query = encode::query(&query);
        let separator = if query.is_empty() { "" } else { "?" };
        let uri = format!("{base}{}{separator}{query}", encode::path(&path));
        let cannot = |what: String| Error::Request(what);
        let uri: Uri = uri.parse().map_err(|_| cannot("the names in the request are too long".to_owned()))?;
        let mut signed = http::Request::new(Full::new(body));
        (*signed.method_mut(), *signed.uri_mut()) = (method, uri);
        let map = signed.headers_mut();
        for (name, value) in headers {
            let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = parsed.ok_or_else(|| cannot(format!("the value of the header {name} is malformed")))?;
            map.append(name, value);
        }
        let mut authorization = HeaderValue::try_from(authorization)
            .map_err(|_| cannot("the id of the access key has characters that no such id has".to_owned()))?;
        authorization.set_sensitive(true);
        map.insert(header::AUTHORIZATION, authorization);
        Ok(signed)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, credentials, .. } = self;
        f.debug_struct("Client")
            .field("endpoint", &shared.base)
            .field("credentials", credentials)
            .finish_non_exhaustive()
    }
}

/// A request that is not signed yet.
#[derive(Clone, Debug)]
#[must_use]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Bytes,
    repeats: Repeats,
}

/// When a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    Never,
    /// The service says that it has done nothing.
    Refused,
    /// Nobody knows what it has done.
    Lost,
}

impl Request {
    /// A request for this path, which begins with a slash and is not encoded.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        let repeats = match method {
            Method::GET | Method::HEAD | Method::DELETE => Repeats::Lost,
            _ => Repeats::Refused,
        };
        Self { method, path: path.into(), query: Vec::new(), headers: Vec::new(), body: Bytes::new(), repeats }
    }

    /// Another argument. The value is empty for those that have none.
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Another header, which is signed.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Doing it twice is as good as doing it once, as it is for GET, HEAD and DELETE.
    pub fn repeatable(mut self) -> Self {
        self.repeats = Repeats::Lost;
        self
    }

    /// It is sent once, also when the service has too much to do: a while later it may mean something else.
    pub fn once(mut self) -> Self {
        self.repeats = Repeats::Never;
        self
    }

    fn may_be_repeated_after(&self, error: &Error) -> bool {
        match error {
            Error::Answer(answer) if answer.is_busy() => self.repeats != Repeats::Never,
            Error::Answer(Answer { status, .. }) | Error::NotS3 { status, .. } => {
                self.repeats == Repeats::Lost && *status >= 500
            }
            Error::Unreachable { .. } => self.repeats == Repeats::Lost,
            _ => false,
        }
    }
}

/// An answer of the service's: of [`Client::request`] always 2xx.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

fn connector(tls: bool, ca_bundle: Option<&[u8]>) -> Result<HttpsConnector<HttpConnector>, SettingsError> {
    let unusable = |reason: String| SettingsError::CaBundle(reason);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = hyper_rustls::HttpsConnectorBuilder::new();
    let builder = if tls && ca_bundle.is_none() {
        builder.with_provider_and_native_roots(provider).map_err(|error| unusable(error.to_string()))?
    } else {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_bundle.unwrap_or_default()) {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
        if ca_bundle.is_some() && roots.is_empty() {
            return Err(unusable("it holds no certificate in PEM".to_owned()));
        }
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder.with_tls_config(config)
    };
    Ok(builder.https_or_http().enable_http1().build())
}

/// An error with what caused it, which hyper keeps apart.
fn chain(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
