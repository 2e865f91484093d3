//! Endpoints of Google's services, and the administrator's credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use kube_provisioner::bucket::{BackendConfigError, Endpoint, RecentlyCreated};
use kube_provisioner::{Secrets, parse_time_limit};
use ring::digest::{SHA256, digest};

use crate::api::Api;
use crate::http::{Client, Clients, Proxies, certificates};
use crate::iam::Iam;
use crate::parameters::Parameters;
use crate::principal::Pool;
use crate::storage::Storage;
use crate::token::{Origin, ServiceAccountKey, TokenSource};

/// The role of the Secret that contains the administrator's key, and its entry.
pub(crate) const ADMIN: &str = "admin";
const KEY: &str = "key.json";

/// IAM is eventually consistent. It shows a new service account within this time.
/// <https://cloud.google.com/iam/docs/service-accounts-create#creating>
const PROPAGATION_TIME: Duration = Duration::from_secs(60);

/// Defaults for StorageClasses. Files are read for every call, so keys can be rotated.
#[derive(Args, Clone, Debug)]
pub(crate) struct Defaults {
    /// Project ID, for classes without `project` [default: the project of the credentials]
    #[arg(long, env = "GOOGLE_CLOUD_PROJECT", value_name = "ID")]
    pub(crate) project: Option<String>,

    /// JSON key file of the administrator's service account, for classes without a Secret
    #[arg(long, env = "GOOGLE_APPLICATION_CREDENTIALS", value_name = "FILE", conflicts_with = "workload_identity")]
    pub(crate) credentials_file: Option<PathBuf>,

    /// Use the pod's workload identity (from the metadata server), for classes without a Secret
    #[arg(long, env = "GCS_WORKLOAD_IDENTITY")]
    pub(crate) workload_identity: bool,

    /// Workload identity pool of the cluster, for access without keys, for classes without `workloadIdentityPool`
    #[arg(long, env = "GCS_WORKLOAD_IDENTITY_POOL", value_name = "NAME")]
    pub(crate) workload_identity_pool: Option<Pool>,

    /// Cloud Storage endpoint
    #[arg(long, env = "GCS_ENDPOINT", value_name = "URL", default_value = "https://storage.googleapis.com")]
    pub(crate) endpoint: Endpoint,

    /// IAM API endpoint
    #[arg(long, env = "GCS_IAM_ENDPOINT", value_name = "URL", default_value = "https://iam.googleapis.com")]
    pub(crate) iam_endpoint: Endpoint,

    /// Host of the metadata server
    #[arg(long, env = "GCE_METADATA_HOST", value_name = "HOST", default_value = "metadata.google.internal")]
    pub(crate) metadata_host: String,

    /// File with CA certificates for the endpoints [default: the system's]
    #[arg(long, env = "GCS_CA_BUNDLE", value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,

    /// Timeout of one request
    #[arg(long, env = "GCS_CALL_TIMEOUT", value_name = "TIME", default_value = "15s", value_parser = parse_time_limit)]
    pub(crate) call_timeout: Duration,
}

impl Defaults {
    /// Reads all files, to detect a wrong path at startup.
    pub(crate) fn check(&self) -> Result<(), BackendConfigError> {
        let Self { metadata_host, credentials_file, ca_bundle, .. } = self;
        let host: Result<Endpoint, _> = format!("http://{metadata_host}").parse();
        host.map_err(|error| BackendConfigError::new(format!("--metadata-host: {error}")))?;
        credentials_file.as_deref().map(BackendConfigError::read).transpose()?;
        if let Some(bundle) = ca_bundle.as_deref().map(BackendConfigError::read).transpose()? {
            certificates(&bundle).map_err(BackendConfigError::new)?;
        }
        Ok(())
    }
}

/// Cache of connections and token sources.
pub(crate) struct Stores {
    defaults: Defaults,
    clients: Clients,
    sources: Mutex<BTreeMap<Vec<u8>, Arc<TokenSource>>>,
    recent: Arc<RecentlyCreated>,
}

/// A Google Cloud project, accessed with its administrator's credentials.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) storage: Storage,
    pub(crate) iam: Iam,
    pub(crate) endpoint: Endpoint,
    /// The pool that identifies the cluster's service accounts.
    pub(crate) pool: Option<Pool>,
}

impl Stores {
    pub(crate) fn new(defaults: Defaults, proxies: Proxies) -> Self {
        let clients = Clients::new(proxies, defaults.call_timeout);
        let recent = Arc::new(RecentlyCreated::within(PROPAGATION_TIME));
        Self { defaults, clients, sources: Mutex::default(), recent }
    }

    /// Returns the store for the recorded project, or else the class's project.
    pub(crate) async fn of(
        &self,
        parameters: &Parameters,
        secrets: &Secrets,
        recorded_project: Option<&str>,
    ) -> Result<Store, BackendConfigError> {
        let source = self.source(secrets)?;
        let named = [recorded_project, parameters.project.as_deref(), self.defaults.project.as_deref()];
        let project = match named.into_iter().flatten().find(|project| !project.is_empty()) {
            Some(project) => project.to_owned(),
            None => source.project().await.map_err(BackendConfigError::new)?.ok_or_else(|| {
                BackendConfigError::new("no project is known: set project in the StorageClass, or --project")
            })?,
        };
        let api = |endpoint: &Endpoint| {
            Ok::<_, BackendConfigError>(Api { client: self.client(&endpoint.url())?, source: source.clone() })
        };
        let storage = Storage { api: api(&self.defaults.endpoint)?, project: project.clone() };
        let iam = Iam { api: api(&self.defaults.iam_endpoint)?, project, recent: self.recent.clone() };
        // Signatures for Google's XML API use the region `auto`.
        let endpoint = self.defaults.endpoint.clone().region("auto");
        let pool = self.defaults.workload_identity_pool.clone();
        Ok(Store { storage, iam, endpoint, pool })
    }

    /// Returns the endpoint of Cloud Storage.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.defaults.endpoint
    }

    /// Fails if the provisioner has its own credentials, but cannot obtain a token with them.
    pub(crate) async fn probe(&self) -> Result<(), BackendConfigError> {
        if self.defaults.credentials_file.is_none() && !self.defaults.workload_identity {
            return Ok(());
        }
        self.source(&Secrets::default())?.token(false).await.map_err(BackendConfigError::new)?;
        Ok(())
    }

    /// Returns the credentials in the class's Secret, or else the credentials that the arguments select. Unusable
    /// credentials are an error: there is no fallback.
    fn source(&self, secrets: &Secrets) -> Result<Arc<TokenSource>, BackendConfigError> {
        if secrets.has(ADMIN) {
            let text = secrets.bytes(ADMIN, KEY);
            let text = text
                .ok_or_else(|| BackendConfigError::new(format!("the Secret of adminSecretName has no entry {KEY}")))?;
            return self.source_of_key(text, "the Secret of adminSecretName");
        }
        if let Some(file) = &self.defaults.credentials_file {
            return self.source_of_key(&BackendConfigError::read(file)?, &file.display().to_string());
        }
        if !self.defaults.workload_identity {
            return Err(BackendConfigError::new(
                "no credentials are known: name a Secret by adminSecretName and adminSecretNamespace in the StorageClass, or \
                 set --credentials-file or --workload-identity",
            ));
        }
        // The metadata server identifies the host that calls it, so a proxy would receive its own tokens.
        let client =
            self.clients.direct(&format!("http://{}", self.defaults.metadata_host)).map_err(BackendConfigError::new)?;
        Ok(self.cached(Vec::new(), || TokenSource::new(Origin::MetadataServer, client)))
    }

    fn source_of_key(&self, text: &[u8], origin: &str) -> Result<Arc<TokenSource>, BackendConfigError> {
        let key = ServiceAccountKey::parse(text, origin).map_err(BackendConfigError::new)?;
        let client = self.client(&key.token_address().map_err(BackendConfigError::new)?)?;
        let id = digest(&SHA256, text).as_ref().to_vec();
        Ok(self.cached(id, || TokenSource::new(Origin::Key(key), client)))
    }

    fn cached(&self, id: Vec<u8>, make: impl FnOnce() -> TokenSource) -> Arc<TokenSource> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        // Token sources of replaced keys are never used again.
        if sources.len() >= 100 && !sources.contains_key(&id) {
            sources.clear();
        }
        sources.entry(id).or_insert_with(|| Arc::new(make())).clone()
    }

    fn client(&self, url: &str) -> Result<Client, BackendConfigError> {
        let ca_bundle = self.defaults.ca_bundle.as_deref().map(BackendConfigError::read).transpose()?;
        self.clients.get(url, ca_bundle).map_err(BackendConfigError::new)
    }
}
