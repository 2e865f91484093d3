//! The connection to the API server, checked before anything else starts.

mod error;
mod retry_after;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, Uri};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use error::ConnectError;

/// Time limit of the first response.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// A connection to an API server that has responded once.
#[derive(Clone)]
pub struct Connection {
    /// The client. It neither retries requests nor sets a deadline; see [`call`](crate::call()).
    pub client: Client,
    /// The namespace of the kubeconfig's context, or of the pod.
    pub namespace: String,
    /// The source of the connection data: `the kubeconfig FILE` or `the pod's service account`.
    pub source: String,
}

/// Connects to the API server, and checks that it responds and accepts the credentials.
///
/// The connection data comes from the first of these that exists: `kubeconfig`, the files named by `KUBECONFIG`, the
/// pod's service account, `~/.kube/config`.
///
/// # Errors
///
/// Returns one line that names the server and the source of its address, and suggests a remedy.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let (config, source) = ConfigSources::from_env().config(kubeconfig, &KubeConfigOptions::default()).await?;
    open(config, source).await
}

/// Same as [`connect`], with another context, cluster or user of the kubeconfig than its current ones. As with kubectl,
/// `~/.kube/config` takes precedence over the pod's service account.
///
/// # Errors
///
/// Same as [`connect`].
pub async fn connect_as(kubeconfig: Option<&Path>, choice: &KubeConfigOptions) -> Result<Connection, ConnectError> {
    let (config, source) = ConfigSources::from_env().for_kubectl(choice).config(kubeconfig, choice).await?;
    open(config, source).await
}

/// Same as [`connect`], but uses this address regardless of the one in the kubeconfig, like `--master` of Go binaries.
/// Without a kubeconfig there are no credentials.
///
/// # Errors
///
/// Same as [`connect`].
pub async fn connect_to(server: &Uri, kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let (mut config, source) = match kubeconfig {
        Some(path) => from_files(&[path.to_owned()], &KubeConfigOptions::default()).await?,
        None => (Config::new(server.clone()), "the command line".to_owned()),
    };
    config.cluster_url = server.clone();
    open(config, source).await
}

async fn open(mut config: Config, source: String) -> Result<Connection, ConnectError> {
    // An error means that another provider is already installed, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The queue retries failures with a better back-off.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(30));
    config.read_timeout = None;
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let origin = error::Origin { server, source: source.clone() };

    let client = ClientBuilder::try_from(config)
        .map_err(|error| origin.unusable(&error))?
        .with_layer(&retry_after::layer())
        .build();
    check(&client, origin).await?;
    Ok(Connection { client, namespace, source })
}

/// Requests something that every authenticated account may read.
async fn check(client: &Client, origin: error::Origin) -> Result<(), ConnectError> {
    let request = Request::get("/api").body(Vec::new()).map_err(kube::Error::HttpError);
    let answer = async { client.request_text(request?).await };
    match tokio::time::timeout(FIRST_ANSWER, answer).await {
        Ok(Ok(_)) => Ok(()),
        // It is sufficient that the server knows the account, even without this permission.
        Ok(Err(kube::Error::Api(status))) if status.is_forbidden() && !status.message.contains("system:anonymous") => {
            Ok(())
        }
        Ok(Err(error)) => Err(origin.refused(error)),
        Err(_) => Err(origin.silent(FIRST_ANSWER)),
    }
}

/// The places to search for connection data.
struct ConfigSources {
    kubeconfig: Option<OsString>,
    in_pod: bool,
    home: Option<PathBuf>,
}

impl ConfigSources {
    fn from_env() -> Self {
        let given = |value: &OsString| !value.is_empty();
        Self {
            kubeconfig: env::var_os("KUBECONFIG").filter(given),
            in_pod: env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|value| given(&value)),
            home: env::var_os("HOME").filter(given).map(PathBuf::from),
        }
    }

    fn for_kubectl(self, choice: &KubeConfigOptions) -> Self {
        let is_chosen = choice.context.is_some() || choice.cluster.is_some() || choice.user.is_some();
        let in_pod = self.in_pod && !is_chosen && !self.in_home().is_some_and(|path| path.exists());
        Self { in_pod, ..self }
    }

    fn in_home(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(".kube/config"))
    }

    /// Returns the connection data and its source.
    async fn config(
        &self,
        explicit: Option<&Path>,
        choice: &KubeConfigOptions,
    ) -> Result<(Config, String), ConnectError> {
        if let Some(path) = explicit {
            return from_files(&[path.to_owned()], choice).await;
        }
        if let Some(list) = &self.kubeconfig {
            let paths: Vec<PathBuf> = env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
            return from_files(&paths, choice).await;
        }
        if self.in_pod {
            let source = "the pod's service account".to_owned();
            return match Config::incluster() {
                Ok(config) => Ok((config, source)),
                Err(error) => Err(error::service_account(&source, &error)),
            };
        }
        match self.in_home() {
            Some(path) if path.exists() => from_files(&[path], choice).await,
            path => Err(error::no_cluster(path)),
        }
    }
}

async fn from_files(paths: &[PathBuf], choice: &KubeConfigOptions) -> Result<(Config, String), ConnectError> {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let source = format!("the kubeconfig {}", names.join(":"));
    let merged =
        paths.iter().try_fold(Kubeconfig::default(), |merged, path| merged.merge(Kubeconfig::read_from(path)?));
    let config = async { Config::from_custom_kubeconfig(merged?, choice).await };
    match config.await {
        Ok(config) => Ok((config, source)),
        Err(error) => Err(error::kubeconfig(&source, &error)),
    }
}

#[cfg(test)]
mod tests;
