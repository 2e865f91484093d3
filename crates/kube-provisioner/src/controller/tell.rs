//! Tells users and logs what `report` says.

use std::time::Duration;

use provisioner_runtime::events::{Event, EventKind, EventOptions, EventSink, ObjectRef};
use provisioner_runtime::surroundings::Surroundings;
use tokio::time::{Instant, sleep};

use super::facts::{ClaimFacts, VolumeState};
use super::report::{About, Case, Notice, Report, WorkKind, held_up, slow};

/// A call that takes longer than this gets an event of its own, so that the user knows that something happens.
pub(crate) const SLOW: Duration = Duration::from_secs(2);
/// Enough for a burst that takes a minute to tell.
const CAPACITY: usize = 32 * 1024;
/// Requests for events under way at a time, when nothing else is to be done.
const AT_LEISURE: usize = 16;
/// After so long under load events are sent beside the work, or a load without end would silence them.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Narrator {
    provisioner: String,
    events: EventSink,
}

impl Narrator {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(client: kube::Client, provisioner: &str, instance: String, surroundings: Surroundings) -> Self {
        let options = EventOptions { capacity: CAPACITY, surroundings, ..EventOptions::new(provisioner, instance) };
        Self { provisioner: provisioner.to_owned(), events: EventSink::new(client, options) }
    }

    pub(crate) fn events(&self) -> &EventSink {
        &self.events
    }

    /// Sends what waits, for at most so long; returns how much is left.
    pub(crate) async fn flush(&self, limit: Duration) -> usize {
        self.events.pace(AT_LEISURE);
        self.events.flush(limit).await
    }

    /// Work comes before telling of it: while there is some, events wait, for a time. Never ends.
    pub(crate) async fn pace(&self, is_busy: impl Fn() -> bool) -> &'static str {
        let mut busy_since = None;
        loop {
            if !self.events.is_due() {
                // What comes next has to wait until it is known how much there is to do.
                self.events.pace(0);
                self.events.wait_due().await;
                busy_since = None;
            }
            let since = is_busy().then(|| *busy_since.get_or_insert_with(Instant::now));
            busy_since = since;
            self.events.pace(match since {
                None => AT_LEISURE,
                Some(since) if since.elapsed() < PATIENCE => 0,
                Some(_) => 1,
            });
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Tells that a call of the author's code takes its time.
    pub(crate) fn slow(&self, claim: &ClaimFacts) {
        self.publish(slow(&self.provisioner, claim), Some(claim), None);
    }

    /// Tells a claim's user that nothing can be provisioned.
    pub(crate) fn held_up(&self, claim: &ClaimFacts, problem: &str) {
        self.publish(held_up(problem), Some(claim), None);
    }

    pub(crate) fn tell(&self, report: Report, case: &Case<'_>) {
        let claim = case.facts.claim_at_work();
        log(&report, case, claim);
        if let Some(notice) = report.notice {
            self.publish(notice, claim, Some(case));
        }
    }

    fn publish(&self, notice: Notice, claim: Option<&ClaimFacts>, case: Option<&Case<'_>>) {
        let object = match notice.about {
            About::Claim => claim.map(|claim| ObjectRef {
                api_version: "v1",
                kind: "PersistentVolumeClaim",
                namespace: Some(claim.namespace.clone()),
                name: claim.name.clone(),
                uid: claim.uid.clone(),
            }),
            About::Volume => case.and_then(|case| match &case.facts.volume {
                VolumeState::Ours(volume) => Some(ObjectRef {
                    api_version: "v1",
                    kind: "PersistentVolume",
                    namespace: None,
                    name: case.volume.into(),
                    uid: volume.facts.uid.clone(),
                }),
                _ => None,
            }),
        };
        let Some(object) = object else { return };
        let kind = if notice.warning { EventKind::Warning } else { EventKind::Normal };
        let action = match notice.about {
            About::Claim => "Provision",
            About::Volume => "Delete",
        };
        let Notice { reason, text: note, same_from_all, .. } = notice;
        self.events.publish(Event { object, kind, reason, action, note, same_from_all });
    }
}

fn log(report: &Report, case: &Case<'_>, claim: Option<&ClaimFacts>) {
    let (namespace, name) = claim.map(|claim| (&*claim.namespace, &*claim.name)).unzip();
    let class = claim.and_then(|claim| claim.class.as_deref());
    let (attempt, pv, outcome) = (case.attempt, case.volume, report.label);
    let took_ms = report.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    match &report.notice {
        Some(Notice { warning: true, text, .. }) => {
            tracing::warn!(
                pvc.namespace = namespace,
                pvc.name = name,
                pv,
                storage_class = class,
                attempt,
                outcome,
                "{text}"
            );
        }
        // Polls of what is still going on are many, and the event counts them.
        Some(Notice { text, .. }) if report.took.is_none() && case.repeats_itself() => {
            tracing::debug!(pvc.namespace = namespace, pvc.name = name, pv, outcome, "{text}");
        }
        Some(Notice { text, .. }) => {
            tracing::info!(pvc.namespace = namespace, pvc.name = name, pv, storage_class = class, took_ms, "{text}");
        }
        None if report.work == WorkKind::Delete && report.took.is_some() => tracing::info!(pv, took_ms, "deleted"),
        None => tracing::debug!(pv, attempt, outcome, "looked at"),
    }
}
