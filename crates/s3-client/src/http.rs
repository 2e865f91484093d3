//! Connections: trusted certificates and proxies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Limited};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::client::SettingsError;
use crate::error::{Error, body_error, chain};

/// Link-local addresses of the machine: its metadata, and the credentials of its containers.
const LINK_LOCAL: [&str; 2] = ["169.254.", "[fd00:ec2::"];

/// Maximum number of bytes read from a response to a request that does not use the AWS SDK.
const ANSWER_LIMIT: usize = 64 << 20;

/// Maximum number of cached connection sets. Certificates change, and connections with old ones are no longer useful.
const MAX_CACHED: usize = 100;

/// Creates and caches connections. Clones share them.
#[derive(Clone)]
pub struct Http {
    tls: TlsContext,
    proxies: ProxyConfig,
    /// Connectors by the connect and read timeouts that the SDK's metadata clients use.
    known: Arc<Mutex<BTreeMap<[Option<Duration>; 2], SharedHttpConnector>>>,
}

impl Http {
    /// Creates connections through the proxies from the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
    /// Certificates of services must be signed by a certificate in `ca_bundle`, in PEM, or else by one that the system
    /// trusts.
    ///
    /// # Errors
    /// Fails if the certificates are not valid.
    pub fn from_env(ca_bundle: Option<&[u8]>) -> Result<Self, SettingsError> {
        Self::new(ca_bundle, ProxyConfig::from_env())
    }

    /// Same as [`from_env`](Self::from_env), with these proxies.
    ///
    /// # Errors
    /// Fails if the certificates are not valid.
    pub fn new(ca_bundle: Option<&[u8]>, proxies: ProxyConfig) -> Result<Self, SettingsError> {
        let tls = TlsContext::builder().with_trust_store(trust(ca_bundle)?).build();
        let tls = tls.map_err(|error| SettingsError::CaBundle(error.to_string()))?;
        Ok(Self { tls, proxies, known: Arc::default() })
    }

    /// Returns an HTTP client for the AWS SDK.
    pub fn client(&self) -> SharedHttpClient {
        let http = self.clone();
        http_client_fn(move |settings, _| http.within(settings))
    }

    /// Sends a request that does not use the AWS SDK; returns status and body of the response. `endpoint` names the
    /// service in errors.
    ///
    /// # Errors
    /// Fails if no complete response arrives in time.
    pub async fn send(
        &self,
        endpoint: &str,
        request: Request<Bytes>,
        time_limit: Duration,
    ) -> Result<(u16, Bytes), Error> {
        let unreachable = |reason: String| Error::Unreachable { endpoint: endpoint.to_owned(), reason };
        let request = request.map(SdkBody::from).try_into().map_err(|error| Error::Request(format!("{error}")))?;
        let exchange = async {
            let connector = self.within(&HttpConnectorSettings::default());
            let answer = connector.call(request).await.map_err(|error| unreachable(chain(&error)))?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
            Ok((status, body.map_err(|error| body_error(endpoint, &*error))?.to_bytes()))
        };
        let timed_out = |_| Error::TimedOut { endpoint: endpoint.to_owned() };
        tokio::time::timeout(time_limit, exchange).await.map_err(timed_out)?
    }

    fn within(&self, settings: &HttpConnectorSettings) -> SharedHttpConnector {
        let limits = [settings.connect_timeout(), settings.read_timeout()];
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let connector = |proxies| {
            Connector::builder()
                .proxy_config(proxies)
                .pool_idle_timeout(Duration::from_secs(30))
                .connector_settings(settings.clone())
                .sleep_impl(TokioSleep::new())
                .tls_provider(Provider::Rustls(CryptoMode::Ring))
                .tls_context(self.tls.clone())
                .build()
        };
        let routes = || Routes { direct: connector(ProxyConfig::disabled()), proxied: connector(self.proxies.clone()) };
        known.entry(limits).or_insert_with(|| SharedHttpConnector::new(routes())).clone()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// Connections for binaries that read certificates before each call. Calls with the same certificates share them.
#[derive(Debug, Default)]
pub struct Connections {
    known: Mutex<BTreeMap<Option<Vec<u8>>, Http>>,
}

impl Connections {
    /// Same as [`Http::from_env`].
    ///
    /// # Errors
    /// Fails if the certificates are not valid.
    pub fn with_ca_bundle(&self, ca_bundle: Option<Vec<u8>>) -> Result<Http, SettingsError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = known.get(&ca_bundle) {
            return Ok(http.clone());
        }
        let http = Http::from_env(ca_bundle.as_deref())?;
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(ca_bundle, http.clone());
        Ok(http)
    }
}

/// Connectors with and without proxies: link-local addresses are never reached through a proxy.
#[derive(Debug)]
struct Routes {
    direct: Connector,
    proxied: Connector,
}

impl HttpConnector for Routes {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_local = |uri: &str| {
            let host = uri.split_once("://").map_or(uri, |(_, host)| host);
            LINK_LOCAL.iter().any(|start| host.starts_with(start))
        };
        if is_local(request.uri()) { self.direct.call(request) } else { self.proxied.call(request) }
    }
}

fn trust(ca_bundle: Option<&[u8]>) -> Result<TrustStore, SettingsError> {
    let Some(bundle) = ca_bundle else { return Ok(TrustStore::default()) };
    let unusable = |reason: String| SettingsError::CaBundle(reason);
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        Err(unusable("it contains no PEM certificate".to_owned()))
    } else {
        Ok(TrustStore::empty().with_pem_certificate(bundle))
    }
}
