//! The controller of Buckets and BucketAccesses, which replaces COSI's sidecar.
//!
//! The steps for one key: `cache` (the watched objects) -> `decide` -> `act` -> `outcome` -> `report`. The surrounding
//! loop is [`provisioner_runtime::controller`]. The objects record each attempt: our finalizer on a Bucket, and the
//! account's ID in the status of a BucketAccess. The driver records accounts and keys, see
//! [`accounts`](super::accounts).

mod act;
mod cache;
mod decide;
#[cfg(test)]
mod decide_table;
mod objects;
mod outcome;
mod report;
mod secrets;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::{Context, ControlLoop, Reconciler, Report, Safeguards, WatchSpec};
use provisioner_runtime::events::{Event, EventRecorder, ObjectRef};
use provisioner_runtime::watch::{Change, Scope};
use provisioner_runtime::{Environment, Work};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use self::act::{Actions, Step};
use self::cache::{CosiCache, Key};
use self::decide::{Decision, Facts, decide};
use self::objects::{API_VERSION, WatchedAccess, WatchedBucket};
use self::outcome::{Done, Operation, Outcome, Stopped};
use self::report::{Message, gives_up, label, message, next};
use self::secrets::SecretFacts;
use super::accounts::Accounts;
use super::driver::Driver;
use super::{advised, names};
use crate::bucket::{BucketHooks, BucketStartContext};
use crate::controller::RunError;
use crate::controller::bucket::backend::BucketBackend;
use crate::controller::shared::calls::{capabilities, start_backend};
use crate::controller::shared::events::{build, object_ref};
use crate::controller::shared::limits::{CallLimits, Thresholds};
use crate::controller::shared::metrics::{AttemptLabels, AttemptMetrics};
use crate::controller::shared::process::Process;
use crate::controller::shared::program;
use crate::options::{BucketOptions, Coordination, Options};
use crate::protocol::COSI_DRIVER;
use crate::{protocol, rbac};

/// Runs a [`BucketProvisioner`](crate::bucket::BucketProvisioner) as the controller of the Buckets and BucketAccesses
/// of its COSI driver, without the upstream sidecar. [`Program`](crate::Program) runs it if
/// [`BucketOptions::cosi_controller`] is set.
///
/// ```no_run
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # async fn main_(store: impl BucketHooks) -> Result<(), RunError> {
/// CosiController::new(store, BucketOptions::new("example.com/s3")).run().await
/// # }
/// ```
pub struct CosiController {
    options: BucketOptions,
    backend: Arc<dyn BucketBackend>,
    environment: Environment,
}

impl CosiController {
    /// Creates a controller for this provisioner. It does nothing before it runs.
    pub fn new(provisioner: impl BucketHooks, options: BucketOptions) -> Self {
        Self { options, backend: Arc::new(provisioner), environment: Environment::default() }
    }

    /// Sets the clock and the source of randomness, for simulations that are reproducible by their seed.
    #[must_use]
    pub fn environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// Runs as a program: sets up logs, connects, checks its permissions and works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the API server cannot be used. Later interruptions are retried.
    pub async fn run(mut self) -> Result<(), RunError> {
        let own = capabilities(|| self.backend.access_rules())?;
        let driver = names::of_options(&self.options).map_err(RunError::Options)?;
        let mut rules = rbac::cosi_controller_rules(&driver, &self.options.options);
        rules.extend(own);
        let started = program::start(&mut self.options.options, &rules).await;
        let advice = |namespace: &str| rbac::cosi_controller_advice(&self.options, namespace);
        let started = started.map_err(|error| advised(error, &self.options.options, advice));
        let Some((client, shutdown)) = started? else { return Ok(()) };
        self.run_with(client, shutdown).await
    }

    /// Runs with a given client until `shutdown` is cancelled. Does not affect the process, so it suits tests and
    /// embedding.
    ///
    /// # Errors
    /// If the address for probes and metrics is not available, if the options are invalid, or if another process
    /// replaces this one. All other errors are retried.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend, environment } = self;
        let driver = names::of_options(&options).map_err(RunError::Options)?;
        let options = loop_options(&driver, &options.options);
        if options.coordination == Coordination::PerNode || options.shards > 1 {
            let text = "a COSI controller supports only --coordination lease and none, and one shard";
            return Err(RunError::Options(text.to_owned()));
        }
        let process =
            Process::identify(&options, protocol::SERVES_BUCKETS, client.clone(), environment, &shutdown).await?;
        let Some(process) = process else { return Ok(()) };
        let capabilities = capabilities(|| backend.capabilities())?;
        let (namespace, cluster_id) = (process.namespace.clone(), process.cluster_id.clone());
        let accounts = Accounts { client, namespace, driver, cluster_id: cluster_id.clone() };
        // The loop already limits calls, with separate limits for creation and removal.
        let calls = Semaphore::MAX_PERMITS;
        let driver = Driver::new(backend.clone(), capabilities, accounts, CallLimits::of(&options), calls);
        let (client, loop_options) = process.into_loop(&options, "cosi", str::to_owned, Safeguards::default());
        let (listed, lists) = (Mutex::default(), AtomicU64::new(0));
        let reconciler = |context: Context<CosiCache>| CosiReconciler {
            actions: Arc::new(Actions { context, driver, backend, listed, lists }),
            cluster_id,
            limits: CallLimits::of(&options),
            thresholds: Thresholds::of(&options),
            metrics: AttemptMetrics::new(),
        };
        let control = ControlLoop::new(client, loop_options, CosiCache::default(), reconciler)?;
        Ok(control.run(shutdown).await?)
    }
}

impl fmt::Debug for CosiController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CosiController").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the options of the loop. Its journal and its events are named after the driver, which separates it from a
/// controller of ObjectBucketClaims. It uses the Lease of the upstream sidecar, so that the two never work at the same
/// time.
pub(crate) fn loop_options(driver: &str, options: &Options) -> Options {
    Options {
        provisioner_name: driver.to_owned(),
        lease_name: Some(format!("cosi-sidecar-leader-{driver}")),
        ..options.clone()
    }
}

struct CosiReconciler {
    actions: Arc<Actions>,
    cluster_id: String,
    limits: CallLimits,
    thresholds: Thresholds,
    metrics: AttemptMetrics,
}

impl Reconciler for CosiReconciler {
    type Cache = CosiCache;
    type Decision = Decision;
    type Outcome = (Operation, Outcome);
    type Status = Message;

    fn watches(&self) -> Vec<WatchSpec<CosiCache>> {
        let client = || self.actions.context.client().clone();
        let driver: Arc<str> = self.actions.driver.name().into();
        let (of_buckets, of_accesses, of_secrets) = (driver.clone(), driver.clone(), driver.clone());
        let read_bucket = move |event: Change<WatchedBucket>| event.map(|bucket| objects::bucket(&bucket, &of_buckets));
        let read_access =
            move |event: Change<WatchedAccess>| event.map(|access| objects::access(&access, &of_accesses));
        let labelled = Scope::from(Api::<Secret>::all(client())).with_labels(format!("{COSI_DRIVER}={driver}"));
        let read_secret = move |event: Change<Secret>| {
            event.map(|secret| {
                let path = format!("{}/{}", secret.namespace()?, secret.name_any());
                Some((path.into(), SecretFacts::of(&secret, &of_secrets)))
            })
        };
        let buckets = WatchSpec::new("buckets", Api::all(client()), read_bucket, CosiCache::bucket_event);
        let accesses = WatchSpec::new("bucketaccesses", Api::all(client()), read_access, CosiCache::access_event);
        let secrets = WatchSpec::new("secrets", labelled, read_secret, CosiCache::secret_event);
        vec![accesses, buckets, secrets]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        decide(facts)
    }

    async fn act(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> (Operation, Outcome) {
        let operation = Operation::of(&decision, facts);
        match decision {
            Decision::NoAction => (operation, Ok(Done::NoAction)),
            _ => (operation, self.actions.execute(step.key(), step).await),
        }
    }

    fn report(
        &self,
        (operation, outcome): (Operation, Outcome),
        facts: &Facts,
        work: &Work<Key>,
        took: Duration,
    ) -> Report<Message> {
        let (attempt, label) = (work.attempt(), label(&outcome));
        if let Some(outcome) = label {
            let labels = AttemptLabels { operation: operation.label(), outcome, class: class(facts).to_owned() };
            self.metrics.count(&labels, took);
        }
        let gave_up = gives_up(operation, &outcome, attempt, self.thresholds).then_some(attempt);
        let message = message(operation, &outcome, gave_up);
        log(message.as_ref(), work.key(), attempt, label.unwrap_or("nothing to do"));
        Report {
            next: next(operation, &outcome, attempt, self.thresholds),
            event: message.as_ref().and_then(|message| event(message, operation, facts)),
            status: message.filter(|message| message.in_status),
        }
    }

    async fn write_status(&self, message: Message, step: &Step<'_>) -> Result<(), (Operation, Outcome)> {
        let operation = match step.key() {
            Key::Bucket(_) => Operation::Provision,
            Key::Access(_) => Operation::Grant,
        };
        match self.actions.write_error(step.key(), &message.text).await {
            // The object has changed, which leads to another attempt.
            Ok(()) | Err(Stopped::Changed) => Ok(()),
            Err(stopped) => Err((operation, Err(stopped))),
        }
    }

    async fn start(&self) -> Result<(), String> {
        let (client, cluster_id) = (self.actions.context.client().clone(), self.cluster_id.clone());
        let start = BucketStartContext { client, cluster_id };
        start_backend(self.limits.delete, async { self.actions.backend.start(start).await }).await
    }

    async fn probe(&self) -> Result<String, String> {
        let answer = self.actions.backend.probe().await;
        answer.map(|()| String::new()).map_err(|error| error.to_string())
    }

    fn report_blocked(&self, facts: &Facts, _problem: &str, events: &EventRecorder) {
        let operation = Operation::of(&decide(facts), facts);
        if facts.object().is_some_and(|object| object.deleting || !object.is_ready()) {
            // Tenants read the event, and the problem may name files and addresses of the administrator.
            let text = "The controller cannot work at the moment; ask the administrator to check its log and /readyz"
                .to_owned();
            let message = Message { is_warning: true, reason: operation.failed(), text, in_status: false };
            event(&message, operation, facts).into_iter().for_each(|event| events.record(event));
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry.sub_registry_with_prefix("cosi_controller"));
    }
}

/// Returns the class of an access. A Bucket does not name its class.
fn class(facts: &Facts) -> &str {
    match facts {
        Facts::Access(view) => view.access.content.as_ref().map_or("", |content| &content.class),
        Facts::Bucket(_) | Facts::None => "",
    }
}

fn event(message: &Message, operation: Operation, facts: &Facts) -> Option<Event> {
    let object = facts.object()?;
    let kind = match facts {
        Facts::Access(_) => "BucketAccess",
        Facts::Bucket(_) | Facts::None => "Bucket",
    };
    let namespace = Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let object = ObjectRef { namespace, ..object_ref((API_VERSION, kind), &object.name, &object.uid) };
    Some(build(object, message.is_warning, message.reason, operation.action(), message.text.clone()))
}

fn log(message: Option<&Message>, key: &Key, attempt: u32, outcome: &'static str) {
    match message {
        Some(Message { is_warning: true, text, .. }) => tracing::warn!(%key, attempt, outcome, "{text}"),
        Some(Message { text, .. }) => tracing::info!(%key, outcome, "{text}"),
        None => tracing::debug!(%key, attempt, outcome, "nothing to report"),
    }
}
