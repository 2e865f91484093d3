//! What is to be in the journal, and when it is to be written: everything but the writing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::JournalError;
use super::text::{self, Content, Entry, Unreadable};
use crate::{Backoff, CallError};

/// A ConfigMap takes 1 MiB; the rest is for labels, annotations and managed fields.
pub(super) const MOST_BYTES: usize = 900_000;
/// Etcd keeps every version until the next compaction: no burst may fill its quota before that.
const BYTES_PER_SECOND: u64 = 1_000_000;
/// At most 20 in a second.
const SHORTEST_GAP: Duration = Duration::from_millis(50);
/// How long a removal waits for company.
const LINGER: Duration = Duration::from_secs(1);
/// Between attempts to write, while they fail.
const RETRIES: Backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(15));

/// The answer for somebody who waits.
pub(super) type Seat = Result<(), JournalError>;

pub(super) struct State {
    entries: BTreeMap<String, Entry>,
    /// The shared texts, and how many entries name each.
    sharing: HashMap<String, (Arc<str>, usize)>,
    unreadable: Vec<Unreadable>,
    /// Entries that are being adopted: they stay although nobody here knows of them yet.
    pinned: BTreeSet<String>,
    bytes: usize,
    /// Entries that are not stored yet.
    recording: Vec<Recording>,
    /// Who waits for whatever is stored next, or for a look at the holder.
    fencing: Vec<oneshot::Sender<Seat>>,
    /// Since when there is something to take out.
    removing: Option<Instant>,
    hurry: bool,
    /// Written at least so often.
    beat: Option<Duration>,
    written: Instant,
    /// When the last request was sent whose answer said that the journal is ours.
    confirmed: Option<Instant>,
    /// Before that nothing is written.
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
    /// Successful writes.
    pub commits: u64,
    /// Bytes of data in successful writes.
    pub bytes_written: u64,
    /// Looks at the holder, for fences.
    pub checks: u64,
    /// Attempts to write or to look that failed.
    pub failures: u64,
}

impl Add for JournalStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            commits: self.commits + other.commits,
            bytes_written: self.bytes_written + other.bytes_written,
            checks: self.checks + other.checks,
            failures: self.failures + other.failures,
        }
    }
}

/// What the writer is to do.
pub(super) enum Step {
    /// Store this.
    Commit(BTreeMap<String, String>, Batch),
    /// Look whether the journal is still ours.
    Check(Batch),
    /// Nothing until then, or until something changes.
    Wait(Option<Instant>),
}

/// An entry that is not stored yet.
struct Recording {
    key: String,
    /// What it replaces.
    before: Option<Entry>,
    seat: oneshot::Sender<Seat>,
}

/// Who waits for one write.
pub(super) struct Batch {
    sent: Instant,
    recording: Vec<Recording>,
    fencing: Vec<oneshot::Sender<Seat>>,
    removing: Option<Instant>,
    bytes: usize,
}

impl State {
    pub(super) fn new(content: Content, beat: Option<Duration>) -> Self {
        let mut state = Self {
            entries: BTreeMap::new(),
            sharing: HashMap::new(),
            unreadable: content.unreadable,
            pinned: BTreeSet::new(),
            bytes: 0,
            recording: Vec::new(),
            fencing: Vec::new(),
            removing: None,
            hurry: false,
            beat,
            written: Instant::now(),
            confirmed: None,
            not_before: None,
            failures: 0,
            problem: None,
            over: None,
            stats: JournalStats::default(),
        };
        state.bytes = state.unreadable.iter().map(|Unreadable(line)| line.len() + 1).sum();
        content.entries.into_iter().for_each(|entry| state.put(entry));
        state
    }

    pub(super) fn record(&mut self, entry: Entry) -> Result<oneshot::Receiver<Seat>, JournalError> {
        self.alive()?;
        if self.entries.get(&entry.key) == Some(&entry) && !self.recording.iter().any(|other| other.key == entry.key) {
            return self.fence();
        }
        let shared = entry.shared.iter().filter(|(name, _)| !self.sharing.contains_key(name));
        let room = text::room(&entry) + shared.map(|(name, text)| name.len() + text.len() + 2).sum::<usize>();
        if room > MOST_BYTES {
            return Err(JournalError::TooLarge { bytes: room, most: MOST_BYTES });
        }
        if self.bytes + room > MOST_BYTES {
            return Err(JournalError::Full { entries: self.entries.len(), bytes: self.bytes });
        }
        let (sender, receiver) = oneshot::channel();
        let (key, before) = (entry.key.clone(), self.entries.get(&entry.key).cloned());
        self.recording.push(Recording { key, before, seat: sender });
        self.put(entry);
        Ok(receiver)
    }

    pub(super) fn pin(&mut self, entry: Entry) -> Result<oneshot::Receiver<Seat>, JournalError> {
        self.pinned.insert(entry.key.clone());
        self.record(entry)
    }

    /// Others are told like of a removal.
    pub(super) fn unpin(&mut self, key: &str) {
        if self.pinned.remove(key) {
            self.removing.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        if !self.pinned.contains(key) && self.take(key) {
            self.removing.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn fence(&mut self) -> Result<oneshot::Receiver<Seat>, JournalError> {
        self.alive()?;
        let (sender, receiver) = oneshot::channel();
        self.fencing.push(sender);
        Ok(receiver)
    }

    pub(super) fn is_confirmed(&self, age: Duration) -> bool {
        self.over.is_none() && self.confirmed.is_some_and(|confirmed| confirmed.elapsed() <= age)
    }

    /// Nothing when all is stored.
    pub(super) fn flush(&mut self) -> Result<Option<oneshot::Receiver<Seat>>, JournalError> {
        self.alive()?;
        if self.removing.is_none() && self.recording.is_empty() {
            return Ok(None);
        }
        self.hurry = true;
        self.fence().map(Some)
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn next_step(&mut self, now: Instant) -> Step {
        if self.over.is_some() {
            return Step::Wait(None);
        }
        let removal_due = self.removing.map(|since| if self.hurry { since } else { since + LINGER });
        // A fence promises that removals are stored, so it does not overtake them.
        let wanted = !self.recording.is_empty() || (self.removing.is_some() && !self.fencing.is_empty());
        let beat_due = self.beat.map(|beat| self.written + beat);
        let due = if wanted { Some(now) } else { removal_due.into_iter().chain(beat_due).min() };
        let due = due.map(|due| self.not_before.map_or(due, |earliest| due.max(earliest)));
        if due.is_some_and(|due| due <= now) {
            let data = self.data();
            let bytes = data.values().map(String::len).sum();
            let gap = Duration::from_secs(bytes as u64) / BYTES_PER_SECOND as u32;
            self.not_before = Some(now + gap.max(SHORTEST_GAP));
            self.hurry = false;
            self.written = now;
            let batch = Batch {
                sent: now,
                recording: std::mem::take(&mut self.recording),
                fencing: std::mem::take(&mut self.fencing),
                removing: self.removing.take(),
                bytes,
            };
            return Step::Commit(data, batch);
        }
        // A look costs etcd nothing, so it waits for nothing but the pause after a failure.
        let check_due = (self.removing.is_none() && !self.fencing.is_empty())
            .then(|| self.not_before.filter(|_| self.failures > 0).unwrap_or(now));
        if check_due.is_some_and(|due| due <= now) {
            let fencing = std::mem::take(&mut self.fencing);
            return Step::Check(Batch { sent: now, recording: Vec::new(), fencing, removing: None, bytes: 0 });
        }
        Step::Wait(due.into_iter().chain(check_due).min())
    }

    /// Everything as it is to be stored.
    pub(super) fn data(&self) -> BTreeMap<String, String> {
        let mut data = text::write(self.entries.values(), &self.unreadable);
        if !self.pinned.is_empty() {
            data.insert(text::ADOPTING.to_owned(), self.pinned.iter().flat_map(|key| [key, "\n"]).collect());
        }
        data
    }

    pub(super) fn committed(&mut self, batch: Batch) {
        self.stats.commits += 1;
        self.stats.bytes_written += batch.bytes as u64;
        self.settle(batch);
    }

    pub(super) fn checked(&mut self, batch: Batch) {
        self.stats.checks += 1;
        self.settle(batch);
    }

    /// Nobody may rely on what may or may not have been stored, so it is taken out again.
    pub(super) fn failed(&mut self, batch: Batch, error: CallError, random: f64, now: Instant) {
        self.failures += 1;
        self.stats.failures += 1;
        let pause = error.retry_after().unwrap_or_else(|| RETRIES.delay(self.failures, random));
        self.not_before = Some(now + pause);
        self.removing = self.removing.into_iter().chain(batch.removing).min();
        let error = Arc::new(error);
        self.problem = Some(error.clone());
        let again: BTreeSet<String> = self.recording.iter().map(|recording| recording.key.clone()).collect();
        for Recording { key, before, seat } in batch.recording {
            // What was recorded again meanwhile is another write's.
            if !again.contains(&key) {
                if self.take(&key) {
                    self.removing.get_or_insert_with(Instant::now);
                }
                before.into_iter().for_each(|before| self.put(before));
            }
            let _ = seat.send(Err(JournalError::Call(error.clone())));
        }
        for seat in batch.fencing {
            let _ = seat.send(Err(JournalError::Call(error.clone())));
        }
    }

    /// Nothing is written any more; whoever waits is told.
    pub(super) fn end(&mut self, taken_by: &str) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(taken_by.to_owned());
        let recording = std::mem::take(&mut self.recording).into_iter().map(|recording| recording.seat);
        for seat in recording.chain(std::mem::take(&mut self.fencing)) {
            let _ = seat.send(Err(JournalError::Lost(taken_by.to_owned())));
        }
    }

    pub(super) fn lost(&mut self, batch: Batch, taken_by: &str) {
        self.recording.extend(batch.recording);
        self.fencing.extend(batch.fencing);
        self.end(taken_by);
    }

    pub(super) fn stats(&self) -> JournalStats {
        JournalStats { entries: self.entries.len(), bytes: self.bytes, ..self.stats }
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.as_ref().map(ToString::to_string)
    }

    fn settle(&mut self, batch: Batch) {
        self.confirmed = Some(batch.sent);
        self.failures = 0;
        self.problem = None;
        // Whoever stopped waiting does not care.
        batch.recording.into_iter().for_each(|recording| drop(recording.seat.send(Ok(()))));
        batch.fencing.into_iter().for_each(|seat| drop(seat.send(Ok(()))));
    }

    fn alive(&self) -> Result<(), JournalError> {
        self.over.clone().map_or(Ok(()), |by| Err(JournalError::Lost(by)))
    }

    fn put(&mut self, mut entry: Entry) {
        self.take(&entry.key);
        for (name, text) in &mut entry.shared {
            // Names are made of hashes: one that stands for another text already must not take its place.
            while self.sharing.get(name).is_some_and(|(known, _)| known != text) {
                name.push('+');
            }
            let (known, users) = self.sharing.entry(name.clone()).or_insert_with(|| (text.clone(), 0));
            self.bytes += if *users == 0 { name.len() + text.len() + 2 } else { 0 };
            *users += 1;
            *text = known.clone();
        }
        self.bytes += text::room(&entry);
        self.entries.insert(entry.key.clone(), entry);
    }

    fn take(&mut self, key: &str) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.bytes -= text::room(&entry);
        for (name, text) in &entry.shared {
            let Some((_, users)) = self.sharing.get_mut(name) else { continue };
            *users -= 1;
            if *users == 0 {
                self.sharing.remove(name);
                self.bytes -= name.len() + text.len() + 2;
            }
        }
        true
    }
}
