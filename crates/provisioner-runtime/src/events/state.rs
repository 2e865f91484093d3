//! The waiting lines, the written events, and each object's rate. Uses no clock and no tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use super::{Event, EventKind, EventOptions, EventStats};
use crate::backoff::{Backoff, Random};
use crate::name::{fingerprint, stable_hash};

/// The time during which the count of a written event may be raised.
const SERIES: Duration = Duration::from_secs(600);

/// Number of server failures after which a line is dropped.
const MAX_ATTEMPTS: u32 = 10;

/// The pause of all requests after a failure of the server.
const PAUSE: Backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(30));

pub(super) struct State {
    objects: HashMap<Arc<str>, Object>,
    /// The lines that wait to be sent, by the time when they may be sent.
    due: BTreeMap<(Instant, u64), Line>,
    pending: usize,
    sending: usize,
    sequence: u64,
    first_id: u64,
    /// The time until which nothing is sent.
    paused: Option<Instant>,
    failures: u32,
    flushing: bool,
    random: Random,
    capacity: usize,
    burst: u32,
    refill: Duration,
    sweep_at: usize,
    drops_reported: bool,
    stats: EventStats,
}

/// Events of one object with the same reason and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    object: Arc<str>,
    reason: &'static str,
    kind: EventKind,
}

/// One request to send.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) line: Line,
    pub(super) pending: Pending,
    /// The event whose count is raised.
    pub(super) series: Option<LastEvent>,
}

/// The content of a waiting line.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) event: Event,
    pub(super) count: i32,
    pub(super) last: Timestamp,
    /// Names the event to be written. A repeated request keeps the name, so that an event whose response was lost is
    /// not written twice.
    pub(super) id: EventId,
    due: Instant,
    attempts: u32,
}

/// The event that was last written for a line.
#[derive(Clone, Debug)]
pub(super) struct LastEvent {
    pub(super) id: EventId,
    /// The event's count on the server.
    pub(super) count: i32,
    /// A hash of the note.
    note: u64,
    at: Instant,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    Written,
    /// The event whose count should be raised no longer exists.
    SeriesGone,
    /// The event's namespace no longer exists, or the account may not write events.
    Unwanted,
    /// The server does not accept it.
    Rejected,
    /// The server cannot write it at the moment; contains the delay it asks for.
    Failed(Option<Duration>),
}

impl State {
    pub(super) fn new(options: &EventOptions) -> Self {
        Self {
            objects: HashMap::new(),
            due: BTreeMap::new(),
            pending: 0,
            sending: 0,
            sequence: 0,
            first_id: options.environment.number("event names"),
            paused: None,
            failures: 0,
            flushing: false,
            random: options.environment.random("events"),
            capacity: options.capacity,
            burst: options.burst.clamp(1, 10_000),
            // Limited so that the sum of an instant and this value does not overflow.
            refill: options.refill.min(Duration::from_secs(24 * 60 * 60)),
            sweep_at: 1024,
            drops_reported: false,
            stats: EventStats::default(),
        }
    }

    pub(super) fn record(&mut self, event: Event, now: Instant, clock: Timestamp) {
        let line = Line { object: identity(&event), reason: event.reason, kind: event.kind };
        let id = if event.same_from_all { EventId::of(&event) } else { self.id(clock) };
        if let Some(pending) = self.track(&line).and_then(|track| track.pending.as_mut()) {
            pending.absorb(event, id, clock);
            self.stats.coalesced += 1;
            return;
        }
        if self.pending >= self.capacity {
            self.stats.dropped += 1;
            if !std::mem::replace(&mut self.drops_reported, true) {
                warn!("events are dropped: {} wait to be sent", self.pending);
            }
            return;
        }
        self.sweep(now);
        let due = self.charge(&line, now);
        self.put(line, Pending { event, count: 1, last: clock, id, due, attempts: 0 });
    }

    /// Returns the next request, if a line is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Job> {
        if self.paused.is_some_and(|until| until > now) {
            return None;
        }
        let first = self.due.first_entry()?;
        if first.key().0 > now && !self.flushing {
            return None;
        }
        let line = first.remove();
        let track = self.track(&line)?;
        let pending = track.pending.take()?;
        let current = |written: &LastEvent| {
            // An event that all replicas report keeps its name. Writing it again would not postpone its expiry.
            let is_current = now.saturating_duration_since(written.at) < SERIES || written.id == pending.id;
            is_current && written.note == fingerprint(&pending.event.note)
        };
        let series = track.written.clone().filter(current);
        track.sending = true;
        self.pending -= 1;
        self.sending += 1;
        Some(Job { line, pending: *pending, series })
    }

    /// Returns when the next request may be sent, if a line waits; at or before `now` if [`State::take`] has one.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let ((due, _), _) = self.due.first_key_value()?;
        let due = if self.flushing { now } else { *due };
        Some(self.paused.map_or(due, |until| until.max(due)))
    }

    pub(super) fn conclude(&mut self, job: Job, ending: SendOutcome, now: Instant) {
        let Job { line, mut pending, series } = job;
        self.sending -= 1;
        let Some(track) = self.track(&line) else { return };
        track.sending = false;
        let newer = track.pending.take().map(|newer| *newer);
        // It is put back below.
        self.pending -= usize::from(newer.is_some());
        let (written, again) = match ending {
            SendOutcome::Written => {
                self.stats.sent += 1;
                self.failures = 0;
                self.drops_reported = false;
                (Some(pending.written(series, now)), newer)
            }
            SendOutcome::SeriesGone => (None, Some(pending.merged_with(newer, now))),
            SendOutcome::Unwanted => {
                self.stats.dropped += 1;
                (None, newer)
            }
            SendOutcome::Rejected => {
                self.stats.failed += 1;
                (None, newer)
            }
            SendOutcome::Failed(retry_after) => {
                self.pause(retry_after, now);
                pending.attempts += 1;
                if pending.attempts < MAX_ATTEMPTS {
                    (series, Some(pending.merged_with(newer, now)))
                } else {
                    self.stats.failed += 1;
                    (None, newer)
                }
            }
        };
        if let Some(track) = self.track(&line) {
            track.written = written;
        }
        if let Some(again) = again {
            self.put(line, again);
        }
        self.flushing &= self.pending > 0;
    }

    /// Ignores the objects' rates until everything is sent; returns the number of lines left.
    pub(super) fn flush(&mut self) -> usize {
        self.flushing = self.pending > 0;
        self.pending + self.sending
    }

    pub(super) fn is_filling(&self) -> bool {
        self.pending > self.capacity / 2
    }

    pub(super) fn stats(&self) -> EventStats {
        EventStats { queued: self.pending + self.sending, ..self.stats }
    }

    /// Returns the number of remembered objects.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.objects.len()
    }

    fn track(&mut self, line: &Line) -> Option<&mut LineState> {
        let object = self.objects.get_mut(&line.object)?;
        object.lines.iter_mut().find(|track| track.reason == line.reason && track.kind == line.kind)
    }

    /// Charges one event to the line's object; returns when it may be sent.
    fn charge(&mut self, line: &Line, now: Instant) -> Instant {
        let (burst, refill) = (self.burst, self.refill);
        let object = self
            .objects
            .entry(Arc::clone(&line.object))
            .or_insert_with(|| Object { full_at: now, lines: Vec::with_capacity(1) });
        object.full_at = object.full_at.max(now) + refill;
        object.full_at.checked_sub(refill * burst).map_or(now, |due| due.max(now))
    }

    /// Puts a line into the queue.
    fn put(&mut self, line: Line, pending: Pending) {
        let Some(object) = self.objects.get_mut(&line.object) else { return };
        let found = object.lines.iter().position(|track| track.reason == line.reason && track.kind == line.kind);
        let at = found.unwrap_or_else(|| {
            object.lines.push(LineState {
                reason: line.reason,
                kind: line.kind,
                pending: None,
                sending: false,
                written: None,
            });
            object.lines.len() - 1
        });
        let track = &mut object.lines[at];
        let due = pending.due;
        track.pending = Some(Box::new(pending));
        self.pending += 1;
        // Send one request per line at a time.
        if !track.sending {
            self.sequence += 1;
            self.due.insert((due, self.sequence), line);
        }
    }

    fn pause(&mut self, retry_after: Option<Duration>, now: Instant) {
        // Concurrent requests that fail count as one failure.
        if self.paused.is_none_or(|until| until <= now) {
            self.failures = self.failures.saturating_add(1);
        }
        let pause = PAUSE.delay(self.failures, self.random.next()).max(retry_after.unwrap_or_default());
        self.paused = Some(now + pause.min(Duration::from_secs(300)));
    }

    /// Forgets objects that have nothing waiting and whose rate budget is full again. If too many remain, it forgets
    /// all that have nothing waiting.
    fn sweep(&mut self, now: Instant) {
        if self.objects.len() < self.sweep_at {
            return;
        }
        self.objects.retain(|_, object| object.is_busy() || object.is_remembered(now));
        if self.objects.len() > 4 * self.capacity {
            self.objects.retain(|_, object| object.is_busy());
        }
        self.objects.shrink_to(2 * self.objects.len());
        self.sweep_at = (2 * self.objects.len()).max(1024);
    }

    /// Returns an ID that no other client uses: the time, as in other clients, plus a number of our own. Without that
    /// number, another client's event with the same time could be mistaken for ours.
    fn id(&mut self, clock: Timestamp) -> EventId {
        self.sequence += 1;
        // The part of the time that fits 16 digits; it repeats after some centuries.
        let time = clock.as_nanosecond() as u64;
        EventId(self.first_id.wrapping_add(time).wrapping_add(self.sequence))
    }
}

/// The part of an event's name that differs within an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventId(u64);

impl EventId {
    /// Computes an ID that is the same in every process and version.
    fn of(event: &Event) -> Self {
        let parts = [&*event.object.uid, event.kind.name(), event.reason, &event.note];
        Self(stable_hash(&parts.join("\n")))
    }

    pub(super) fn name(self, object: &str) -> String {
        const SUFFIX: usize = 17;
        const LONGEST: usize = 253;
        let object = object[..object.floor_char_boundary(LONGEST - SUFFIX)].trim_end_matches(['.', '-']);
        format!("{object}.{:x}", self.0)
    }
}

struct Object {
    /// The time when the object has its whole burst again if it emits no further event.
    full_at: Instant,
    lines: Vec<LineState>,
}

impl Object {
    fn is_busy(&self) -> bool {
        self.lines.iter().any(|track| track.sending || track.pending.is_some())
    }

    fn is_remembered(&self, now: Instant) -> bool {
        let is_series = |written: &LastEvent| now.saturating_duration_since(written.at) < SERIES;
        self.full_at > now || self.lines.iter().any(|track| track.written.as_ref().is_some_and(is_series))
    }
}

/// The state of a line.
struct LineState {
    reason: &'static str,
    kind: EventKind,
    /// Boxed because usually nothing waits.
    pending: Option<Box<Pending>>,
    sending: bool,
    written: Option<LastEvent>,
}

impl Pending {
    /// Merges an event into the line; `id` becomes its ID if the note differs.
    fn absorb(&mut self, event: Event, id: EventId, clock: Timestamp) {
        self.count = self.count.saturating_add(1);
        self.last = clock;
        if self.event.note != event.note {
            self.id = id;
        }
        self.event = event;
    }

    /// Returns the event as it is on the server now; `series` is the event whose count was raised.
    fn written(self, series: Option<LastEvent>, now: Instant) -> LastEvent {
        let (id, before) = series.map_or((self.id, 0), |series| (series.id, series.count));
        LastEvent { id, count: before.saturating_add(self.count), note: fingerprint(&self.event.note), at: now }
    }

    /// Returns a line to be sent again at once, merged with newer events.
    fn merged_with(mut self, newer: Option<Self>, now: Instant) -> Self {
        if let Some(newer) = newer {
            let count = self.count.saturating_add(newer.count);
            self.absorb(newer.event, newer.id, newer.last);
            self.count = count;
        }
        Self { due: now, ..self }
    }
}

fn identity(event: &Event) -> Arc<str> {
    let object = &event.object;
    match &*object.uid {
        "" => {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            format!("{}/{namespace}/{}", object.kind, object.name).into()
        }
        _ => Arc::clone(&object.uid),
    }
}
