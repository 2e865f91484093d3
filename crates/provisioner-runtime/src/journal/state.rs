//! What the journal holds, and when it is written: everything but the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::entries::{Entries, MOST_BYTES_OF_ONE, Room};
use super::error::JournalError;
use super::object::JournalKind;
use super::options::JournalOptions;
use super::text::{Content, Entry};
use crate::backoff::Backoff;
use crate::call::CallError;

/// Etcd keeps every version until the next compaction. The API server compacts every 5 minutes. In that time this rate
/// makes 450 MB, far below the usual quota of 2 GiB, which all objects share.
const BYTES_PER_SECOND: u32 = 1_500_000;
/// At most 20 in a second.
const SHORTEST_GAP: Duration = Duration::from_millis(50);
/// How long a removal waits for other changes.
const LINGER: Duration = Duration::from_secs(1);
/// The time between two reads of the annotations, so that a request to drop an entry is seen.
const CHECK_PERIOD: Duration = Duration::from_secs(10);
/// Between attempts to write, while they fail.
const RETRIES: Backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(15));

/// What a journal and its writer share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
    /// A person has dropped or accepted something.
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
pub(super) type Stored = Result<(), JournalError>;

pub(super) struct State {
    entries: Entries,
    /// Entries that are not stored yet.
    recording: Vec<Recording>,
    /// The keys of those that are being written, while a write is under way.
    writing: Option<BTreeSet<String>>,
    /// Waiters for the next write, or for the next check of the holder.
    fencing: Vec<oneshot::Sender<Stored>>,
    /// Since when removals wait to be stored.
    removing: Option<Instant>,
    urgent: bool,
    /// Keys that a person has dropped, for [`State::dropped`].
    dropped: Vec<String>,
    /// Restored entries that a person has accepted, for [`State::accepted`].
    accepted: Vec<Entry>,
    taken_over: Instant,
    /// When the last request was sent whose answer showed that the journal is ours.
    confirmed: Option<Instant>,
    /// Nothing is written before that.
    not_before: Option<Instant>,
    failures: u32,
    problem: Option<Arc<CallError>>,
    over: Option<String>,
    stats: JournalStats,
}

/// What a journal holds, and what it has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Entries at this moment.
    pub entries: usize,
    /// Their size at this moment.
    pub bytes: usize,
    /// How large they may be together.
    pub capacity: usize,
    /// Journals that end with this process.
    pub in_memory: usize,
    /// Entries that were restored with the object. Nobody acts on them.
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

/// What the writer does next.
pub(super) enum WriterAction {
    /// Store this.
    Commit(BTreeMap<String, String>, Batch),
    /// Check whether the journal is still ours.
    Check(Batch),
    /// Wait until then, or until something changes.
    Wait(Option<Instant>),
}

/// An entry that is not stored yet.
struct Recording {
    key: String,
    /// What it replaces.
    before: Option<Entry>,
    waiter: oneshot::Sender<Stored>,
}

/// Who waits for one write.
pub(super) struct Batch {
    sent: Instant,
    recording: Vec<Recording>,
    fencing: Vec<oneshot::Sender<Stored>>,
    removing: Option<Instant>,
    bytes: usize,
}

impl Batch {
    pub(super) fn empty(sent: Instant) -> Self {
        Self { sent, recording: Vec::new(), fencing: Vec::new(), removing: None, bytes: 0 }
    }
}

impl State {
    /// `dropped` are the keys that a person has dropped before.
    pub(super) fn new(content: Content, options: &JournalOptions, dropped: Vec<String>) -> Self {
        let capacity = options.kind.capacity();
        let in_memory = usize::from(options.kind == JournalKind::Memory);
        Self {
            entries: Entries::new(content, capacity, options.tenant_of),
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

    pub(super) fn record(&mut self, entry: Entry) -> Result<oneshot::Receiver<Stored>, JournalError> {
        // That of the group is no tenant's choice.
        let shared = entry.shared.iter().skip(1).map(|(_, text)| text.len());
        let bytes = entry.text.len() + shared.sum::<usize>();
        if bytes > MOST_BYTES_OF_ONE {
            return Err(JournalError::TooLarge { bytes, most: MOST_BYTES_OF_ONE });
        }
        self.store(entry, Room::Fair)
    }

    /// Records an entry of another journal. If there is one of the same key, that stays as it is.
    pub(super) fn adopt(&mut self, entry: Entry) -> Result<oneshot::Receiver<Stored>, JournalError> {
        let entry = self.entries.get(&entry.key).cloned().unwrap_or(entry);
        self.store(entry, Room::All)
    }

    fn store(&mut self, entry: Entry, room: Room) -> Result<oneshot::Receiver<Stored>, JournalError> {
        self.alive()?;
        let (key, before) = (entry.key.clone(), self.entries.get(&entry.key).cloned());
        let stored = self.writing.iter().all(|writing| !writing.contains(&key))
            && self.recording.iter().all(|recording| recording.key != key);
        if stored && before.as_ref() == Some(&entry) {
            return self.fence();
        }
        self.entries.try_put(entry, room)?;
        let (sender, receiver) = oneshot::channel();
        self.recording.push(Recording { key, before, waiter: sender });
        Ok(receiver)
    }

    pub(super) fn remove(&mut self, key: &str) {
        if self.entries.take(key) {
            self.removing.get_or_insert_with(Instant::now);
        }
    }

    /// A person has dropped these entries. Recordings of them are refused, in `batch` too. The next write removes the
    /// annotation.
    pub(super) fn drop_entries(&mut self, keys: Vec<String>, batch: &mut Batch) {
        batch.removing.get_or_insert_with(Instant::now);
        for key in keys {
            let refused = self.recording.extract_if(.., |recording| recording.key == key);
            for Recording { waiter, .. } in
                refused.chain(batch.recording.extract_if(.., |recording| recording.key == key))
            {
                let _ = waiter.send(Err(JournalError::Dropped));
            }
            if self.entries.take(&key) | self.entries.take_unreadable(&key) | self.entries.take_restored(&key) {
                tracing::warn!(key, "an entry of the journal is dropped, as a person has asked for");
                self.dropped.push(key);
            } else {
                tracing::warn!(key, "a person has asked to drop an entry that is not in the journal");
            }
        }
    }

    /// A person has accepted these restored entries. The next write removes the annotation.
    pub(super) fn accept(&mut self, keys: &[String], batch: &mut Batch) {
        batch.removing.get_or_insert_with(Instant::now);
        let accepted = self.entries.accept(keys);
        tracing::warn!(keys = accepted.len(), "restored entries are finished, as a person has asked for");
        self.accepted.extend(accepted);
    }

    /// The entries that a person has accepted since the last call.
    pub(super) fn accepted(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.accepted)
    }

    /// The keys that a person has dropped since the last call.
    pub(super) fn dropped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn fence(&mut self) -> Result<oneshot::Receiver<Stored>, JournalError> {
        self.alive()?;
        let (sender, receiver) = oneshot::channel();
        self.fencing.push(sender);
        Ok(receiver)
    }

    pub(super) fn is_confirmed(&self, age: Duration) -> bool {
        self.over.is_none() && self.confirmed.is_some_and(|confirmed| confirmed.elapsed() <= age)
    }

    /// Nothing when all is stored.
    pub(super) fn flush(&mut self) -> Result<Option<oneshot::Receiver<Stored>>, JournalError> {
        self.alive()?;
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
            self.not_before = Some(now + gap.max(SHORTEST_GAP));
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
        // A check costs etcd nothing, so only a failure delays it. A write is a check as well. From an empty journal nothing
        // can be dropped.
        let check_due = match (self.removing, self.fencing.is_empty()) {
            (Some(_), _) => None,
            (None, false) => Some(now),
            (None, true) => (self.entries.bytes() > 0 || self.entries.restored() > 0)
                .then(|| self.confirmed.unwrap_or(self.taken_over) + CHECK_PERIOD),
        };
        let pause = self.not_before.filter(|_| self.failures > 0);
        let check_due = check_due.map(|due| pause.map_or(due, |pause| due.max(pause)));
        if check_due.is_some_and(|due| due <= now) {
            return WriterAction::Check(Batch { fencing: std::mem::take(&mut self.fencing), ..Batch::empty(now) });
        }
        WriterAction::Wait(due.into_iter().chain(check_due).min())
    }

    /// The parts of the journal as they are to be stored.
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

    /// It is unknown whether the batch was stored, so its entries are taken out again.
    pub(super) fn failed(&mut self, batch: Batch, error: CallError, random: f64, now: Instant) {
        self.writing = None;
        self.failures += 1;
        self.stats.failures += 1;
        let pause = error.retry_after().unwrap_or_else(|| RETRIES.delay(self.failures, random));
        self.not_before = Some(now + pause);
        self.removing = self.removing.into_iter().chain(batch.removing).min();
        let error = Arc::new(error);
        self.problem = Some(error.clone());
        let again: BTreeSet<String> = self.recording.iter().map(|recording| recording.key.clone()).collect();
        for Recording { key, before, waiter } in batch.recording {
            // An entry that was recorded again meanwhile belongs to another write.
            if !again.contains(&key) {
                self.remove(&key);
                before.into_iter().for_each(|before| self.entries.put(before));
            }
            let _ = waiter.send(Err(JournalError::Call(error.clone())));
        }
        for waiter in batch.fencing {
            let _ = waiter.send(Err(JournalError::Call(error.clone())));
        }
    }

    /// Nothing is written any more; waiters get an error.
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
        // A waiter that is gone needs no answer.
        batch.recording.into_iter().for_each(|recording| drop(recording.waiter.send(Ok(()))));
        batch.fencing.into_iter().for_each(|waiter| drop(waiter.send(Ok(()))));
    }

    fn alive(&self) -> Result<(), JournalError> {
        self.over.clone().map_or(Ok(()), |by| Err(JournalError::Lost(by)))
    }
}
