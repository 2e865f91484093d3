//! The addresses and admin keys of gateways.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use kube_provisioner::bucket::{BackendConfigError, Endpoint, EndpointError};
use kube_provisioner::{Secrets, parse_time_limit};
use s3_client::{Client, Connections, Credentials, Http, Settings};

use crate::admin::Admin;
use crate::parameters::{Gateway, Parameters};

/// The role of the Secret with the administrator's key.
pub(crate) const ADMIN: &str = "admin";

/// The defaults for classes that do not set a value. Files are read for every call, so keys may change.
#[derive(Args, Clone, Debug)]
pub(crate) struct Defaults {
    /// Gateway for classes without `endpoint`: host:port or a URL
    #[arg(long, env = "RGW_ENDPOINT", value_name = "ADDRESS")]
    pub(crate) endpoint: Option<Gateway>,

    /// File with the admin user's access key ID, for classes without a Secret
    #[arg(long, env = "RGW_ADMIN_ACCESS_KEY_FILE", value_name = "FILE", requires = "admin_secret_key_file")]
    pub(crate) admin_access_key_file: Option<PathBuf>,

    /// File with the admin user's secret access key
    #[arg(long, env = "RGW_ADMIN_SECRET_KEY_FILE", value_name = "FILE", requires = "admin_access_key_file")]
    pub(crate) admin_secret_key_file: Option<PathBuf>,

    /// File with CA certificates for the gateways [default: the system's]
    #[arg(long, env = "RGW_CA_BUNDLE", value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,

    /// Timeout of one request to a gateway
    #[arg(long, env = "RGW_CALL_TIMEOUT", value_name = "TIME", default_value = "15s", value_parser = parse_time_limit)]
    pub(crate) call_timeout: Duration,
}

impl Defaults {
    /// Reads all files, to detect a wrong path at startup.
    pub(crate) fn check(&self) -> Result<(), BackendConfigError> {
        let Self { admin_access_key_file, admin_secret_key_file, .. } = self;
        for file in admin_access_key_file.iter().chain(admin_secret_key_file) {
            BackendConfigError::read(file)?;
        }
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

/// Creates the clients of gateways, which share connections.
#[derive(Debug)]
pub(crate) struct Stores {
    defaults: Defaults,
    connections: Connections,
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A gateway.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) admin: Admin,
    pub(crate) endpoint: Endpoint,
    /// The region that requests are signed for.
    pub(crate) region: String,
    client: Client,
}

impl Store {
    /// Returns an S3 client with a user's key.
    pub(crate) fn s3(&self, credentials: Credentials) -> Client {
        self.client.with_credentials(credentials)
    }

    /// Returns a text that identifies the bucket across gateways.
    pub(crate) fn lock_key(&self, bucket: &str) -> String {
        format!("{}/{bucket}", self.client.endpoint())
    }
}

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self { defaults, connections: Connections::default(), locks: Mutex::default() }
    }

    /// Returns the gateway of a class.
    pub(crate) fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, BackendConfigError> {
        let endpoint = self.endpoint(parameters)?;
        let url = endpoint.url();
        let credentials = self.admin_key(secrets)?;
        let region = parameters.region.clone().filter(|region| !region.is_empty());
        let http = self.defaults.http(&self.connections, secrets)?;
        let mut settings = Settings::new(http.clone()).at(&url);
        settings.time_limit = self.defaults.call_timeout;
        settings.region = region.unwrap_or(settings.region);
        let region = settings.region.clone();
        let (key, time_limit) = (credentials.clone(), settings.time_limit);
        let admin = Admin { http, address: url, region: region.clone(), key, time_limit };
        let client = Client::new(&settings, credentials).map_err(BackendConfigError::new)?;
        Ok(Store { admin, endpoint, region, client })
    }

    /// Returns the gateway from the provisioner's own arguments, if they name a gateway and a key.
    pub(crate) fn default(&self) -> Result<Option<Store>, BackendConfigError> {
        if self.defaults.endpoint.is_none() || self.defaults.admin_access_key_file.is_none() {
            return Ok(None);
        }
        self.of(&Parameters::default(), &Secrets::default()).map(Some)
    }

    /// Returns the lock for read-modify-write operations on a bucket.
    pub(crate) fn lock(&self, key: String) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(key).or_default().clone()
    }

    pub(crate) fn endpoint(&self, parameters: &Parameters) -> Result<Endpoint, BackendConfigError> {
        let Parameters { endpoint, object_store_name, object_store_namespace, .. } = parameters;
        if let Some(Gateway(endpoint)) = endpoint.as_ref().or(self.defaults.endpoint.as_ref()) {
            return Ok(endpoint.clone());
        }
        let (Some(name), Some(namespace)) = (object_store_name, object_store_namespace) else {
            return Err(BackendConfigError::new(
                "no gateway is known: set endpoint, or objectStoreName and objectStoreNamespace, in the StorageClass, or \
                 --endpoint",
            ));
        };
        let url = format!("http://rook-ceph-rgw-{name}.{namespace}.svc:80");
        url.parse().map_err(|error: EndpointError| BackendConfigError::new(format!("the gateway {url:?}: {error}")))
    }

    fn admin_key(&self, secrets: &Secrets) -> Result<Credentials, BackendConfigError> {
        if secrets.has(ADMIN) {
            let either = |names: [&str; 2]| {
                names.into_iter().find_map(|name| secrets.text(ADMIN, name)).filter(|text| !text.is_empty())
            };
            let id = either(["accessKey", "AWS_ACCESS_KEY_ID"]);
            let secret = either(["secretKey", "AWS_SECRET_ACCESS_KEY"]);
            return id.zip(secret).map(|(id, secret)| Credentials::new(id, secret)).ok_or_else(|| {
                let text = "the Secret of adminSecretName has no accessKey and secretKey";
                BackendConfigError::new(text)
            });
        }
        let files = self.defaults.admin_access_key_file.as_ref().zip(self.defaults.admin_secret_key_file.as_ref());
        let (id, secret) = files.ok_or_else(|| {
            let text = "no admin key is known: name its Secret by adminSecretName and adminSecretNamespace in the \
                        StorageClass, or set --admin-access-key-file and --admin-secret-key-file";
            BackendConfigError::new(text)
        })?;
        let text = |file: &Path| Ok(String::from_utf8_lossy(&BackendConfigError::read(file)?).trim().to_owned());
        Ok(Credentials::new(text(id)?, text(secret)?))
    }
}
