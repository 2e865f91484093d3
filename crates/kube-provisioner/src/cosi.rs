//! Buckets for the Container Object Storage Interface (COSI): the bucket provisioner as a driver on a socket, used by
//! the upstream sidecar, in the versions `v1alpha1` and `v1alpha2`. [`controller`] replaces the sidecar.
//!
//! The sidecar elects a leader and repeats failed calls, so the driver has neither Leases nor a queue. State that COSI
//! does not store is in a Secret for each account, see [`accounts`].

mod accounts;
pub(crate) mod controller;
mod driver;
mod errors;
mod locks;
mod names;
mod v1alpha1;
mod v1alpha2;

use std::fmt;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use driver_rpc::{Address, Server};
use kube::Client;
use prometheus_client::registry::Registry;
use provisioner_runtime::admin::{AdminServer, Checks};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::accounts::Accounts;
pub use self::controller::CosiController;
use self::driver::Driver;
pub(crate) use self::names::{driver_name, of_options as driver_of_options};
use crate::bucket::{BucketHooks, BucketStartContext};
use crate::controller::RunError;
use crate::controller::bucket::backend::BucketBackend;
use crate::controller::shared::calls::{capabilities, start_backend};
use crate::controller::shared::limits::CallLimits;
use crate::controller::shared::{cluster, program};
use crate::options::{BucketOptions, Options};
use crate::rbac;

/// The pause between attempts to start the provisioner.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The reason why the driver does not serve yet, for `/readyz`.
type Readiness = Result<(), String>;

/// Runs a [`BucketProvisioner`](crate::bucket::BucketProvisioner) as a driver of the Container Object Storage Interface
/// (COSI), instead of a [`BucketController`](crate::BucketController). [`Program`](crate::Program) runs it if
/// [`BucketOptions::cosi_endpoint`] is set.
///
/// ```no_run
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # async fn main_(store: impl BucketHooks) -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = BucketOptions::new("example.com/s3");
/// options.cosi_endpoint = Some("unix:///var/lib/cosi/cosi.sock".parse()?);
/// CosiDriver::new(store, options).run().await?;
/// # Ok(())
/// # }
/// ```
pub struct CosiDriver {
    options: BucketOptions,
    backend: Arc<dyn BucketBackend>,
}

impl CosiDriver {
    /// Creates a driver for this provisioner. It does nothing before it runs.
    pub fn new(provisioner: impl BucketHooks, options: BucketOptions) -> Self {
        Self { options, backend: Arc::new(provisioner) }
    }

    /// Runs as a program: sets up logs, connects, checks its permissions and serves until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the API server or the socket cannot be used. Later interruptions are retried.
    pub async fn run(mut self) -> Result<(), RunError> {
        let (capabilities, own) = capabilities(|| (self.backend.capabilities(), self.backend.access_rules()))?;
        let options = &mut self.options.options;
        let mut rules = rbac::cosi_rules(options, &capabilities);
        rules.extend(own);
        let started = program::start(options, &rules).await;
        let advice = |namespace: &str| rbac::cosi_advice(options, namespace);
        let started = started.map_err(|error| advised(error, options, advice));
        let Some((client, shutdown)) = started? else { return Ok(()) };
        self.run_with(client, shutdown).await
    }

    /// Runs with a given client until `shutdown` is cancelled. Does not affect the process, so it suits tests and
    /// embedding.
    ///
    /// # Errors
    /// If the socket or the address for probes is not available, or if the options are invalid.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend } = self;
        let address = options.cosi_endpoint.clone();
        let address = address.ok_or_else(|| RunError::Options("a COSI driver needs --cosi-endpoint".to_owned()))?;
        let name = names::of_options(&options).map_err(RunError::Options)?;
        let capabilities = capabilities(|| backend.capabilities())?;
        let options = options.options;
        let Some(cluster_id) = cluster::identify(&options, &client, &shutdown).await? else { return Ok(()) };
        let (readiness, state) = watch::channel(Err("the driver has not started yet".to_owned()));
        let _admin = serve_admin(&options, &backend, state, &shutdown).await?;
        let serve = async {
            let context = BucketStartContext { client: client.clone(), cluster_id: cluster_id.clone() };
            start(&options, &*backend, context, &readiness).await;
            let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
            let accounts = Accounts { client, namespace, driver: name, cluster_id };
            let driver = Arc::new(Driver::new(
                backend,
                capabilities,
                accounts,
                CallLimits::of(&options),
                options.call_limits().total,
            ));
            let server = bind(&address)?;
            tracing::info!(driver = driver.name(), "serving COSI on {address}");
            readiness.send_modify(|state| *state = Ok(()));
            let served = server
                .cosi_v1alpha1(v1alpha1::V1alpha1(driver.clone()))
                .cosi_v1alpha2(v1alpha2::V1alpha2(driver))
                .serve();
            served.await.map(|never| match never {}).map_err(|source| socket_error(&address, source))
        };
        // Running calls end at their next `.await`, and the sidecar repeats them.
        shutdown.run_until_cancelled(serve).await.unwrap_or(Ok(()))
    }
}

impl fmt::Debug for CosiDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CosiDriver").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Replaces the advice about missing permissions with the command for this mode.
fn advised(error: RunError, options: &Options, advice: impl FnOnce(&str) -> String) -> RunError {
    match error {
        RunError::Access { error, advice: usual } if usual.contains(" rbac ") => {
            let namespace = options.namespace.as_deref().unwrap_or("NAMESPACE");
            RunError::Access { error, advice: advice(namespace) }
        }
        error => error,
    }
}

fn bind(address: &Address) -> Result<Server, RunError> {
    let path = address.path();
    let server = Server::bind(path).map_err(|source| socket_error(address, source))?;
    // In some pods the sidecar runs as another user, with the pod's group.
    set_permissions(path, Permissions::from_mode(0o660)).map_err(|source| socket_error(address, source))?;
    Ok(server)
}

fn socket_error(address: &Address, source: std::io::Error) -> RunError {
    RunError::Socket { address: address.to_string(), source }
}

/// Calls the provisioner's `start` until it succeeds.
async fn start(
    options: &Options,
    backend: &dyn BucketBackend,
    context: BucketStartContext,
    readiness: &watch::Sender<Readiness>,
) {
    while let Err(problem) =
        start_backend(options.provision_timeout, async { backend.start(context.clone()).await }).await
    {
        tracing::warn!(problem, "the provisioner cannot start yet");
        readiness.send_modify(|state| *state = Err(format!("the provisioner cannot start yet: {problem}")));
        sleep(START_PAUSE).await;
    }
}

/// Serves probes until the returned guard is dropped.
async fn serve_admin(
    options: &Options,
    backend: &Arc<dyn BucketBackend>,
    readiness: watch::Receiver<Readiness>,
    shutdown: &CancellationToken,
) -> Result<Option<tokio_util::sync::DropGuard>, RunError> {
    let Some(address) = options.http_endpoint else { return Ok(None) };
    let (checks, backend) = (Checks::new(), backend.clone());
    checks.add("driver", move || readiness.borrow().clone().map(|()| String::new()));
    checks.add_probe("backend", move || {
        let backend = backend.clone();
        Box::pin(async move { backend.probe().await.map(|()| String::new()).map_err(|error| error.to_string()) })
    });
    let server = AdminServer::bind(address).await?;
    let stop = shutdown.child_token();
    tokio::spawn(server.serve(checks, Arc::new(Registry::default()), stop.clone()));
    Ok(Some(stop.drop_guard()))
}
