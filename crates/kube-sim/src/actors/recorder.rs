//! Events in core/v1, as client-go's `tools/record` writes them: a repeated event only increments its count.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::clock::{self, SimClock};
use crate::object;

/// Writes events of one component.
pub(super) struct Recorder {
    component: &'static str,
    known: BTreeMap<EventKey, RecordedEvent>,
    count: i64,
}

/// Events with the same key are the same event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    uid: String,
    reason: String,
    message: String,
}

struct RecordedEvent {
    event: Value,
    last: Timestamp,
}

/// The `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventType {
    Normal,
    Warning,
}

/// Size of client-go's cache of events.
const CACHE_SIZE: usize = 4096;
/// A repetition within this time is dropped. Controllers repeat their events at every resync.
const SILENCE: SignedDuration = SignedDuration::from_secs(10);

impl Recorder {
    pub(super) fn new(component: &'static str) -> Self {
        Self { component, known: BTreeMap::new(), count: 0 }
    }

    /// Returns the event to write: a new one, or a known one with a higher count.
    pub(super) fn record(
        &mut self,
        clock: SimClock,
        regarding: &Value,
        kind: EventType,
        reason: &str,
        message: &str,
    ) -> Option<Value> {
        let now = clock.now();
        let key =
            EventKey { uid: object::uid(regarding).to_owned(), reason: reason.to_owned(), message: message.to_owned() };
        if let Some(known) = self.known.get_mut(&key) {
            if now.duration_since(known.last) < SILENCE {
                return None;
            }
            known.last = now;
            let count = known.event["count"].as_i64().unwrap_or(0) + 1;
            known.event["count"] = count.into();
            known.event["lastTimestamp"] = clock::seconds(now).into();
            return Some(known.event.clone());
        }
        self.count += 1;
        let event = self.event(now, regarding, kind, reason, message);
        if self.known.len() >= CACHE_SIZE {
            self.known.clear();
        }
        self.known.insert(key, RecordedEvent { event: event.clone(), last: now });
        Some(event)
    }

    fn event(&self, now: Timestamp, regarding: &Value, kind: EventType, reason: &str, message: &str) -> Value {
        let text = |field: &str| object::text_at(regarding, &[field]);
        let namespace = match object::namespace(regarding) {
            "" => "default",
            namespace => namespace,
        };
        // client-go puts the time in nanoseconds into the name. The simulated clock can stand still, so add the count.
        let instant = now.as_nanosecond().saturating_add(i128::from(self.count));
        let time = clock::seconds(now);
        let mut involved = json!({
            "apiVersion": text("apiVersion"), "kind": text("kind"), "name": object::name(regarding),
            "uid": object::uid(regarding), "resourceVersion": object::resource_version(regarding),
        });
        if !object::namespace(regarding).is_empty() {
            involved["namespace"] = object::namespace(regarding).into();
        }
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{instant:016x}", object::name(regarding)), "namespace": namespace},
            "involvedObject": involved, "type": format!("{kind:?}"), "reason": reason, "message": message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": {"component": self.component}, "reportingComponent": self.component, "reportingInstance": "",
        })
    }
}
