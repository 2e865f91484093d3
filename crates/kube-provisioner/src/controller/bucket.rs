//! The bucket controller: makes buckets and users for claims, and removes them with their claims.
//!
//! The steps of one key: `cache` (what is known) -> `facts` -> `decide` -> `act` -> `outcome` -> `report` and `messages`. The
//! loop around it is [`provisioner_runtime::controller`]. The ObjectBucket is the record of what was begun.

mod act;
mod backend;
mod cache;
mod class;
mod decide;
#[cfg(test)]
mod decide_table;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod decision;
mod delivered;
mod delivered_index;
mod delivered_names;
mod delivered_table;
#[cfg(test)]
mod event_table;
mod events;
#[cfg(feature = "unstable-explain")]
pub(crate) mod explain;
mod facts;
mod gone;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod key;
mod messages;
mod metrics;
mod outcome;
mod partial;
mod reach;
mod record;
pub(crate) mod recorded;
mod report;
mod safeguards;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod share;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use objectbucket_api::names::{PROVISIONER_LABEL, provisioner_label};
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::{
    Context, ControlLoop, LoopError, Reconciler, Report, Safeguards as LoopSafeguards, WatchSpec,
};
use provisioner_runtime::events::EventRecorder;
use provisioner_runtime::queue::Work;
use provisioner_runtime::watch::{Change, Scope, WatchHealth};
use tokio::sync::Mutex;

use self::act::{Actions, Step};
use self::cache::BucketCache;
use self::class::read_class;
pub(crate) use self::class::read_texts;
use self::decide::{Rules, decide};
use self::decision::Decision;
use self::delivered::{of_config_map, of_secret};
use self::facts::Facts;
use self::key::Key;
use self::messages::{UserMessage, user_message};
use self::metrics::BucketMetrics;
use self::outcome::{Operation, Outcome};
use self::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use self::report::{gives_up, label, next};
use super::shared::calls::{self, Crashed};
use super::shared::class_parameters::{BadParameters, Parsed};
use super::shared::limits::{CallLimits, Thresholds};
use super::shared::names::ProvisionerNames;
use super::shared::process::Process;
use super::shared::watched::WatchedClass;
use crate::bucket::BucketProvisioner;
use crate::options::BucketOptions;

pub(crate) use self::backend::BucketBackend;
#[cfg(feature = "cosi")]
pub(crate) use self::backend::UntypedLookup;
#[cfg(any(feature = "conformance", feature = "cosi"))]
pub(crate) use self::backend::{UntypedAccount, UntypedBucket, UntypedGrant, UntypedRequest};
pub(crate) use self::messages::class_text;
#[cfg(feature = "planted-faults")]
pub use self::safeguards::BucketSafeguard;
#[cfg(not(feature = "planted-faults"))]
use self::safeguards::BucketSafeguard;
pub(crate) use self::safeguards::Safeguards;

/// The reconciler of claims and ObjectBuckets.
pub(crate) struct BucketReconciler {
    actions: Arc<Actions>,
    metrics: BucketMetrics,
}

/// The loop of a provisioner's buckets.
pub(crate) fn control_loop(
    BucketOptions { options, .. }: &BucketOptions,
    rules: Rules,
    backend: Arc<dyn BucketBackend>,
    process: Process,
) -> Result<ControlLoop<BucketReconciler>, LoopError> {
    let rules = Arc::new(rules);
    let fencing = rules.safeguards.include(BucketSafeguard::Fencing);
    let safeguards = LoopSafeguards { fencing, ..LoopSafeguards::default() };
    let (client, loop_options) = process.into_loop(options, ("buckets", key::shard_text), safeguards);
    let cache = BucketCache::new(rules.clone());
    let reconciler = |context: Context<BucketCache>| BucketReconciler {
        actions: Arc::new(Actions {
            context,
            backend,
            rules,
            limits: CallLimits::of(options),
            resync: options.resync_period,
            thresholds: Thresholds::of(options),
            shared_accounts: Mutex::new(()),
            claims: WatchHealth::new(),
            buckets: WatchHealth::new(),
        }),
        metrics: BucketMetrics::new(),
    };
    ControlLoop::new(client, loop_options, cache, reconciler)
}

/// What is wrong with a class's parameters, for a command that has no cluster.
pub(crate) fn class_problem<B: BucketProvisioner>(parameters: Option<&BTreeMap<String, String>>) -> Option<String> {
    let texts = parameters.cloned().unwrap_or_default();
    let read = read_texts(&texts, &B::capabilities(), Parsed::read::<B::Parameters>);
    match read {
        Ok(_) => None,
        Err(BadParameters::Wrong(problem) | BadParameters::Crashed(problem)) => Some(problem),
    }
}

/// The rules' inputs from the options and the author's capabilities.
pub(crate) fn rules(
    options: &BucketOptions,
    backend: &dyn BucketBackend,
    (namespace, cluster_id): (&str, &str),
    safeguards: Safeguards,
) -> Result<Rules, Crashed> {
    let BucketOptions { options, allowed_additional_config, .. } = options;
    Ok(Rules {
        names: ProvisionerNames::of(options),
        capabilities: calls::capabilities(|| backend.capabilities())?,
        identity: options.identity.as_deref().unwrap_or(namespace).into(),
        cluster_id: cluster_id.into(),
        allowed_config: allowed_additional_config.clone(),
        known_config: share::known_config(backend),
        safeguards,
    })
}

impl Reconciler for BucketReconciler {
    type Cache = BucketCache;
    type Decision = Decision;
    type Outcome = (Operation, Outcome);
    type Status = UserMessage;

    fn watches(&self) -> Vec<WatchSpec<BucketCache>> {
        let client = || self.actions.context.client().clone();
        let claims = WatchSpec::new(
            "objectbucketclaims",
            Api::<WatchedClaim>::all(client()),
            self.actions.claims.clone(),
            |event: Change<WatchedClaim>| event.map(|claim| claim_facts(&claim)),
            BucketCache::claim_event,
        );
        let buckets = WatchSpec::new(
            "objectbuckets",
            Api::<WatchedBucket>::all(client()),
            self.actions.buckets.clone(),
            |event: Change<WatchedBucket>| event.map(|bucket| bucket_facts(&bucket)),
            BucketCache::bucket_event,
        );
        let (actions, metrics) = (self.actions.clone(), self.metrics.clone());
        let on_class = move |event: Change<WatchedClass>| {
            let event = read_class(event, &actions.rules, &*actions.backend);
            metrics.start_class_of(&event);
            event
        };
        let classes = WatchSpec::new(
            "storageclasses",
            Api::<WatchedClass>::all(client()),
            WatchHealth::new(),
            on_class,
            BucketCache::class_event,
        );
        let selector = self.selector();
        let secrets = WatchSpec::new(
            "secrets",
            Scope::labelled(Api::<Secret>::all(client()), &selector),
            WatchHealth::new(),
            |event: Change<Secret>| event.map(|secret| of_secret(&secret)),
            BucketCache::secret_event,
        );
        let config_maps = WatchSpec::new(
            "configmaps",
            Scope::labelled(Api::<ConfigMap>::all(client()), &selector),
            WatchHealth::new(),
            |event: Change<ConfigMap>| event.map(|map| of_config_map(&map)),
            BucketCache::config_map_event,
        );
        // A claim without its ObjectBucket would be taken for a new one, so the claims come last: the watches start from
        // the last to the first.
        vec![
            claims.dated().after_first_term(),
            buckets.dated().after_first_term(),
            secrets.dated(),
            config_maps,
            classes,
        ]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        decide(facts, &self.actions.rules)
    }

    async fn act(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> (Operation, Outcome) {
        let operation = Operation::of(&decision, facts);
        (operation, self.actions.execute(decision, facts, step).await)
    }

    fn report(
        &self,
        (operation, outcome): (Operation, Outcome),
        facts: &Facts,
        work: &Work<Key>,
        took: Duration,
    ) -> Report<UserMessage> {
        let (attempt, thresholds) = (work.attempt(), self.actions.thresholds);
        let label = label(&outcome);
        if let Some(label) = label {
            self.metrics.count((operation.label(), label), facts.class_name(), took);
        }
        let gave_up = gives_up(&outcome, attempt, thresholds).then_some(attempt);
        let message = user_message(&outcome, facts, &self.actions.rules.names.own, gave_up);
        events::log(message.as_ref(), facts, attempt, label.unwrap_or("nothing to do"));
        Report {
            next: next(&outcome, attempt, thresholds),
            event: message.as_ref().and_then(|message| events::to_event(message, operation, facts)),
            status: message.filter(|_| !operation.is_beside_use()),
        }
    }

    async fn write_status(&self, message: UserMessage, step: &Step<'_>) -> Result<(), (Operation, Outcome)> {
        let written = self.actions.write_status(&message, step.key()).await;
        let doing = "writing the claim's status";
        written.map_err(|error| (Operation::WriteStatus, Outcome::CallFailed { doing, error }))
    }

    async fn start(&self) -> Result<(), String> {
        self.actions.start().await
    }

    async fn probe(&self) -> Result<String, String> {
        let classes = self.actions.context.cache().own_classes();
        reach::reach(&*self.actions.backend, classes).await
    }

    fn report_blocked(&self, facts: &Facts, _problem: &str, events: &EventRecorder) {
        if let Some(claim) = facts.claim.as_ref().filter(|claim| !claim.is_bound()) {
            events.record(events::blocked(claim));
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry, self.actions.context.clone());
    }
}

impl BucketReconciler {
    /// What selects our Secrets and ConfigMaps.
    fn selector(&self) -> String {
        let names = &self.actions.rules.names;
        let labels: Vec<String> =
            [&names.own].into_iter().chain(&names.additional).map(|name| provisioner_label(name)).collect();
        format!("{PROVISIONER_LABEL} in ({})", labels.join(","))
    }
}
