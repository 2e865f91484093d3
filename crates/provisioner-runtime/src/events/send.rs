//! The task that sends events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::api::events::v1::{Event as ApiEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::Resource as _;
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::state::{Job, LastEvent, Pending, SendOutcome};
use super::{Event, EventApi, ObjectRef, Shared};
use crate::call::{CallError, call, create_request, invalid_request};

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(10);

/// Namespace of events of cluster-scoped objects.
const CLUSTER_SCOPED: &str = "default";

/// Sends lines as they are due. Never returns.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut sending = FuturesUnordered::new();
    let mut warned = false;
    loop {
        let changed = shared.changed.notified();
        let room = loop {
            let room = sending.len() < shared.concurrency.load(Ordering::Relaxed);
            match room.then(|| crate::sync::lock(&shared.state).take(Instant::now())).flatten() {
                Some(job) => sending.push(send(&shared, job)),
                None => break room,
            }
        };
        let due = crate::sync::lock(&shared.state).next_due(Instant::now()).filter(|_| room);
        let outcome = tokio::select! {
            biased;
            () = changed => None,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => None,
            outcome = sending.next(), if !sending.is_empty() => outcome,
        };
        if let Some((job, outcome)) = outcome {
            let ending = classify(&job, outcome, &mut warned);
            crate::sync::lock(&shared.state).conclude(job, ending, Instant::now());
            shared.idle.notify_waiters();
            shared.moved.notify_waiters();
        }
    }
}

type SendResult = Result<(), CallError>;

async fn send(shared: &Shared, job: Job) -> (Job, SendResult) {
    let outcome = match request(shared, &job) {
        // The response is not needed.
        Ok(request) => call(LIMIT, shared.client.request_text(request)).await.map(drop),
        Err(error) => Err(error),
    };
    (job, outcome)
}

fn request(shared: &Shared, job: &Job) -> Result<http::Request<Vec<u8>>, CallError> {
    let event = &job.pending.event;
    let namespace = event.object.namespace.as_deref().unwrap_or(CLUSTER_SCOPED);
    let events = match shared.api {
        EventApi::Events => ApiEvent::url_path(&(), Some(namespace)),
        EventApi::Core => CoreEvent::url_path(&(), Some(namespace)),
    };
    match &job.series {
        // Only the series of a written event may change.
        Some(written) => {
            let patch = Patch::Merge(repeated(shared.api, written, &job.pending));
            let params = PatchParams { field_validation: Some(ValidationDirective::Ignore), ..PatchParams::default() };
            Request::new(events).patch(&written.id.name(&event.object.name), &params, &patch).map_err(invalid_request)
        }
        None => {
            let body = body(shared, event, &job.pending, namespace);
            let body = match shared.api {
                EventApi::Events => serde_json::to_vec(&body),
                EventApi::Core => serde_json::to_vec(&core(body, &job.pending)),
            };
            create_request(&events, body.map_err(invalid_request)?)
        }
    }
}

/// Returns the consequence of the outcome for the line. Logs problems.
fn classify(job: &Job, outcome: SendResult, warned: &mut bool) -> SendOutcome {
    let Err(error) = outcome else {
        *warned = false;
        return SendOutcome::Written;
    };
    match error {
        // An earlier request wrote the event, but its response was lost.
        CallError::AlreadyExists => SendOutcome::Written,
        CallError::NotFound if job.series.is_some() => SendOutcome::SeriesGone,
        CallError::NotFound | CallError::NoNamespace(_) | CallError::NamespaceTerminating(_) => {
            debug!("an event is dropped: its namespace does not exist");
            SendOutcome::Unwanted
        }
        CallError::Forbidden(_) => {
            warn_once(warned, &error);
            SendOutcome::Unwanted
        }
        CallError::Invalid(_) | CallError::Other(_) | CallError::Conflict => {
            warn_once(warned, &error);
            SendOutcome::Rejected
        }
        error => {
            warn_once(warned, &error);
            SendOutcome::Failed(error.retry_after())
        }
    }
}

/// Warns once, until an event is written successfully again.
fn warn_once(warned: &mut bool, error: &CallError) {
    if !std::mem::replace(warned, true) {
        warn!("an event could not be written: {error}");
    }
}

fn body(shared: &Shared, event: &Event, pending: &Pending, namespace: &str) -> ApiEvent {
    let ObjectRef { api_version, kind, namespace: object_namespace, name, uid } = &event.object;
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(pending.id.name(&event.object.name)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(pending.last)),
        regarding: Some(ObjectReference {
            api_version: Some((*api_version).to_owned()),
            kind: Some((*kind).to_owned()),
            namespace: object_namespace.as_deref().map(str::to_owned),
            name: Some(name.to_string()),
            uid: Some(uid.to_string()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }),
        type_: Some(event.kind.name().to_owned()),
        reason: Some(event.reason.to_owned()),
        action: Some(event.action.to_owned()),
        note: Some(event.note.clone()),
        reporting_controller: Some(shared.component.clone()),
        reporting_instance: Some(shared.instance.clone()),
        // The server requires a count of at least two in a series.
        series: (pending.count > 1)
            .then_some(EventSeries { count: pending.count, last_observed_time: MicroTime(pending.last) }),
        ..ApiEvent::default()
    }
}

/// Returns the same event in `v1`, with a count as written by client-go.
fn core(event: ApiEvent, pending: &Pending) -> CoreEvent {
    let source = EventSource { component: event.reporting_controller.clone(), host: None };
    CoreEvent {
        metadata: event.metadata,
        involved_object: event.regarding.unwrap_or_default(),
        type_: event.type_,
        reason: event.reason,
        message: event.note,
        source: Some(source),
        first_timestamp: Some(Time(pending.last)),
        last_timestamp: Some(Time(pending.last)),
        count: Some(pending.count),
        action: event.action,
        reporting_component: event.reporting_controller,
        reporting_instance: event.reporting_instance,
        ..CoreEvent::default()
    }
}

/// Returns the patch for an event that has happened again.
fn repeated(api: EventApi, written: &LastEvent, pending: &Pending) -> Value {
    let count = written.count.saturating_add(pending.count);
    match api {
        EventApi::Events => {
            json!({ "series": EventSeries { count, last_observed_time: MicroTime(pending.last) } })
        }
        EventApi::Core => json!({ "count": count, "lastTimestamp": Time(pending.last) }),
    }
}
