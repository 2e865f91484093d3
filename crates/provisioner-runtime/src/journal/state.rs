//! The contents of the journal and the schedule of its writes: everything except the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::entries::{Entries, MAX_ENTRY_BYTES, Room};
use super::error::JournalError;
use super::format::{Content, Entry, Unreadable};
use super::object::JournalKind;
use super::options::JournalOptions;
use crate::backoff::Backoff;
use crate::call::CallError;
use crate::throttle::MAX_PAUSE;

/// Write rate. Etcd keeps every version until the next compaction, and the API server compacts every 5 minutes. In that
/// time this rate produces 450 MB, far below the usual quota of 2 GiB, which all objects share.
const BYTES_PER_SECOND: u32 = 1_500_000;
/// Shortest time between writes: at most 20 per second.
const MIN_GAP: Duration = Duration::from_millis(50);
/// The time for which a removal waits for other changes.
const LINGER: Duration = Duration::from_secs(1);
/// The time between two reads of the annotations, so that a request to drop an entry is noticed.
const CHECK_PERIOD: Duration = Duration::from_secs(10);
/// The delays between attempts to write while they fail.
const RETRIES: Backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(15));

/// State shared by a journal and its writer.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
    /// Notified when an administrator has dropped or accepted something.
    pub(super) dropped: Notify,
    pub(super) accepted: Notify,
    pub(super) over: CancellationToken,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        let [changed, dropped, accepted] = [(); 3].map(|()| Notify::new());
        Self { state: Mutex::new(state), changed, dropped, accepted, over: CancellationToken::new() }
    }
}

/// The answer to a waiter.
pub(super) type StoreResult = Result<(), JournalError>;

pub(super) struct State {
    entries: Entries,
    /// Entries that stay until an administrator drops them or a new attempt replaces them.
    aside: Vec<Entry>,
    /// Entries that are not stored yet.
    recording: Vec<Recording>,
    /// The keys of the entries that are being written, while a write is under way.
    writing: Option<BTreeSet<String>>,
    /// Waiters for the next write, or for the next check of the holder.
    fencing: Vec<oneshot::Sender<StoreResult>>,
    /// The time since which removals wait to be stored.
    removing: Option<Instant>,
    urgent: bool,
    /// Keys that an administrator has dropped, for [`State::dropped`].
    dropped: Vec<String>,
    /// Restored entries that an administrator has accepted, for [`State::accepted`].
    accepted: Vec<Entry>,
    taken_over: Instant,
    /// The time when the last request was sent whose response confirmed that this process holds the journal.
    confirmed: Option<Instant>,
    /// The earliest time of the next write.
    not_before: Option<Instant>,
    failures: u32,
    problem: Option<Arc<CallError>>,
    over: Option<String>,
    stats: JournalStats,
}

/// The contents of a journal, and the cost of its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Current number of entries.
    pub entries: usize,
    /// Current size of the entries.
    pub bytes: usize,
    /// Maximum total size of the entries.
    pub capacity: usize,
    /// Journals that are lost when this process ends.
    pub in_memory: usize,
    /// Entries that were restored with the object. No process acts on them.
    pub restored: usize,
    /// Successful writes.
    pub commits: u64,
    /// Bytes of data in successful writes.
    pub bytes_written: u64,
    /// Checks of the holder, for fences and for dropped entries.
    pub checks: u64,
    /// Writes and checks that failed.
    pub failures: u64,
}

impl Add for JournalStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            capacity: self.capacity + other.capacity,
            in_memory: self.in_memory + other.in_memory,
            restored: self.restored + other.restored,
            commits: self.commits + other.commits,
            bytes_written: self.bytes_written + other.bytes_written,
            checks: self.checks + other.checks,
            failures: self.failures + other.failures,
        }
    }
}

/// The next action of the writer.
pub(super) enum WriterAction {
    /// Store this data.
    Commit(BTreeMap<String, String>, Batch),
    /// Check whether this process still holds the journal.
    Check(Batch),
    /// Wait until this time, or until something changes.
    Wait(Option<Instant>),
}

/// An entry that is not stored yet.
struct Recording {
    key: String,
    /// The entry that it replaces.
    before: Option<Entry>,
    /// The restored entry that it replaces.
    restored: Vec<Unreadable>,
    waiter: oneshot::Sender<StoreResult>,
}

/// The waiters of one write.
pub(super) struct Batch {
    sent: Instant,
    recording: Vec<Recording>,
    fencing: Vec<oneshot::Sender<StoreResult>>,
    removing: Option<Instant>,
    bytes: usize,
}

impl Batch {
    pub(super) fn empty(sent: Instant) -> Self {
        Self { sent, recording: Vec::new(), fencing: Vec::new(), removing: None, bytes: 0 }
    }
}

impl State {
    /// Creates the state. `dropped` are the keys that an administrator has dropped earlier.
    pub(super) fn new(content: Content, options: &JournalOptions, dropped: Vec<String>) -> Self {
        let capacity = options.kind.capacity();
        let in_memory = usize::from(options.kind == JournalKind::Memory);
        Self {
            entries: Entries::new(content, capacity, options.tenant_of),
            aside: Vec::new(),
            recording: Vec::new(),
            writing: None,
            fencing: Vec::new(),
            removing: None,
            urgent: false,
            dropped,
            accepted: Vec::new(),
            taken_over: Instant::now(),
            confirmed: None,
            not_before: None,
            failures: 0,
            problem: None,
            over: None,
            stats: JournalStats { capacity: capacity.all, in_memory, ..JournalStats::default() },
        }
    }

    pub(super) fn record(&mut self, entry: Entry) -> Result<oneshot::Receiver<StoreResult>, JournalError> {
        // The group's text is not the tenant's choice, so it does not count.
        let shared = entry.shared.iter().skip(1).map(|(_, text)| text.len());
        let bytes = entry.text.len() + shared.sum::<usize>();
        if bytes > MAX_ENTRY_BYTES {
            return Err(JournalError::TooLarge { bytes, most: MAX_ENTRY_BYTES });
        }
        self.store(entry, Room::Fair)
    }

    /// Records an entry of another journal. An existing entry with the same key stays unchanged.
    pub(super) fn adopt(&mut self, entry: Entry) -> Result<oneshot::Receiver<StoreResult>, JournalError> {
        let entry = self.entries.get(&entry.key).cloned().unwrap_or(entry);
        self.store(entry, Room::All)
    }

    fn store(&mut self, entry: Entry, room: Room) -> Result<oneshot::Receiver<StoreResult>, JournalError> {
        self.check_open()?;
        let (key, before) = (entry.key.clone(), self.entries.get(&entry.key).cloned());
        let stored = self.writing.iter().all(|writing| !writing.contains(&key))
            && self.recording.iter().all(|recording| recording.key != key);
        if stored && before.as_ref() == Some(&entry) {
            return self.fence();
        }
        let restored = self.entries.try_put(entry, room)?;
        let (sender, receiver) = oneshot::channel();
        self.recording.push(Recording { key, before, restored, waiter: sender });
        Ok(receiver)
    }

    pub(super) fn set_aside(&mut self, key: &str) {
        self.aside.extend(self.entries.get(key).cloned());
    }

    pub(super) fn remove(&mut self, key: &str) {
        let is_aside = self.entries.get(key).is_some_and(|entry| self.aside.contains(entry));
        if !is_aside && self.entries.take(key) {
            self.removing.get_or_insert_with(Instant::now);
        }
    }

    /// Drops these entries at an administrator's request. Refuses recordings of them, including those in `batch`. The
    /// next write removes the annotation.
    pub(super) fn drop_entries(&mut self, keys: Vec<String>, batch: &mut Batch) {
        batch.removing.get_or_insert_with(Instant::now);
        for key in keys {
            let refused = self.recording.extract_if(.., |recording| recording.key == key);
            for Recording { waiter, .. } in
                refused.chain(batch.recording.extract_if(.., |recording| recording.key == key))
            {
                let _ = waiter.send(Err(JournalError::Dropped));
            }
            if self.entries.take(&key)
                | self.entries.take_unreadable(&key)
                | !self.entries.take_restored(&key).is_empty()
            {
                tracing::warn!(key, "a journal entry is dropped, as an administrator requested");
                self.dropped.push(key);
            } else {
                tracing::warn!(key, "an administrator requested to drop an entry that is not in the journal");
            }
        }
    }

    /// Accepts these restored entries at an administrator's request. The next write removes the annotation.
    pub(super) fn accept(&mut self, keys: &[String], batch: &mut Batch) {
        batch.removing.get_or_insert_with(Instant::now);
        let accepted = self.entries.accept(keys);
        tracing::warn!(keys = accepted.len(), "restored entries are finished, as an administrator requested");
        self.accepted.extend(accepted);
    }

    /// Returns the entries that an administrator has accepted since the last call.
    pub(super) fn accepted(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.accepted)
    }

    /// Returns the keys that an administrator has dropped since the last call.
    pub(super) fn dropped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn fence(&mut self) -> Result<oneshot::Receiver<StoreResult>, JournalError> {
        self.check_open()?;
        let (sender, receiver) = oneshot::channel();
        self.fencing.push(sender);
        Ok(receiver)
    }

    pub(super) fn is_confirmed(&self, age: Duration) -> bool {
        self.over.is_none() && self.confirmed.is_some_and(|confirmed| confirmed.elapsed() <= age)
    }

    /// Requests that everything be stored; returns `None` if it already is.
    pub(super) fn flush(&mut self) -> Result<Option<oneshot::Receiver<StoreResult>>, JournalError> {
        self.check_open()?;
        if self.removing.is_none() && self.recording.is_empty() && self.writing.is_none() {
            return Ok(None);
        }
        self.urgent = true;
        self.fence().map(Some)
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.entries.get(key).is_some()
    }

    pub(super) fn next_action(&mut self, now: Instant) -> WriterAction {
        if self.over.is_some() {
            return WriterAction::Wait(None);
        }
        let removal_due = self.removing.map(|since| if self.urgent { since } else { since + LINGER });
        // A fence promises that removals are stored, so it waits for them.
        let wanted = !self.recording.is_empty() || (self.removing.is_some() && !self.fencing.is_empty());
        let due = if wanted { Some(now) } else { removal_due };
        let due = due.map(|due| self.not_before.map_or(due, |earliest| due.max(earliest)));
        if due.is_some_and(|due| due <= now) {
            let data = self.data();
            let bytes = data.values().map(String::len).sum();
            let gap = Duration::from_secs(bytes as u64) / BYTES_PER_SECOND;
            self.not_before = Some(now + gap.max(MIN_GAP));
            self.urgent = false;
            self.writing = Some(self.recording.iter().map(|recording| recording.key.clone()).collect());
            let batch = Batch {
                sent: now,
                recording: std::mem::take(&mut self.recording),
                fencing: std::mem::take(&mut self.fencing),
                removing: self.removing.take(),
                bytes,
            };
            return WriterAction::Commit(data, batch);
        }
        // A check costs etcd nothing, so only a failure delays it. A write also acts as a check. An empty journal has
        // nothing to drop, but a check shows when its problem has passed.
        let check_due = match (self.removing, self.fencing.is_empty()) {
            (Some(_), _) => None,
            (None, false) => Some(now),
            (None, true) => (self.entries.bytes() > 0 || self.entries.restored() > 0 || self.problem.is_some())
                .then(|| self.confirmed.unwrap_or(self.taken_over) + CHECK_PERIOD),
        };
        let pause = self.not_before.filter(|_| self.failures > 0);
        let check_due = check_due.map(|due| pause.map_or(due, |pause| due.max(pause)));
        if check_due.is_some_and(|due| due <= now) {
            return WriterAction::Check(Batch { fencing: std::mem::take(&mut self.fencing), ..Batch::empty(now) });
        }
        WriterAction::Wait(due.into_iter().chain(check_due).min())
    }

    /// Returns the parts of the journal to store.
    pub(super) fn data(&self) -> BTreeMap<String, String> {
        self.entries.data()
    }

    pub(super) fn committed(&mut self, batch: Batch) {
        self.stats.commits += 1;
        self.stats.bytes_written += batch.bytes as u64;
        self.settle(batch);
    }

    pub(super) fn checked(&mut self, batch: Batch) {
        self.stats.checks += 1;
        if batch.removing.is_some() {
            (self.removing, self.urgent) = (batch.removing, true);
        }
        self.settle(batch);
    }

    /// Removes the entries of the batch again, because it is unknown whether they were stored.
    pub(super) fn failed(&mut self, batch: Batch, error: CallError, random: f64, now: Instant) {
        self.writing = None;
        self.failures += 1;
        self.stats.failures += 1;
        // New attempts wait for this pause, so limit it.
        let asked = error.retry_after().map(|pause| pause.min(MAX_PAUSE));
        let pause = asked.unwrap_or_else(|| RETRIES.delay(self.failures, random));
        self.not_before = Some(now + pause);
        self.removing = self.removing.into_iter().chain(batch.removing).min();
        let error = Arc::new(error);
        self.problem = Some(error.clone());
        let again: BTreeSet<String> = self.recording.iter().map(|recording| recording.key.clone()).collect();
        for Recording { key, before, restored, waiter } in batch.recording {
            // An entry that was recorded again in the meantime belongs to another write.
            if !again.contains(&key) {
                self.remove(&key);
                before.into_iter().for_each(|before| self.entries.put(before));
                self.entries.put_restored(restored);
            } else if let Some(later) = self.recording.iter_mut().find(|later| later.key == key) {
                later.restored.extend(restored);
            }
            let _ = waiter.send(Err(JournalError::Call(error.clone())));
        }
        for waiter in batch.fencing {
            let _ = waiter.send(Err(JournalError::Call(error.clone())));
        }
    }

    /// Ends writing; waiters receive an error.
    pub(super) fn end(&mut self, taken_by: &str) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(taken_by.to_owned());
        let recording = std::mem::take(&mut self.recording).into_iter().map(|recording| recording.waiter);
        for waiter in recording.chain(std::mem::take(&mut self.fencing)) {
            let _ = waiter.send(Err(JournalError::Lost(taken_by.to_owned())));
        }
    }

    pub(super) fn lost(&mut self, batch: Batch, taken_by: &str) {
        self.recording.extend(batch.recording);
        self.fencing.extend(batch.fencing);
        self.end(taken_by);
    }

    pub(super) fn stats(&self) -> JournalStats {
        let (entries, bytes, restored) = (self.entries.len(), self.entries.bytes(), self.entries.restored());
        JournalStats { entries, bytes, restored, ..self.stats }
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.as_ref().map(ToString::to_string)
    }

    fn settle(&mut self, batch: Batch) {
        self.writing = None;
        self.confirmed = Some(batch.sent);
        self.failures = 0;
        self.problem = None;
        // A dropped waiter needs no answer.
        batch.recording.into_iter().for_each(|recording| drop(recording.waiter.send(Ok(()))));
        batch.fencing.into_iter().for_each(|waiter| drop(waiter.send(Ok(()))));
    }

    fn check_open(&self) -> Result<(), JournalError> {
        self.over.clone().map_or(Ok(()), |by| Err(JournalError::Lost(by)))
    }
}
