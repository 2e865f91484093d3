//! The bucket controller: creates buckets and accounts for claims, and removes them with their claims.
//!
//! The steps for one key: `cache` (the known objects) -> `facts` -> `decide` -> one operation (`attempt`, `rotation`,
//! `adoption`, `release`, or only `delivery`) -> `outcome` -> `report` and `messages`. Operations call the provisioner
//! through `calls` and the API server through `objects`. The surrounding loop is [`provisioner_runtime::controller`].
//! The ObjectBucket records each unfinished attempt.

mod adoption;
mod attempt;
pub(crate) mod backend;
mod cache;
mod calls;
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
mod delivery;
#[cfg(test)]
mod event_table;
mod events;
#[cfg(feature = "unstable-explain")]
pub(crate) mod explain;
mod facts;
mod inputs;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod key;
mod messages;
mod metrics;
mod objects;
mod outcome;
mod partial;
mod probe;
mod recent_deletions;
mod record;
pub(crate) mod recorded_assets;
mod release;
mod report;
mod rotation;
mod safeguards;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use objectbucket_api::names::{PROVISIONER_LABEL, provisioner_label};
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::{
    Context, ControlLoop, Reconciler, Report, Safeguards as LoopSafeguards, WatchSpec,
};
use provisioner_runtime::events::EventRecorder;
use provisioner_runtime::queue::Work;
use provisioner_runtime::watch::{Change, Scope, WatchHealth};

use self::attempt::Attempt;
use self::backend::BucketBackend;
use self::cache::BucketCache;
pub(crate) use self::class::read_texts;
use self::class::{ReadClass, known_config, read_class};
use self::decide::{Rules, decide};
use self::decision::{Decision, NoAction};
use self::delivered::{Deliverable, WatchedDelivered};
use self::facts::{BucketFacts, ClaimFacts, Facts};
use self::key::Key;
use self::messages::{UserMessage, user_message};
use self::objects::Objects;
use self::outcome::{Done, NotServed, Operation, Outcome, Stopped};
use self::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use self::release::{Release, release_claim};
use self::report::{gives_up, label, next};
use self::rotation::{Rotation, verify};
use super::RunError;
use super::shared::calls::{capabilities, start_backend};
use super::shared::class_parameters::{BadParameters, Parsed};
use super::shared::limits::{CallLimits, Thresholds};
use super::shared::metrics::{AttemptLabels, AttemptMetrics};
use super::shared::names::ProvisionerNames;
use super::shared::process::Process;
use super::shared::watched::WatchedClass;
use crate::bucket::{BucketHooks, BucketStartContext};
use crate::options::BucketOptions;

pub(crate) use self::messages::class_text;
#[cfg(feature = "planted-faults")]
pub use self::safeguards::BucketSafeguard;
#[cfg(not(feature = "planted-faults"))]
use self::safeguards::BucketSafeguard;
pub(crate) use self::safeguards::Safeguards;

type Step<'a> = provisioner_runtime::controller::Step<'a, BucketCache>;

/// The time for which a claim may wait for its class, or for another provisioner, without an event.
const UNSERVED_GRACE: Duration = Duration::from_secs(60);

pub(crate) struct BucketReconciler {
    objects: Objects,
    backend: Arc<dyn BucketBackend>,
    rules: Arc<Rules>,
    limits: CallLimits,
    /// The interval at which the keys of claims are verified.
    resync: Duration,
    thresholds: Thresholds,
    metrics: AttemptMetrics,
}

pub(crate) fn control_loop(
    BucketOptions { options, allowed_additional_config, .. }: &BucketOptions,
    backend: Arc<dyn BucketBackend>,
    process: Process,
    safeguards: Safeguards,
) -> Result<ControlLoop<BucketReconciler>, RunError> {
    let rules = Arc::new(Rules {
        names: ProvisionerNames::of(options),
        capabilities: capabilities(|| backend.capabilities())?,
        identity: options.identity.as_deref().unwrap_or(&process.namespace).into(),
        cluster_id: process.cluster_id.as_str().into(),
        allowed_config: allowed_additional_config.clone(),
        known_config: known_config(&*backend),
        safeguards,
    });
    let fencing = rules.safeguards.include(BucketSafeguard::Fencing);
    let safeguards = LoopSafeguards { fencing, ..LoopSafeguards::default() };
    let (client, loop_options) = process.into_loop(options, "buckets", key::shard_text, safeguards);
    let cache = BucketCache::new(rules.clone());
    let reconciler = |context: Context<BucketCache>| BucketReconciler {
        objects: Objects { context, rules: rules.clone(), claims: WatchHealth::new(), buckets: WatchHealth::new() },
        backend,
        rules,
        limits: CallLimits::of(options),
        resync: options.resync_period,
        thresholds: Thresholds::of(options),
        metrics: AttemptMetrics::new(),
    };
    Ok(ControlLoop::new(client, loop_options, cache, reconciler)?)
}

/// Returns the problem with a class's parameters, for a command without a cluster.
pub(crate) fn class_problem<B: BucketHooks>(parameters: Option<&BTreeMap<String, String>>) -> Option<String> {
    let texts = parameters.cloned().unwrap_or_default();
    let read = read_texts(&texts, &B::capabilities(), Parsed::read::<B::Parameters>);
    match read {
        Ok(_) => None,
        Err(BadParameters::Invalid(problem) | BadParameters::Crashed(problem)) => Some(problem),
    }
}

impl Reconciler for BucketReconciler {
    type Cache = BucketCache;
    type Decision = Decision;
    type Outcome = (Operation, Outcome);
    type Status = UserMessage;

    fn watches(&self) -> Vec<WatchSpec<BucketCache>> {
        let client = || self.objects.context.client().clone();
        let read_claim = |event: Change<WatchedClaim>| event.map(|claim| claim_facts(&claim));
        let read_bucket = |event: Change<WatchedBucket>| event.map(|bucket| bucket_facts(&bucket));
        let (rules, backend, attempts) = (self.rules.clone(), self.backend.clone(), self.metrics.clone());
        let on_class = move |event: Change<WatchedClass>| {
            let event = read_class(event, &rules, &*backend);
            if let Some(class) = ReadClass::seen(&event) {
                metrics::start_class(&attempts, class);
            }
            event
        };
        let health = self.objects.claims.clone();
        let on_claim = move |cache: &mut BucketCache, event: Change<Option<ClaimFacts>>| {
            cache.in_list(health.listing(&event), |cache| cache.claim_event(event))
        };
        let health = self.objects.buckets.clone();
        let on_bucket = move |cache: &mut BucketCache, event: Change<Option<BucketFacts>>| {
            cache.in_list(health.listing(&event), |cache| cache.bucket_event(event))
        };
        let claims = WatchSpec::new("objectbucketclaims", Api::all(client()), read_claim, on_claim);
        let buckets = WatchSpec::new("objectbuckets", Api::all(client()), read_bucket, on_bucket);
        let classes = WatchSpec::new("storageclasses", Api::all(client()), on_class, BucketCache::class_event);
        // A claim without its ObjectBucket would look new, so the claims come last: the watches start from
        // the last to the first.
        vec![
            claims.with_health(self.objects.claims.clone()).versioned().after_first_term(),
            buckets.with_health(self.objects.buckets.clone()).versioned().after_first_term(),
            self.delivered_watch::<Secret>("secrets").versioned(),
            self.delivered_watch::<ConfigMap>("configmaps"),
            classes,
        ]
    }

    fn decide(&self, facts: &Facts) -> Decision {
        decide(facts, &self.rules)
    }

    async fn act(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> (Operation, Outcome) {
        let operation = Operation::of(&decision, facts);
        (operation, self.execute(decision, facts, step).await)
    }

    fn report(
        &self,
        (operation, outcome): (Operation, Outcome),
        facts: &Facts,
        work: &Work<Key>,
        took: Duration,
    ) -> Report<UserMessage> {
        let (attempt, thresholds) = (work.attempt(), self.thresholds);
        let label = label(&outcome);
        if let Some(outcome) = label {
            let class = facts.effective_class().to_owned();
            self.metrics.count(&AttemptLabels { operation: operation.label(), outcome, class }, took);
        }
        let gave_up = gives_up(&outcome, attempt, thresholds).then_some(attempt);
        let message = user_message(&outcome, facts, &self.rules.names.own, gave_up);
        events::log(message.as_ref(), facts, attempt, label.unwrap_or("nothing to do"));
        Report {
            next: next(&outcome, attempt, thresholds),
            event: message.as_ref().and_then(|message| events::to_event(message, operation, facts)),
            status: message.filter(|_| !operation.keeps_bucket_usable()),
        }
    }

    async fn write_status(&self, message: UserMessage, step: &Step<'_>) -> Result<(), (Operation, Outcome)> {
        let written = status::write_status(&self.objects, &message, step.key()).await;
        let doing = "writing the claim's status";
        written.map_err(|error| (Operation::WriteStatus, Err(Stopped::CallFailed { doing, error })))
    }

    async fn start(&self) -> Result<(), String> {
        let (client, cluster_id) = (self.objects.context.client().clone(), self.rules.cluster_id.to_string());
        let start = BucketStartContext { client, cluster_id };
        start_backend(self.limits.delete, async { self.backend.start(start).await }).await
    }

    async fn probe(&self) -> Result<String, String> {
        let classes = self.objects.cache().own_classes();
        probe::probe_backends(&*self.backend, classes).await
    }

    fn report_blocked(&self, facts: &Facts, _problem: &str, events: &EventRecorder) {
        if let Some(claim) = facts.claim.as_ref().filter(|claim| claim.deleting || !claim.is_bound()) {
            events.record(events::blocked(claim));
        }
    }

    fn register(&self, registry: &mut Registry) {
        metrics::register(&self.metrics, registry, self.objects.context.clone());
    }
}

impl BucketReconciler {
    async fn execute(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        match decision {
            Decision::NoAction(NoAction::Bound) => Box::pin(verify(self, facts, step, None)).await,
            Decision::NoAction(NoAction::ClassMissing) => self.not_served(NotServed::NoClass, facts, step),
            Decision::NoAction(NoAction::ForeignClass) => self.not_served(NotServed::ForeignClass, facts, step),
            Decision::NoAction(_) => Ok(Done::Nothing),
            Decision::Refuse(refusal) => Err(Stopped::Refused(refusal)),
            // Boxed, because a task is as large as its largest branch, and there are many such tasks.
            Decision::Attempt(reason) => Box::pin(Attempt::run(self, reason, facts, step)).await,
            Decision::Adopt => Box::pin(adoption::adopt(self, facts)).await,
            Decision::Restore => Box::pin(delivery::restore(&self.objects, facts)).await,
            Decision::Rotate => Box::pin(Rotation::new(self, facts, step)?.rotate()).await,
            Decision::Retire => Box::pin(Rotation::new(self, facts, step)?.revoke_old_keys()).await,
            Decision::Release(release_mode) => Box::pin(Release::run(self, release_mode, facts, step)).await,
            Decision::ReleaseClaim => Box::pin(release_claim(self, facts, step)).await,
        }
    }

    /// Waits for some time before the user is notified that no provisioner reconciles the claim.
    fn not_served(&self, why: NotServed, facts: &Facts, step: &Step<'_>) -> Outcome {
        if !self.rules.should_report(why, facts) {
            Ok(Done::Nothing)
        } else if step.work().waits() == 0 {
            Ok(Done::CheckAgain { after: UNSERVED_GRACE })
        } else {
            Err(Stopped::NotServed(why))
        }
    }

    /// Returns the watch of our Secrets or ConfigMaps.
    fn delivered_watch<K: Deliverable>(&self, name: &'static str) -> WatchSpec<BucketCache> {
        let api = Api::<K>::all(self.objects.context.client().clone());
        let read = |event: Change<K>| event.map(|object| object.to_watched());
        let health = WatchHealth::new();
        let known = health.clone();
        let apply = move |cache: &mut BucketCache, event: Change<Option<WatchedDelivered>>| {
            cache.in_list(known.listing(&event), |cache| cache.delivered_event::<K>(event))
        };
        WatchSpec::new(name, Scope::from(api).with_labels(self.selector()), read, apply).with_health(health)
    }

    fn selector(&self) -> String {
        let labels: Vec<String> = self.rules.names.all().map(|name| provisioner_label(name)).collect();
        format!("{PROVISIONER_LABEL} in ({})", labels.join(","))
    }
}
