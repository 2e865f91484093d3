//! The [`Controller`], which runs a volume provisioner.

pub(crate) mod bucket;
mod bucket_controller;
pub(crate) mod shared;
pub(crate) mod volume;

use std::fmt;
use std::sync::Arc;

use kube::Client;
use provisioner_runtime::admin::AdminError;
use provisioner_runtime::controller::LoopError;
use provisioner_runtime::{AccessError, ConnectError, Environment, check_access};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use self::bucket_controller::BucketController;
use self::shared::calls::{self, Crashed};
pub(crate) use self::shared::cluster::SYSTEM_NAMESPACE;
pub use self::shared::cluster::cluster_id;
use self::shared::process::Process;
use self::shared::program;
#[cfg(feature = "planted-faults")]
use self::volume::Safeguard;
use self::volume::{Backend, Safeguards, control_loop, rules};
use crate::hooks::Hooks;
use crate::options::Options;
use crate::{protocol, rbac};

/// Runs a [`Provisioner`](crate::Provisioner): calls it when a claim requests a volume and when a volume is to be
/// deleted.
///
/// ```no_run
/// # use kube_provisioner::*;
/// # struct Exports;
/// # impl Provisioner for Exports {
/// #     type Parameters = ();
/// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
/// #         Ok(Volume::nfs("server", r.name))
/// #     }
/// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// # impl Hooks for Exports {}
/// # async fn main_() -> Result<(), RunError> {
/// Controller::new(Exports, Options::new("example.com/exports")).run().await
/// # }
/// ```
pub struct Controller {
    options: Options,
    backend: Arc<dyn Backend>,
    environment: Environment,
    safeguards: Safeguards,
}

/// The reason why the controller could not run. The message is one line that says what to do, also as `Debug`, so that
/// a `main` that returns the error ends with that line.
#[derive(Error)]
#[non_exhaustive]
pub enum RunError {
    /// The API server cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The address for probes and metrics is not available.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Permissions are missing.
    #[error("{error} {advice}")]
    Access {
        /// The missing permissions.
        error: AccessError,
        /// Instructions for granting them.
        advice: String,
    },
    /// The cluster's ID is unknown, because the uid of the namespace kube-system cannot be read.
    #[error(
        "cannot read the namespace kube-system, whose uid identifies this cluster: {problem} Grant the permission to \
         get it, or set --cluster-id"
    )]
    Cluster {
        /// The answer of the API server.
        problem: String,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// Another process has taken over.
    #[error(
        "{by} has taken over; only one replica may run with this --coordination (and --node-name), so end one of them"
    )]
    Replaced {
        /// The other process, as named in the journal.
        by: String,
    },
    /// An essential part of the controller has ended. This is a bug in this library.
    #[error(transparent)]
    Ended(LoopError),
    /// The provisioner's code panicked.
    #[error("the provisioner's code crashed in `{method}`: {panic}; please report this to its authors")]
    Crashed {
        /// The method.
        method: &'static str,
        /// The panic message.
        panic: String,
    },
    /// The socket of a COSI driver is not available.
    #[cfg(feature = "cosi")]
    #[error(
        "cannot listen on {address}: {source}. The folder must exist, and this process must be able to write into it"
    )]
    Socket {
        /// The address of the socket.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Controller {
    /// Creates a controller for this provisioner. It does nothing before it runs.
    pub fn new(provisioner: impl Hooks, options: Options) -> Self {
        Self::with_backend(Arc::new(provisioner), options)
    }

    pub(crate) fn with_backend(backend: Arc<dyn Backend>, options: Options) -> Self {
        Self { options, backend, environment: Environment::default(), safeguards: Safeguards::default() }
    }

    /// Sets the clock and the source of randomness, for simulations that are reproducible by their seed.
    #[must_use]
    pub fn environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// Disables one safeguard, for tests of the simulation.
    #[cfg(feature = "planted-faults")]
    #[must_use]
    pub fn without(self, safeguard: Safeguard) -> Self {
        Self { safeguards: Safeguards::without(safeguard), ..self }
    }

    /// Runs as a program: sets up logs, connects, checks its permissions and works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the API server cannot be used. Later interruptions are retried.
    pub async fn run(mut self) -> Result<(), RunError> {
        let ask = || (self.backend.capabilities(), self.backend.access_rules());
        let (capabilities, own) = calls::capabilities(ask)?;
        let mut rules = rbac::required_rules(&self.options, &capabilities, &[]);
        rules.extend(own);
        let started = program::start(&mut self.options, &rules).await?;
        let Some((client, shutdown)) = started else { return Ok(()) };
        let namespace = self.options.namespace.as_deref().unwrap_or_default();
        if self.options.sidecar_rbac
            && let Err(AccessError::Missing(_)) = check_access(&client, namespace, &[rbac::finalizers()]).await
        {
            tracing::warn!(
                "new volumes get no finalizer, because the account may not patch persistentvolumes: a volume that is \
                 deleted before its claim leaves its storage behind"
            );
            self.options.add_finalizer = false;
        }
        self.run_with(client, shutdown).await
    }

    /// Runs with a given client until `shutdown` is cancelled. Does not affect the process, so it suits tests and
    /// embedding.
    ///
    /// # Errors
    /// If the address for probes and metrics is not available, if the options are invalid, or if another process
    /// replaces this one. All other errors are retried.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend, environment, safeguards } = self;
        let process = Process::identify(&options, protocol::SERVES_VOLUMES, client, environment, &shutdown).await?;
        let Some(process) = process else { return Ok(()) };
        let rules = rules(&options, &*backend, &process, safeguards)?;
        Ok(control_loop(&options, rules, backend, process)?.run(shutdown).await?)
    }
}

impl From<Crashed> for RunError {
    fn from(Crashed { method, panic }: Crashed) -> Self {
        Self::Crashed { method, panic }
    }
}

impl From<LoopError> for RunError {
    fn from(error: LoopError) -> Self {
        match error {
            LoopError::Admin(error) => Self::Admin(error),
            LoopError::Replaced { by } => Self::Replaced { by },
            LoopError::Ended { .. } => Self::Ended(error),
            error => Self::Options(error.to_string()),
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}
