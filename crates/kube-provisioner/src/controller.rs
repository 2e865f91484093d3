//! The [`Controller`], which runs an author's provisioner.

pub(crate) mod bucket;
mod bucket_controller;
pub(crate) mod class_parameters;
#[cfg(test)]
mod event_table;
mod names;
mod process;
mod safeguards;
pub(crate) mod secret_names;
mod secret_reading;
pub(crate) mod volume;
mod watched;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use provisioner_runtime::access::{AccessError, check_access};
use provisioner_runtime::admin::AdminError;
use provisioner_runtime::client::{ConnectError, connect};
use provisioner_runtime::controller::{LoopError, Sharing, unpanicked};
use provisioner_runtime::environment::Environment;
use provisioner_runtime::lease::{LeaseOptions, lease_name};
use provisioner_runtime::logs::{self, LogFormat};
use provisioner_runtime::shutdown;
use thiserror::Error;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use self::bucket_controller::BucketController;
use self::process::Process;
#[cfg(feature = "planted-faults")]
use self::volume::Safeguard;
use self::volume::{Backend, Crashed, Safeguards, control_loop, rules};
use crate::options::{Coordination, LogStyle, Options};
use crate::provisioner::Provisioner;
use crate::rbac;

/// How often the start checks missing rights again.
const ACCESS_CHECKS: u32 = 4;
/// The time between two such checks.
const ACCESS_PAUSE: Duration = Duration::from_millis(500);

/// Runs a [`Provisioner`]: calls it when a claim asks for a volume and when a volume is to be deleted.
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

/// Why the controller could not run. The text is one line that says what to do, also as `Debug`, so that
/// a `main` that returns it ends with that line.
#[derive(Error)]
#[non_exhaustive]
pub enum RunError {
    /// The API server cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The address for probes and metrics cannot be had.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Rights are missing.
    #[error("{error} {advice}")]
    Access {
        /// Which.
        error: AccessError,
        /// What to do about it.
        advice: String,
    },
    /// Options that do not fit together.
    #[error("{0}")]
    Options(String),
    /// Another process has taken over.
    #[error(
        "{by} has taken over; only one replica may run with this --coordination (and --node-name), so end one of them"
    )]
    Replaced {
        /// The other process, as the journal names it.
        by: String,
    },
    /// A necessary part of the controller has ended. This is a fault of this library.
    #[error("the controller's {part} has ended by itself{how}; this is a fault, please report it")]
    Ended {
        /// Which.
        part: String,
        /// How, where that is known.
        how: String,
    },
    /// The author's code cannot be used.
    #[error("the provisioner's code crashed in `{method}`: {panic}; please report this to its authors")]
    Crashed {
        /// The method.
        method: &'static str,
        /// What it said.
        panic: String,
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
    /// A controller for this provisioner. Nothing happens before it runs.
    pub fn new(provisioner: impl Provisioner, options: Options) -> Self {
        Self::with_backend(Arc::new(provisioner), options)
    }

    pub(crate) fn with_backend(backend: Arc<dyn Backend>, options: Options) -> Self {
        Self { options, backend, environment: Environment::default(), safeguards: Safeguards::default() }
    }

    /// Sets the clock and the source of randomness, for simulations that repeat by their seed.
    #[must_use]
    pub fn environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// With one safeguard missing, for tests of the simulation.
    #[cfg(feature = "planted-faults")]
    #[must_use]
    pub fn without(self, safeguard: Safeguard) -> Self {
        Self { safeguards: Safeguards::without(safeguard), ..self }
    }

    /// Runs as a program: sets up logs, connects, checks its rights and works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the API server cannot be used as it should be. Later interruptions are waited out.
    pub async fn run(self) -> Result<(), RunError> {
        let rules = self.access_rules()?;
        let advice = |namespace: &str| rbac::advice(&self.options, namespace);
        let Some(started) = started(&self.options, &rules, advice).await? else { return Ok(()) };
        let Started { client, namespace, shutdown } = started;
        let options = Options { namespace: Some(namespace), ..self.options };
        Self { options, ..self }.run_with(client, shutdown).await
    }

    /// Every right that is needed, the author's own among them.
    fn access_rules(&self) -> Result<Vec<rbac::AccessRule>, RunError> {
        let asked = unpanicked(|| (self.backend.capabilities(), self.backend.access_rules()));
        let (capabilities, own) = asked.map_err(|panic| RunError::Crashed { method: "capabilities", panic })?;
        let mut rules = rbac::rules(&self.options, &capabilities, &[]);
        rules.extend(own);
        Ok(rules)
    }

    /// Runs with a given client until `shutdown` is cancelled. No effects on the process: for tests and embedding.
    ///
    /// # Errors
    /// When the address for probes and metrics cannot be had, when the options make no sense, or when another process
    /// takes the place of this one. All other errors are tried again.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend, environment, safeguards } = self;
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let instance = instance(&options, &environment);
        let sharing = sharing(&options, &namespace, &instance, environment)?;
        let rules = rules(&options, &*backend, &namespace, safeguards)?;
        let process = Process { client, namespace, instance, sharing, environment };
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
            LoopError::Ended { part, how } => Self::Ended { part, how },
            error => Self::Options(error.to_string()),
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A program that may begin.
struct Started {
    client: Client,
    namespace: String,
    shutdown: CancellationToken,
}

/// Sets up logs and signals, connects, and checks that the account has these rights. `None` if the process is told to stop
/// meanwhile.
async fn started(
    options: &Options,
    rules: &[rbac::AccessRule],
    advice: impl Fn(&str) -> String,
) -> Result<Option<Started>, RunError> {
    logs::init(match options.log_format {
        LogStyle::Text => LogFormat::Text,
        LogStyle::Json => LogFormat::Json,
    });
    let shutdown = shutdown::on_signal().map_err(RunError::Signals)?;
    let connection = connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.as_deref().unwrap_or(&connection.namespace);
    let mut attempt = 0;
    while let Err(error) = check_access(&connection.client, namespace, rules).await {
        attempt += 1;
        // A server that has just started refuses all requests for a moment.
        if attempt > ACCESS_CHECKS {
            let advice = match &error {
                AccessError::Missing(_) => advice(namespace),
                _ => "Check the server.".to_owned(),
            };
            return Err(RunError::Access { error, advice });
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(None),
            () = sleep(ACCESS_PAUSE) => {}
        }
    }
    tracing::info!(provisioner = options.provisioner_name, "connected by {}", connection.source);
    let namespace = namespace.to_owned();
    Ok(Some(Started { client: connection.client, namespace, shutdown }))
}

/// The identity of this process among those of the same provisioner.
fn instance(options: &Options, environment: &Environment) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = options.node_name.clone().or(host).unwrap_or_else(|| "local".to_owned());
    let random = environment.number("instance");
    format!("{host}_{random:016x}")
}

/// How replicas share the work.
fn sharing(options: &Options, namespace: &str, instance: &str, environment: Environment) -> Result<Sharing, RunError> {
    match options.coordination {
        Coordination::Lease => Ok(Sharing::Leases(LeaseOptions {
            shards: options.shards,
            duration: options.lease_duration,
            renew_deadline: options.lease_renew_deadline,
            retry_period: options.lease_retry_period,
            environment,
            ..LeaseOptions::new(namespace, lease_name(&options.provisioner_name), instance)
        })),
        Coordination::PerClaim => Ok(Sharing::Objects),
        Coordination::PerNode => match &options.node_name {
            Some(node) => Ok(Sharing::Own { part: node.clone() }),
            None => Err(RunError::Options("--coordination per-node needs --node-name".to_owned())),
        },
        Coordination::None => Ok(Sharing::Alone),
    }
}
