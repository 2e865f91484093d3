//! The addresses and admin tokens of Garage clusters.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube_provisioner::bucket::{BackendConfigError, Endpoint};
use kube_provisioner::{Secrets, parse_time_limit};
use s3_client::{Client, Connections, Credentials, Http, Settings};

use crate::admin::Admin;
use crate::parameters::{AdminUrl, Parameters};

/// The role of the Secret that contains the token of the admin API.
pub(crate) const ADMIN: &str = "admin";

/// The defaults for classes that do not set a value. Files are read for every call, so the token may change.
#[derive(Args, Clone, Debug)]
pub struct Defaults {
    /// URL of S3, for classes without endpoint
    #[arg(long, env = "GARAGE_ENDPOINT", value_name = "URL")]
    pub(crate) endpoint: Option<Endpoint>,

    /// URL of the admin API, for classes without adminEndpoint
    #[arg(long, env = "GARAGE_ADMIN_ENDPOINT", value_name = "URL")]
    pub(crate) admin_endpoint: Option<AdminUrl>,

    /// Garage's s3_region, for classes without region
    #[arg(long, env = "GARAGE_REGION", value_name = "REGION", default_value = "garage")]
    pub(crate) region: String,

    /// File with a token of the admin API, for classes without a Secret
    #[arg(long, env = "GARAGE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// File with CA certificates for both addresses [default: the system's]
    #[arg(long, env = "GARAGE_CA_BUNDLE", value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,

    /// Timeout of one request to Garage
    #[arg(long, env = "GARAGE_CALL_TIMEOUT", value_name = "TIME", default_value = "15s", value_parser = parse_time_limit)]
    pub(crate) call_timeout: Duration,
}

impl Defaults {
    /// Reads all files, to detect a wrong path at startup.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn check(&self) -> Result<(), BackendConfigError> {
        self.admin_token_file.as_deref().map(BackendConfigError::read).transpose()?;
        self.http(&Connections::default(), &Secrets::default()).map(drop)
    }

    /// Returns connections that trust the certificates in the class's Secret, or else the certificates in the file.
    fn http(&self, connections: &Connections, secrets: &Secrets) -> Result<Http, BackendConfigError> {
        let ca_bundle = match secrets.bytes(ADMIN, "caBundle") {
            Some(bundle) => Some(bundle.to_vec()),
            None => self.ca_bundle.as_deref().map(BackendConfigError::read).transpose()?,
        };
        connections.with_ca_bundle(ca_bundle).map_err(BackendConfigError::new)
    }
}

/// Creates the clients of Garage clusters, which share connections.
#[derive(Debug)]
pub(crate) struct Stores {
    defaults: Defaults,
    connections: Connections,
}

/// A Garage cluster.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) admin: Admin,
    /// The S3 endpoint with its region.
    pub(crate) endpoint: Endpoint,
    client: Client,
}

impl Store {
    /// Returns an S3 client with this key.
    pub(crate) fn s3(&self, credentials: Credentials) -> Client {
        self.client.with_credentials(credentials)
    }
}

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self { defaults, connections: Connections::default() }
    }

    /// Returns the addresses of S3 and of the admin API for a class.
    pub(crate) fn endpoints<'a>(
        &'a self,
        parameters: &'a Parameters,
    ) -> Result<(&'a Endpoint, &'a AdminUrl), BackendConfigError> {
        let endpoint = parameters.endpoint.as_ref().or(self.defaults.endpoint.as_ref());
        let admin = parameters.admin_endpoint.as_ref().or(self.defaults.admin_endpoint.as_ref());
        let endpoint = endpoint.ok_or_else(|| missing_address_error("endpoint", "endpoint"))?;
        Ok((endpoint, admin.ok_or_else(|| missing_address_error("adminEndpoint", "admin-endpoint"))?))
    }

    /// Returns the cluster of a class.
    pub(crate) fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, BackendConfigError> {
        let defaults = &self.defaults;
        let (endpoint, AdminUrl(admin)) = self.endpoints(parameters)?;
        let token = self.token(secrets)?;
        let http = defaults.http(&self.connections, secrets)?;
        let region = parameters.region.as_ref().filter(|region| !region.is_empty()).unwrap_or(&defaults.region);
        let mut settings = Settings::new(http.clone()).at(endpoint.url());
        settings.time_limit = defaults.call_timeout;
        settings.region = region.clone();
        // `Store::s3` sets the key for each request.
        let client = Client::new(&settings, Credentials::new("", "")).map_err(BackendConfigError::new)?;
        let admin = Admin::new(http, admin.clone(), token, settings.time_limit);
        Ok(Store { admin, endpoint: endpoint.clone().region(region), client })
    }

    /// Returns the cluster from the provisioner's own arguments, if they name a cluster and a token.
    pub(crate) fn default(&self) -> Result<Option<Store>, BackendConfigError> {
        let Defaults { endpoint, admin_endpoint, admin_token_file, .. } = &self.defaults;
        if endpoint.is_none() || admin_endpoint.is_none() || admin_token_file.is_none() {
            return Ok(None);
        }
        self.of(&Parameters::default(), &Secrets::default()).map(Some)
    }

    fn token(&self, secrets: &Secrets) -> Result<String, BackendConfigError> {
        let token = match (secrets.has(ADMIN), &self.defaults.admin_token_file) {
            (true, _) => secrets.text(ADMIN, "token").map(|token| token.trim().to_owned()),
            (false, Some(file)) => Some(String::from_utf8_lossy(&BackendConfigError::read(file)?).trim().to_owned()),
            (false, None) => None,
        };
        token.filter(|token| !token.is_empty()).ok_or_else(|| {
            BackendConfigError::new(
                "no admin token is known: name a Secret with the key token by adminSecretName and adminSecretNamespace in the \
                 StorageClass, or set --admin-token-file",
            )
        })
    }
}

fn missing_address_error(parameter: &str, option: &str) -> BackendConfigError {
    BackendConfigError::new(format!(
        "Garage's address is not known: set {parameter} in the StorageClass, or --{option}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn rejects_invalid_flags_at_startup() {
        let parsed = |flag: &str, value: &str| {
            crate::Args::try_parse_from(["garage-provisioner", "--provisioner-name", "garage", flag, value])
        };
        for (flag, value, problem) in [
            ("--endpoint", "garage:3900", "expected an endpoint"),
            ("--endpoint", "http://garage/s3", "has no path"),
            ("--admin-endpoint", "garage:3903", "expected an endpoint"),
        ] {
            let error = parsed(flag, value).map(drop).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains(problem), "{error}");
        }
        for flag in ["--ca-bundle", "--admin-token-file"] {
            let error = parsed(flag, "/nonexistent/file").unwrap().defaults.check().unwrap_err().to_string();
            assert!(error.starts_with("cannot read /nonexistent/file: "), "{error}");
        }
    }

    #[test]
    fn reports_parameter_and_flag_of_a_missing_address() {
        let defaults = Defaults {
            endpoint: "http://garage:3900".parse().ok(),
            admin_endpoint: None,
            region: "garage".to_owned(),
            admin_token_file: None,
            ca_bundle: None,
            call_timeout: Duration::from_secs(15),
        };
        let error = Stores::new(defaults).of(&Parameters::default(), &Secrets::default()).unwrap_err();
        assert!(error.to_string().contains("set adminEndpoint in the StorageClass, or --admin-endpoint"), "{error}");
    }
}
