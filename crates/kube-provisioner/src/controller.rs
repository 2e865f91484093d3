//! The volume controller: watches claims, volumes and classes, and carries every key to where it should be.
//!
//! The way of one key: `world` (what is known) -> `facts` -> `decide` -> `act` -> `report`.

mod act;
mod decide;
mod duty;
mod engine;
mod entry;
mod erased;
mod facts;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod key;
mod measure;
mod outcome;
mod persistent_volume;
mod projection;
mod read_class;
mod report;
mod safeguards;
pub(crate) mod secret_names;
mod tell;
#[cfg(test)]
mod tests;
mod watched;
mod world;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use provisioner_runtime::access::{AccessError, check_access};
use provisioner_runtime::admin::{AdminError, AdminServer};
use provisioner_runtime::client::{ConnectError, connect};
use provisioner_runtime::lease::{LeaseOptions, Leases, lease_name};
use provisioner_runtime::logs::{self, LogFormat};
use provisioner_runtime::shutdown;
use provisioner_runtime::surroundings::Surroundings;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::decide::{Names, Rules};
use self::duty::{Turn, serve};
use self::engine::Engine;
pub(crate) use self::erased::Backend;
#[cfg(feature = "conformance")]
pub(crate) use self::erased::{Parsed, UntypedRequest};
#[cfg(feature = "fuzzing")]
pub(crate) use self::fuzzing::take_in;
#[cfg(feature = "conformance")]
pub(crate) use self::persistent_volume::{Order, build};
pub(crate) use self::report::parameters_text as parameters_problem;
#[cfg(feature = "planted-faults")]
pub use self::safeguards::Safeguard;
use self::safeguards::Safeguards;
pub(crate) use self::secret_names::take as take_secret_names;
use crate::options::{Coordination, LogStyle, Options};
use crate::provisioner::Provisioner;
use crate::rbac;

/// How often rights that are missing are looked at again at the start.
const ACCESS_CHECKS: u32 = 4;
/// The time between two such looks.
const ACCESS_PAUSE: Duration = Duration::from_millis(500);
/// How long events that are still to be sent may take when the controller stops.
const LAST_WORDS: Duration = Duration::from_secs(5);

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
    surroundings: Surroundings,
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
    /// Another process works in the place of this one.
    #[error(
        "{by} has taken over; only one replica may run with this --coordination (and --node-name), so end one of them"
    )]
    Replaced {
        /// The other process, as the journal names it.
        by: String,
    },
    /// A part of the controller has ended that others rely on: a fault of this library.
    #[error("the controller's {part} has ended by itself{how}; this is a fault, please report it")]
    Ended {
        /// Which.
        part: &'static str,
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
        Self { options, backend, surroundings: Surroundings::default(), safeguards: Safeguards::default() }
    }

    /// With another time of day and other chance than the machine's: for simulations, which repeat by their seed.
    #[must_use]
    pub fn surroundings(self, surroundings: Surroundings) -> Self {
        Self { surroundings, ..self }
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
        logs::init(match self.options.log_format {
            LogStyle::Text => LogFormat::Text,
            LogStyle::Json => LogFormat::Json,
        });
        let shutdown = shutdown::on_signal().map_err(RunError::Signals)?;
        let connection = connect(self.options.kubeconfig.as_deref()).await?;
        let namespace = self.options.namespace.as_deref().unwrap_or(&connection.namespace);
        let rules = self.access_rules()?;
        let mut attempt = 0;
        while let Err(error) = check_access(&connection.client, namespace, &rules).await {
            attempt += 1;
            // A server that has just started refuses everybody for a moment.
            if attempt > ACCESS_CHECKS {
                let advice = match &error {
                    AccessError::Missing(_) => rbac::advice(&self.options, namespace),
                    _ => "Check the server.".to_owned(),
                };
                return Err(RunError::Access { error, advice });
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = sleep(ACCESS_PAUSE) => {}
            }
        }
        tracing::info!(provisioner = self.options.provisioner_name, "connected by {}", connection.source);
        let namespace = Some(namespace.to_owned());
        let options = Options { namespace, ..self.options };
        Self { options, ..self }.run_with(connection.client, shutdown).await
    }

    /// Every right that is needed, the author's own among them.
    fn access_rules(&self) -> Result<Vec<rbac::AccessRule>, RunError> {
        let asked = erased::unpanicked(|| (self.backend.capabilities(), self.backend.access_rules()));
        let (capabilities, own) = asked.map_err(|panic| RunError::Crashed { method: "capabilities", panic })?;
        let mut rules = rbac::rules(&self.options, &capabilities, &[]);
        rules.extend(own);
        Ok(rules)
    }

    /// Runs with a given client until `shutdown` is cancelled. No effects on the process: for tests and embedding.
    ///
    /// # Errors
    /// When the address for probes and metrics cannot be had, when the options make no sense, or when another process
    /// takes the place of this one. What else cannot be done at once is tried again.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend, surroundings, safeguards } = self;
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let instance = instance(&options, &surroundings);
        let leases = coordination(&options, client.clone(), &namespace, &instance, surroundings)?;
        let rules = rules(&options, &*backend, &namespace, safeguards)?;
        let engine = Arc::new(Engine::new(&options, rules, backend, client, surroundings, &namespace, instance));
        // What is in these sets ends with them: nothing goes on when this future is dropped.
        let mut helpers = engine.clone().spawn_watches();
        let mut working = JoinSet::new();
        if let Some(address) = options.admin_address {
            let admin = AdminServer::bind(address).await?;
            tracing::info!("serving /livez, /readyz and /metrics on {}", admin.address());
            let health = leases.as_ref().map(Leases::health);
            let registry = Arc::new(engine.registry(health.clone()));
            let serving = admin.serve(engine.checks(health), registry, shutdown.clone());
            helpers.spawn(serving.map(|()| "HTTP server"));
        }
        helpers.spawn(engine.clone().resync(options.resync_period));
        helpers.spawn(engine.clone().pace());
        helpers.spawn(engine.clone().events_ended());
        working.spawn(engine.clone().work());
        let serving = async {
            match leases {
                Some(leases) => {
                    let engine = engine.clone();
                    leases.hold(shutdown.clone(), move |term| serve(engine.clone(), term.into()).map(drop)).await;
                    None
                }
                None => serve(engine.clone(), Turn::alone(&shutdown)).await.filter(|_| !shutdown.is_cancelled()),
            }
        };
        let ended = tokio::select! {
            biased;
            replaced = serving => replaced.map_or(Ok(()), |by| Err(RunError::Replaced { by })),
            error = unexpected_end(&mut helpers, &mut working, &shutdown) => {
                engine.fail(&error);
                Err(error)
            }
        };
        engine.shut_down();
        working.shutdown().await;
        // The pacer among them: it would keep events waiting for keys that nobody takes any more.
        helpers.shutdown().await;
        let untold = engine.last_words(LAST_WORDS).await;
        if untold > 0 {
            tracing::warn!(untold, "events could not be sent in time");
        }
        ended
    }
}

/// Returns when a task has ended that must not.
async fn unexpected_end(
    helpers: &mut JoinSet<&'static str>,
    working: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> RunError {
    loop {
        let (part, how) = tokio::select! {
            biased;
            Some(ended) = helpers.join_next() => match ended {
                Ok(part) => (part, String::new()),
                Err(error) => ("background work", format!(" ({error})")),
            },
            Some(ended) = working.join_next() => ("work", ended.err().map(|error| format!(" ({error})")).unwrap_or_default()),
        };
        // Some end because they were told to.
        if !shutdown.is_cancelled() {
            return RunError::Ended { part, how };
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Tells this process from others of the same provisioner.
fn instance(options: &Options, surroundings: &Surroundings) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let place = options.node_name.clone().or(host).unwrap_or_else(|| "local".to_owned());
    let random = surroundings.number("instance");
    format!("{place}_{random:016x}")
}

/// What the rules need to know of the options.
fn rules(options: &Options, backend: &dyn Backend, namespace: &str, safeguards: Safeguards) -> Result<Rules, RunError> {
    let names =
        Names { own: options.provisioner_name.clone(), additional: options.additional_provisioner_names.clone() };
    let node = options.node_name.as_deref().filter(|_| options.coordination == Coordination::PerNode);
    let identity = options.identity.as_deref().or(node).unwrap_or(namespace);
    let capabilities = erased::unpanicked(|| backend.capabilities());
    Ok(Rules {
        names,
        capabilities: capabilities.map_err(|panic| RunError::Crashed { method: "capabilities", panic })?,
        finalizer: options.volume_finalizer,
        identity: identity.into(),
        node: node.map(Into::into),
        claims_record: options.coordination == Coordination::PerClaim,
        safeguards,
    })
}

/// The Leases by which replicas share the work, or nothing where they do not.
fn coordination(
    options: &Options,
    client: Client,
    namespace: &str,
    instance: &str,
    surroundings: Surroundings,
) -> Result<Option<Leases>, RunError> {
    match options.coordination {
        Coordination::Lease => {}
        Coordination::PerNode if options.node_name.is_none() => {
            return Err(RunError::Options("--coordination per-node needs --node-name".to_owned()));
        }
        _ => return Ok(None),
    }
    let options = LeaseOptions {
        shards: options.shards,
        duration: options.lease_duration,
        renew_deadline: options.lease_renew_deadline,
        retry_period: options.lease_retry_period,
        surroundings,
        ..LeaseOptions::new(namespace, lease_name(&options.provisioner_name), instance)
    };
    Leases::new(client, options).map(Some).map_err(|error| RunError::Options(error.to_string()))
}
