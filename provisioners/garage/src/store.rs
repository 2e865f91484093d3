//! Where clusters of Garage are and with which token they are administered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kube_provisioner::Secrets;
use kube_provisioner::bucket::Endpoint;
use s3_client::{Client, Connections, Credentials, Settings, SettingsError};

use crate::admin::Admin;
use crate::parameters::Parameters;

/// The role of the Secret with the token of the admin API.
pub(crate) const ADMIN: &str = "admin";

/// What applies where classes say nothing. Files are read for every call, so the token may change.
#[derive(Args, Clone, Debug)]
pub struct Defaults {
    /// URL of S3, for classes without endpoint
    #[arg(long, env = "GARAGE_ENDPOINT", value_name = "URL")]
    pub(crate) endpoint: Option<String>,

    /// URL of the admin API, for classes without adminEndpoint
    #[arg(long, env = "GARAGE_ADMIN_ENDPOINT", value_name = "URL")]
    pub(crate) admin_endpoint: Option<String>,

    /// Garage's s3_region, for classes without region
    #[arg(long, env = "GARAGE_REGION", value_name = "REGION", default_value = "garage")]
    pub(crate) region: String,

    /// File with a token of the admin API, for classes without a Secret
    #[arg(long, env = "GARAGE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// File with CA certificates for both addresses [default: the system's]
    #[arg(long, env = "GARAGE_CA_BUNDLE", value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,

    /// Timeout of one request to Garage, in seconds
    #[arg(long, env = "GARAGE_CALL_TIMEOUT", value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) call_timeout: u64,
}

/// Gives connections. One that was made is used again.
#[derive(Debug)]
pub(crate) struct Stores {
    defaults: Defaults,
    connections: Connections,
}

/// A cluster of Garage.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) admin: Admin,
    /// That of S3, with its region.
    pub(crate) endpoint: Endpoint,
    client: Client,
}

impl Store {
    /// S3 with a key.
    pub(crate) fn s3(&self, credentials: Credentials) -> Client {
        self.client.with_credentials(credentials)
    }
}

/// Why there is no connection. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misconfigured(String);

impl From<SettingsError> for Misconfigured {
    fn from(error: SettingsError) -> Self {
        Self(error.to_string())
    }
}

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self { defaults, connections: Connections::default() }
    }

    /// The cluster of a class.
    pub(crate) fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, Misconfigured> {
        let defaults = &self.defaults;
        let url = address("endpoint", "endpoint", &parameters.endpoint, &defaults.endpoint)?;
        let admin = address("adminEndpoint", "admin-endpoint", &parameters.admin_endpoint, &defaults.admin_endpoint)?;
        let token = self.token(secrets)?;
        let ca_bundle = match (secrets.bytes(ADMIN, "caBundle"), &defaults.ca_bundle) {
            (Some(bundle), _) => Some(bundle.to_vec()),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => None,
        };
        let http = self.connections.trusting(ca_bundle)?;
        let region = parameters.region.as_ref().filter(|region| !region.is_empty()).unwrap_or(&defaults.region);
        let mut settings = Settings::new(http.clone()).at(&url);
        settings.time_limit = Duration::from_secs(defaults.call_timeout);
        settings.region = region.clone();
        // Every request names its own key.
        let client = Client::new(&settings, Credentials::new("", ""))?;
        let admin = Admin::new(http, admin, token, settings.time_limit);
        let endpoint = Endpoint::of_url(&url).ok_or(SettingsError::Endpoint(url))?.region(region);
        Ok(Store { admin, endpoint, client })
    }

    /// The cluster of the provisioner's own arguments, if they name one and a token.
    pub(crate) fn default(&self) -> Result<Option<Store>, Misconfigured> {
        let Defaults { endpoint, admin_endpoint, admin_token_file, .. } = &self.defaults;
        if endpoint.is_none() || admin_endpoint.is_none() || admin_token_file.is_none() {
            return Ok(None);
        }
        self.of(&Parameters::default(), &Secrets::default()).map(Some)
    }

    fn token(&self, secrets: &Secrets) -> Result<String, Misconfigured> {
        let token = match (secrets.has(ADMIN), &self.defaults.admin_token_file) {
            (true, _) => secrets.text(ADMIN, "token").map(|token| token.trim().to_owned()),
            (false, Some(file)) => Some(String::from_utf8_lossy(&read(file)?).trim().to_owned()),
            (false, None) => None,
        };
        token.filter(|token| !token.is_empty()).ok_or_else(|| {
            Misconfigured(
                "no admin token is known: name a Secret with the key token by adminSecretName and adminSecretNamespace in the \
                 StorageClass, or set --admin-token-file"
                    .to_owned(),
            )
        })
    }
}

fn address(
    parameter: &str,
    option: &str,
    named: &Option<String>,
    default: &Option<String>,
) -> Result<String, Misconfigured> {
    let url = named.as_ref().filter(|text| !text.is_empty()).or(default.as_ref());
    let url = url.ok_or_else(|| {
        Misconfigured(format!("Garage's address is not known: set {parameter} in the StorageClass, or --{option}"))
    })?;
    // A user or a password in the address would end up in errors.
    let is_plain = Endpoint::of_url(url).is_some() && !url.contains(['@', '?']);
    match is_plain {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => {
            Err(Misconfigured(format!("{parameter} is no address: expected http://host:port or https://host:port")))
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Misconfigured> {
    std::fs::read(file).map_err(|error| Misconfigured(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let of = |text: &str| address("endpoint", "endpoint", &Some(text.to_owned()), &None);
        assert_eq!(of("http://garage:3900/").unwrap(), "http://garage:3900");
        assert_eq!(of("https://[fd00::1]").unwrap(), "https://[fd00::1]");
        for text in ["garage:3900", "ftp://garage", "http://me:secret@garage", "http://garage?a=b"] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.starts_with("endpoint is no address") && !error.contains("secret"), "{text}: {error}");
        }
        let missing = address("adminEndpoint", "admin-endpoint", &None, &None).unwrap_err();
        assert!(missing.to_string().contains("set adminEndpoint in the StorageClass, or --admin-endpoint"));
    }
}
