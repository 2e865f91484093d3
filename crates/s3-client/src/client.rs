//! Clients for S3 and IAM: the AWS SDK, with the trust, limits and checksums that other stores also need.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_s3::config::endpoint::{DefaultResolver, Params, ResolveEndpoint as _};
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation, SharedIdentityCache,
};
use aws_smithy_runtime::client::retries::classifiers::HttpStatusCodeClassifier;
use aws_types::SdkConfig;
use http::Uri;

use crate::http::Http;
use crate::interceptors::{AnswerLimit, ContentMd5, ServerHeader};

/// Maximum number of attempts for a request that fails and can be repeated.
const ATTEMPTS: u32 = 3;

/// The location of a service and the parameters of its requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The endpoint: `https://host:port` or `http://host:port`. Defaults to the AWS endpoint of the region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// True to use an AWS FIPS endpoint.
    pub fips: bool,
    /// True to use an AWS dual-stack endpoint, which also has IPv6.
    pub dual_stack: bool,
    /// The time limit of one request, from connecting to the end of the response.
    pub time_limit: Duration,
    /// The maximum number of bytes read from a response.
    pub answer_limit: usize,
    /// True to retry requests that fail and can be repeated, at most twice.
    pub retries: bool,
    /// The connections to use.
    pub http: Http,
    /// A cache that keeps credentials until shortly before they expire. Without a cache, credentials are requested
    /// before each request.
    pub identities: Option<SharedIdentityCache>,
}

impl Settings {
    /// Returns settings for AWS: region `us-east-1`, 15 seconds and 64 MiB per response.
    pub fn new(http: Http) -> Self {
        Self {
            endpoint: None,
            region: "us-east-1".to_owned(),
            fips: false,
            dual_stack: false,
            time_limit: Duration::from_secs(15),
            answer_limit: 64 << 20,
            retries: false,
            http,
            identities: None,
        }
    }

    /// Returns the same settings with this endpoint.
    #[must_use]
    pub fn at(self, endpoint: impl Into<String>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..self }
    }

    /// Returns the configured S3 endpoint, or else the AWS endpoint of the region.
    ///
    /// # Errors
    /// Fails if S3 has no endpoint in the region.
    pub async fn s3_address(&self) -> Result<String, SettingsError> {
        if let Some(endpoint) = &self.endpoint {
            return Ok(endpoint.clone());
        }
        let nowhere = |reason: String| SettingsError::Region { region: self.region.clone(), reason };
        let params = Params::builder().region(&self.region).use_fips(self.fips).use_dual_stack(self.dual_stack);
        let params = params.force_path_style(true).build().map_err(|error| nowhere(error.to_string()))?;
        let address = DefaultResolver::new().resolve_endpoint(&params).await;
        Ok(address.map_err(|error| nowhere(error.to_string()))?.url().to_owned())
    }

    /// Returns the configuration of the AWS SDK clients.
    ///
    /// # Errors
    /// Fails if the endpoint is not valid.
    pub fn sdk_config(&self, credentials: impl Into<SharedCredentialsProvider>) -> Result<SdkConfig, SettingsError> {
        let retry =
            if self.retries { RetryConfig::standard().with_max_attempts(ATTEMPTS) } else { RetryConfig::disabled() };
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .credentials_provider(credentials.into())
            .http_client(self.http.client())
            .retry_config(retry)
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(self.time_limit).build())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .use_fips(self.fips)
            .use_dual_stack(self.dual_stack);
        config.set_identity_cache(self.identities.clone().or_else(|| Some(IdentityCache::no_cache())));
        if let Some(endpoint) = &self.endpoint {
            check_endpoint(endpoint)?;
            config.set_endpoint_url(Some(endpoint.trim_end_matches('/').to_owned()));
        }
        Ok(config.build())
    }

    /// Returns the name of the service for error messages.
    pub(crate) fn name(&self, service: &str) -> Arc<str> {
        match &self.endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').into(),
            None => format!("{service} in {}", self.region).into(),
        }
    }
}

/// The reason why these settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The endpoint is not valid.
    #[error("{0:?} is not a valid endpoint URL: expected http://host:port or https://host:port without a path")]
    Endpoint(String),
    /// S3 has no endpoint in the region.
    #[error("S3 has no endpoint in the region {region:?}: {reason}")]
    Region {
        /// The region.
        region: String,
        /// The error from the AWS endpoint table.
        reason: String,
    },
    /// The certificates cannot be used.
    #[error("the CA bundle cannot be used: {0}")]
    CaBundle(String),
}

/// An S3 client with one key. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) sdk: aws_sdk_s3::Client,
    pub(crate) endpoint: Arc<str>,
    server_header: Arc<OnceLock<String>>,
}

impl Client {
    /// Creates a client that signs with these credentials. It connects on first use.
    ///
    /// # Errors
    /// Fails if the endpoint is not valid.
    pub fn new(settings: &Settings, credentials: impl Into<SharedCredentialsProvider>) -> Result<Self, SettingsError> {
        let (config, server_header) = (settings.sdk_config(credentials)?, Arc::default());
        let config = aws_sdk_s3::config::Builder::from(&config)
            .force_path_style(true)
            .retry_classifier(busy())
            .interceptor(ContentMd5)
            .interceptor(ServerHeader(Arc::clone(&server_header)))
            .interceptor(AnswerLimit(settings.answer_limit));
        Ok(Self { sdk: aws_sdk_s3::Client::from_conf(config.build()), endpoint: settings.name("S3"), server_header })
    }

    /// Returns the same client with another key.
    #[must_use]
    pub fn with_credentials(&self, credentials: impl Into<SharedCredentialsProvider>) -> Self {
        let config = self.sdk.config().to_builder().credentials_provider(credentials.into());
        Self { sdk: aws_sdk_s3::Client::from_conf(config.build()), ..self.clone() }
    }

    /// Returns the name of the service in errors: the endpoint, if one was configured.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the header `Server` of the first response that contains it, or an empty string if there is none yet.
    /// Responses with status 429 or 5xx are ignored, because they may come from a proxy.
    pub fn server_header(&self) -> &str {
        self.server_header.get().map_or("", String::as_str)
    }

    /// Returns the AWS SDK client, for requests that this client has no method for.
    pub fn sdk(&self) -> &aws_sdk_s3::Client {
        &self.sdk
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Classifies busy services: the AWS SDK knows the error codes of AWS for this, but not the status that other services
/// use.
pub(crate) fn busy() -> HttpStatusCodeClassifier {
    HttpStatusCodeClassifier::new_from_codes(&[429][..])
}

fn check_endpoint(endpoint: &str) -> Result<(), SettingsError> {
    // Keep a user and a password in the endpoint out of errors.
    let malformed = || SettingsError::Endpoint(endpoint.rsplit('@').next().unwrap_or_default().to_owned());
    let uri: Uri = endpoint.parse().map_err(|_| malformed())?;
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(malformed());
    };
    // The AWS SDK would append the bucket's name directly to the path.
    let has_path = !uri.path().trim_end_matches('/').is_empty();
    if has_path || uri.query().is_some() || authority.as_str().contains('@') || authority.host().is_empty() {
        Err(malformed())
    } else {
        Ok(())
    }
}
