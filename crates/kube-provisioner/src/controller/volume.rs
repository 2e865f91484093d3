//! The volume controller: provisions volumes for claims, and deletes released volumes.
//!
//! The steps for one key: `cache` (the known objects) -> `facts` -> `decide` -> `act` -> `outcome` -> `report`. The
//! surrounding loop is [`provisioner_runtime::controller`].

mod act;
mod author_view;
mod backend;
mod cache;
mod class;
mod decide;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod decision;
mod events;
#[cfg(feature = "unstable-explain")]
pub(crate) mod explain;
mod facts;
mod journal_entry;
mod key;
mod metrics;
mod names;
mod node_topology;
mod object;
mod outcome;
mod partial;
mod report;
mod safeguards;
#[cfg(test)]
mod tests;

use std::convert::identity;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube::Api;
use prometheus_client::registry::Registry;
use provisioner_runtime::Backoff;
use provisioner_runtime::controller::{
    Context, ControlLoop, JournalSpec, LoopError, Reconciler, Report, Safeguards as LoopSafeguards, WatchSpec,
    catch_panic,
};
use provisioner_runtime::events::EventRecorder;
use provisioner_runtime::journal::Entry;
use provisioner_runtime::queue::Work;
use provisioner_runtime::watch::{Change, WatchHealth};

use self::act::{Actions, Step};
use self::cache::VolumeCache;
use self::class::read_class;
use self::decide::{Rules, decide};
use self::decision::Decision;
use self::facts::{ClaimState, Facts};
use self::key::Key;
use self::metrics::VolumeMetrics;
use self::names::VolumeNames;
use self::node_topology::NodeTopology;
use self::outcome::{Outcome, Stopped};
use self::partial::{WatchedClaim, WatchedVolume};
use self::report::{Case, provisioner_paused, report};
use super::RunError;
use super::shared::calls;
use super::shared::limits::{CallLimits, Thresholds};
use super::shared::names::ProvisionerNames;
use super::shared::process::Process;
use super::shared::watched::WatchedClass;
use crate::object_watch::{ObjectWatch, Trigger};
use crate::options::{BidDelays, Coordination, Options};

pub(crate) use self::backend::Backend;
#[cfg(feature = "conformance")]
pub(crate) use self::backend::UntypedRequest;
#[cfg(feature = "conformance")]
pub(crate) use self::object::{VolumeInputs, build};
pub(crate) use self::report::parameters_text as parameters_problem;
#[cfg(feature = "planted-faults")]
pub use self::safeguards::Safeguard;
#[cfg(not(feature = "planted-faults"))]
use self::safeguards::Safeguard;
pub(crate) use self::safeguards::Safeguards;

pub(crate) struct VolumeReconciler {
    actions: Arc<Actions>,
    thresholds: Thresholds,
    metrics: VolumeMetrics,
}

pub(crate) fn control_loop(
    options: &Options,
    rules: Rules,
    backend: Arc<dyn Backend>,
    process: Process,
) -> Result<ControlLoop<VolumeReconciler>, LoopError> {
    let rules = Arc::new(rules);
    let safeguards = LoopSafeguards {
        journal: rules.safeguards.include(Safeguard::Journal),
        fencing: rules.safeguards.include(Safeguard::Fencing),
        restored: rules.safeguards.include(Safeguard::Journals),
    };
    let (namespace, journal) = (process.namespace.clone(), process.journal);
    let (client, loop_options) = process.into_loop(options, "volumes", str::to_owned, safeguards);
    let cache = VolumeCache::new(rules.clone());
    let reconciler = |runtime: Context<VolumeCache>| VolumeReconciler {
        actions: Arc::new(Actions {
            runtime,
            backend,
            rules,
            limits: CallLimits::of(options),
            only_updates_claims: options.sidecar_rbac,
            claims: WatchHealth::new(),
            volumes: WatchHealth::new(),
            namespace,
            journal,
            no_clean_up: AtomicBool::new(false),
            no_guard: AtomicBool::new(false),
        }),
        thresholds: Thresholds::of(options),
        metrics: VolumeMetrics::new(),
    };
    ControlLoop::new(client, loop_options, cache, reconciler)
}

/// Returns the rules for these options and the author's capabilities.
pub(crate) fn rules(
    options: &Options,
    backend: &dyn Backend,
    process: &Process,
    safeguards: Safeguards,
) -> Result<Rules, RunError> {
    let names = ProvisionerNames::of(options);
    let node = options.node_name.as_deref().filter(|_| options.coordination == Coordination::PerNode);
    let node_topology =
        node.zip(options.node_segments.clone()).map(|(node, segments)| NodeTopology::new(node, segments));
    let identity = options.identity.as_deref().or(node).or((!options.sidecar_rbac).then_some(&process.namespace));
    let identity = node_topology.as_ref().map(NodeTopology::identity).or(identity.map(Into::into));
    // The jitter lets replicas bid at different times.
    let bids = options.bid_delays.map(|BidDelays { base, max }| Backoff::exponential(base, max).with_jitter(1.0));
    Ok(Rules {
        names,
        volume_names: VolumeNames::of(options).map_err(RunError::Options)?,
        capabilities: calls::capabilities(|| backend.capabilities())?,
        finalizer: options.add_finalizer,
        identity,
        cluster_id: process.cluster_id.as_str().into(),
        node: node.map(Into::into),
        node_topology,
        bids,
        safeguards,
    })
}

impl VolumeReconciler {
    fn case<'a>(&'a self, volume: &'a str, facts: &'a Facts, work: &Work<Key>) -> Case<'a> {
        let (attempt, repeats, waits) = (work.attempt(), work.repeats(), work.waits());
        let (provisioner, thresholds) = (&self.actions.rules.names.own, self.thresholds);
        Case { provisioner, volume, facts, attempt, repeats, waits, thresholds }
    }

    /// Reports to claims that cannot have the name why they have no volume, because the work for the claim that holds
    /// the name may take long.
    fn refuse_namesakes(&self, facts: &Facts, step: &Step<'_>) {
        for namesake in &facts.namesakes {
            let decision = self.decide(namesake);
            let Decision::Refuse(refusal) = &decision else { continue };
            if self.actions.accepted_claim(&decision, namesake, step).is_err() {
                continue;
            }
            let volume = step.key().to_string();
            // Report as in a second attempt: a first one emits no event about a missing class, which may appear soon.
            let case = Case { attempt: 2, ..self.case(&volume, namesake, step.work()) };
            let report = report(Err(Stopped::Refused(refusal.clone())), &case);
            events::log(&report, &case);
            if let Some(event) = report.event.and_then(|event| events::to_event(event, &case)) {
                self.actions.runtime.events().record(event);
            }
        }
    }
}

impl Reconciler for VolumeReconciler {
    type Cache = VolumeCache;
    type Decision = Decision;
    type Outcome = Outcome;
    type Status = ();

    fn watches(&self) -> Vec<WatchSpec<VolumeCache>> {
        let client = || self.actions.runtime.client().clone();
        let (health, actions) = (self.actions.claims.clone(), self.actions.clone());
        let on_claim = move |cache: &mut VolumeCache, event: Change<WatchedClaim>| {
            let listing = health.listing(&event);
            cache.claim_event_at(health.delivering(), event, listing)
        };
        let health = self.actions.volumes.clone();
        let on_volume = move |cache: &mut VolumeCache, event: Change<WatchedVolume>| {
            let listing = health.listing(&event);
            cache.volume_event(event, listing)
        };
        let metrics = self.metrics.clone();
        let on_class = move |event: Change<WatchedClass>| {
            let event = read_class(event, &actions.rules, &*actions.backend);
            metrics.start_class_of(&event);
            event
        };
        let claims = WatchSpec::new("persistentvolumeclaims", Api::all(client()), identity, on_claim);
        let volumes = WatchSpec::new("persistentvolumes", Api::all(client()), identity, on_volume);
        let classes = WatchSpec::new("storageclasses", Api::all(client()), on_class, VolumeCache::class_event);
        let mut watches = vec![
            claims.with_health(self.actions.claims.clone()).versioned().after_first_term(),
            volumes.with_health(self.actions.volumes.clone()).versioned(),
            classes,
        ];
        let of_author = or_default_on_panic("in `watches`", || self.actions.backend.watches(&client()));
        watches.extend(of_author.into_iter().map(|ObjectWatch { plural, scope, health, on_change }| {
            let wakes =
                move |change| or_default_on_panic(format_args!("at a change of {plural}"), || on_change(change));
            let apply =
                |cache: &mut VolumeCache, wakes: Vec<Trigger>| wakes.iter().flat_map(|wake| cache.wake(wake)).collect();
            WatchSpec::new(plural, scope, wakes, apply).with_health(health).optional()
        }));
        watches
    }

    fn decide(&self, facts: &Facts) -> Decision {
        decide(facts, &self.actions.rules)
    }

    async fn act(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        self.refuse_namesakes(facts, step);
        self.actions.execute(decision, facts, step).await
    }

    fn report(&self, outcome: Outcome, facts: &Facts, work: &Work<Key>, took: Duration) -> Report<()> {
        let volume = work.key().to_string();
        let case = self.case(&volume, facts, work);
        let report = report(outcome, &case);
        let (class, source) = facts.labels();
        self.metrics.count(&report, class, source, took);
        events::log(&report, &case);
        let event = report.event.and_then(|event| events::to_event(event, &case));
        Report { next: report.next, event, status: None }
    }

    async fn start(&self) -> Result<(), String> {
        self.actions.start().await
    }

    async fn while_leading(&self) {
        self.actions.backend.while_leading().await;
    }

    async fn probe(&self) -> Result<String, String> {
        let answer = self.actions.backend.probe().await;
        answer.map(|()| String::new()).map_err(|error| error.to_string())
    }

    fn journal(&self) -> JournalSpec<VolumeCache> {
        let actions = self.actions.clone();
        let read = move |entry: &Entry| {
            let attempt = journal_entry::read(entry, (&*actions.backend, &actions.rules.capabilities))?;
            or_default_on_panic("in `take_over`", || actions.backend.take_over(&entry.key, &attempt.prepared));
            Ok(attempt)
        };
        let actions = self.actions.clone();
        let on_drop =
            move |key: &Key| or_default_on_panic("in `dropped`", || actions.backend.dropped(&key.to_string()));
        JournalSpec::new(read, VolumeCache::adopt)
            .on_drop(on_drop)
            .parted_by(journal_entry::node)
            .shared_by(journal_entry::namespace)
    }

    fn report_blocked(&self, facts: &Facts, _problem: &str, events: &EventRecorder) {
        for facts in facts.namesakes.iter().chain([facts]) {
            let of_other_node = matches!(self.decide(facts), Decision::CheckNode { .. });
            if let (ClaimState::Waiting(claim), false) = (&facts.claim, of_other_node) {
                events.record(events::about_claim(provisioner_paused(), &claim.facts));
            }
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry, self.actions.runtime.clone());
        or_default_on_panic("in `register_metrics`", || self.actions.backend.register_metrics(registry));
    }
}

/// Runs the provisioner's code. Logs a panic, and returns the default instead.
fn or_default_on_panic<T: Default>(place: impl Display, call: impl FnOnce() -> T) -> T {
    catch_panic(call).unwrap_or_else(|panic| {
        tracing::warn!("the provisioner's code crashed {place}: {panic}");
        T::default()
    })
}
