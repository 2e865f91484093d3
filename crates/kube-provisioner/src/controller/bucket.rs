//! The bucket controller: makes buckets and users for claims, and removes them with their claims.
//!
//! The steps of one key: `cache` (what is known) -> `facts` -> `decide` -> `act` -> `outcome` -> `report` and `messages`. The
//! loop around it is [`provisioner_runtime::controller`]. The ObjectBucket is the record of what was begun.

mod act;
mod backend;
mod cache;
mod class;
pub(crate) mod decide;
mod delivered;
mod delivered_table;
#[cfg(test)]
mod event_table;
mod events;
pub(crate) mod explain;
mod facts;
mod key;
mod messages;
mod metrics;
mod narrow;
mod outcome;
mod record;
mod report;
mod safeguards;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use objectbucket_api::names::{PROVISIONER_LABEL, provisioner_label};
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::{
    Context, ControlLoop, LoopError, Reconciler, Report, Safeguards as LoopSafeguards, WatchSpec, unpanicked,
};
use provisioner_runtime::events::EventRecorder;
use provisioner_runtime::journal::Entry;
use provisioner_runtime::queue::Work;
use provisioner_runtime::watch::{Change, Scope, WatchHealth};

use self::act::{Actions, CallLimits, Step};
use self::cache::BucketCache;
use self::class::ReadClass;
pub(crate) use self::class::read_texts;
use self::decide::{Decision, Rules, decide};
use self::delivered::{of_config_map, of_secret};
use self::facts::Facts;
use self::key::Key;
use self::metrics::BucketMetrics;
use self::narrow::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use self::outcome::Outcome;
use self::report::{Thresholds, label, next};
use super::class_parameters::{BadParameters, Parsed};
use super::names::ProvisionerNames;
use super::process::Process;
use super::watched::WatchedClass;
use crate::bucket::BucketProvisioner;
use crate::options::BucketOptions;

pub(crate) use self::backend::BucketBackend;
#[cfg(feature = "conformance")]
pub(crate) use self::backend::UntypedBucket;
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
    let safeguards = LoopSafeguards { journal: true, fencing: rules.safeguards.include(BucketSafeguard::Fencing) };
    let (client, loop_options) = process.into_loop(options, "buckets", safeguards);
    let cache = BucketCache::new(rules.clone());
    let reconciler = |context: Context<BucketCache>| BucketReconciler {
        actions: Arc::new(Actions {
            context,
            backend,
            rules,
            limits: CallLimits { provision: options.provision_timeout, delete: options.delete_timeout },
            thresholds: Thresholds {
                provision: options.failed_provision_threshold,
                delete: options.failed_delete_threshold,
            },
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
///
/// # Errors
/// The text of a panic of the author's code.
pub(crate) fn rules(
    options: &BucketOptions,
    backend: &dyn BucketBackend,
    namespace: &str,
    safeguards: Safeguards,
) -> Result<Rules, String> {
    let BucketOptions { options, allowed_additional_config } = options;
    Ok(Rules {
        names: ProvisionerNames::of(options),
        capabilities: unpanicked(|| backend.capabilities())?,
        identity: options.identity.as_deref().unwrap_or(namespace).into(),
        allowed_config: allowed_additional_config.clone(),
        safeguards,
    })
}

impl Reconciler for BucketReconciler {
    type Cache = BucketCache;
    type Decision = Decision;
    type Outcome = Outcome;

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
        let read_class = move |event: Change<WatchedClass>| {
            let event = ReadClass::of_event(event, &actions.rules, &*actions.backend);
            metrics.start_class_of(&event);
            event
        };
        let classes = WatchSpec::new(
            "storageclasses",
            Api::<WatchedClass>::all(client()),
            WatchHealth::new(),
            read_class,
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

    async fn act(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        self.actions.carry_out(decision, facts, step).await
    }

    fn report(&self, outcome: Outcome, facts: &Facts, work: &Work<Key>, took: Duration) -> Report {
        let label = label(&outcome);
        if let Some(label) = label {
            self.metrics.count(label, facts.class_name(), took);
        }
        let told = self.actions.told(&outcome, facts, work.attempt());
        events::log(told.as_ref(), facts, work.attempt(), label.map_or("nothing to do", |(_, outcome)| outcome));
        let next = next(&outcome, work.attempt(), self.actions.thresholds);
        Report { next, event: told.and_then(|told| events::to_event(told, facts)) }
    }

    async fn start(&self) -> Result<(), String> {
        self.actions.start().await
    }

    async fn probe(&self) -> Result<(), String> {
        self.actions.backend.probe().await.map_err(|error| error.to_string())
    }

    fn read_entry(&self, _: &Entry) -> Result<(), String> {
        Err("ObjectBuckets record what was begun, so no journal of a bucket provisioner has entries".to_owned())
    }

    fn held_up(&self, facts: &Facts, problem: &str, events: &EventRecorder) {
        if let Some(claim) = facts.claim.as_ref().filter(|claim| !claim.is_bound()) {
            events.record(events::held_up(claim, problem));
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
