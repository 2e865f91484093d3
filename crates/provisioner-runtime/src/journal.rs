//! A record of intents that survives the process: attempts that have begun and are not known to have ended.
//!
//! The result of some work, such as creating a disk in a backend, cannot be found again by inspection. A process that
//! begins such work first [records](Journal::record) it. The next holder [takes over the journal](Journal::take_over)
//! and finishes its entries.
//!
//! * **One writer.** Every write names the version that the previous write produced. Taking over writes the new
//!   holder's name. After that, all writes of the former holder fail, so it cannot begin anything: it is *fenced*. Work
//!   that does not need a record uses a [fence](Journal::fence) instead.
//! * **Group commit.** Changes during a write join the next one. Removals wait up to a second for other
//!   changes, because an entry that stays too long does no harm.
//! * **Bounded.** At most 20 writes and 1.5 MB per second; see the limits below. An entry that does not fit is refused,
//!   not queued.
//! * **Bound to its object.** A journal records its object's uid and its cluster. A copy restored from a backup, here
//!   or in another cluster, has another uid: its entries are set apart, and no process acts on them before an
//!   administrator [accepts](request_accept) them.
//! * **Open to administrators.** An entry named by the annotation `kube-provisioner/drop` is
//!   [dropped](Journal::dropped): it will not be finished. [`list`] and [`request_drop`] are intended for a command
//!   line.
//!
//! # Format
//!
//! A journal is a ConfigMap, or [a Lease](#leases):
//!
//! ```yaml
//! metadata:
//!   name: example.com-disks-journal
//!   labels: {app.kubernetes.io/component: journal, app.kubernetes.io/instance: example.com-disks}
//!   annotations: {kube-provisioner/holder: disks-7f9c_01ab…, kube-provisioner/layout: "1"}
//! data:
//!   version: "1"
//!   entries: |
//!     disk-4a1c… gold-9f21,spec-07c4 {"name":"data",…}
//!     disk-77b0… - {"name":"logs",…}
//!   shared: |
//!     gold-9f21 {"replicas":"3",…}
//!     spec-07c4 {"size":"1Gi",…}
//! ```
//!
//! | where | key | value |
//! |---|---|---|
//! | labels | `app.kubernetes.io/component` | `journal` |
//! | labels | `app.kubernetes.io/instance` | [`JournalOptions::group`]; a value too long for a label is cut and ends with a hash |
//! | annotations | `kube-provisioner/holder` | [`JournalOptions::holder`]: the only process that may write the journal |
//! | annotations | `kube-provisioner/additional-names` | [`JournalOptions::aliases`], separated by commas |
//! | annotations | `kube-provisioner/layout` | [`JournalOptions::layout`]: the distribution of keys over the group's journals |
//! | annotations | `kube-provisioner/journal-uid` | the object's uid; missing in journals of earlier versions |
//! | annotations | `kube-provisioner/cluster-id` | [`JournalOptions::cluster_id`] |
//! | annotations | `kube-provisioner/accept` | the keys of restored entries to finish, comma-separated, or `*`. Set by users, removed by the holder's next write |
//! | annotations | `kube-provisioner/drop` | the keys of entries to drop, separated by commas. Set by users, removed by the holder's next write |
//! | data | `version` | the format, `1`; if it is missing, the format is `1` |
//! | data | `entries` | one line per entry, ordered by key; missing if there are none |
//! | data | `restored` | the lines of entries that were restored with the object; missing if there are none |
//! | data | `shared` | one line per shared text, ordered by name; missing if there are none |
//!
//! ```text
//! entries = *(entry LF)      entry  = key SP names SP text
//! shared  = *(common LF)     common = name SP text
//! names   = "-" / name *("," name)
//! key     = 1*(any character but SP and LF)
//! name    = 1*(any character but SP, "," and LF), not "-"
//! text    = *(any character but LF)
//! ```
//!
//! `names` are the shared texts that an entry needs; `-` means none. If a name already refers to another text, `+` is
//! appended to it. The first name is the entry's *group*.
//!
//! A reader handles unexpected content as follows:
//!
//! * **Another version:** taking over fails with [`TakeOverError::Version`], adoption leaves the journal alone, and
//!   [`list`] shows it as unreadable. Nothing is written.
//! * **An unreadable line** of `entries` (a field or a shared text is missing): it is logged, kept unchanged, and
//!   written after the entries. Its first word acts as its key for `drop`.
//! * **Blank lines, shared texts that no entry names, other data keys, other labels and annotations:** the next write
//!   removes them.
//! * **Two entries with one key:** the last one is used.
//!
//! Limits, in bytes of `entries` and `shared`:
//!
//! | limit | in a ConfigMap | in a Lease |
//! |---|---|---|
//! | one entry, including its shared texts except the group's | 16 000 | 16 000 |
//! | all entries; a group leaves room for others by [`fair_share`](crate::limiter::fair_share) | 450 000 | 150 000 |
//! | all entries, if the new one is the first of its group | 900 000 | 225 000 |
//!
//! The [tenants](JournalOptions::tenant_of) of a group share the group's remaining room by the same rule.
//!
//! A process that takes over a journal keeps all its entries, regardless of their size.
//!
//! # Leases
//!
//! An account that may not write ConfigMaps stores its journals in [`Lease`](JournalKind::Lease)s. Such a Lease has the
//! same labels and annotations, and stores each part of the data in an additional annotation:
//! `kube-provisioner/journal-version`, `…-entries`, `…-restored` and `…-shared`. Its `spec` is empty: it is not used
//! for leader election.

mod adopt;
mod drop;
mod entries;
mod error;
mod format;
mod list;
mod object;
mod options;
mod state;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::state::{Shared, State, StoreResult};

pub use self::adopt::{Adopted, Adoption, OtherJournal};
pub use self::drop::{DropError, request_accept, request_drop};
pub use self::error::{JournalError, TakeOverError};
pub use self::format::Entry;
pub use self::list::{Listing, list, remove_empty, selector};
pub(crate) use self::object::JournalResource;
pub use self::object::{JournalKind, JournalObject};
pub use self::options::{JournalOptions, PART_LAYOUT, journal_name, part_journal_name};
pub use self::state::JournalStats;
pub use self::write::Writer;

/// A journal that this process has taken over. Clones refer to the same journal.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    uid: Option<Arc<str>>,
}

impl Journal {
    /// Takes over a journal, or creates it. Returns the entries to finish, and the writer: nothing is written unless it
    /// [runs](Writer::run).
    ///
    /// If the object has vanished, `still_ours` decides whether it may be written again.
    ///
    /// # Errors
    /// See [`TakeOverError`]. An error loses nothing; another attempt may succeed.
    pub async fn take_over(
        client: Client,
        options: JournalOptions,
        still_ours: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<(Self, Writer, Vec<Entry>), TakeOverError> {
        let (store, content, dropped) = write::take_over(client, options.clone()).await?;
        let (entries, uid) = (content.entries.clone(), store.uid().map(Into::into));
        let shared = Arc::new(Shared::new(State::new(content, &options, dropped)));
        let writer = Writer::new(store, shared.clone(), Box::new(still_ours));
        Ok((Self { shared, uid }, writer, entries))
    }

    /// Records that an attempt is about to begin; returns when the entry is stored. It replaces an entry with the same
    /// key.
    ///
    /// # Errors
    /// Fails if the entry is not stored; the attempt must then not begin.
    pub async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        let stored = self.change(|state| state.record(entry))?;
        wait(stored).await
    }

    /// Removes the entry: the result of the work on `key` can be found again by inspection, or the work has left
    /// nothing behind.
    pub fn remove(&self, key: &str) {
        self.change(|state| state.remove(key));
    }

    /// Keeps an entry that this process cannot finish: [`Self::remove`] does not remove it.
    pub(crate) fn set_aside(&self, key: &str) {
        self.change(|state| state.set_aside(key));
    }

    /// Records an entry of another journal, unless its key already has one. The future returns when the entry is
    /// stored.
    fn adopt(&self, entry: Entry) -> Result<impl Future<Output = Result<(), JournalError>>, JournalError> {
        self.change(|state| state.adopt(entry)).map(wait)
    }

    /// Waits until an administrator has dropped entries; returns their keys, for the caller to forget. Returns each key
    /// once; dropping the future loses none.
    pub async fn dropped(&self) -> Vec<String> {
        self.requested(&self.shared.dropped, State::dropped).await
    }

    /// Waits until an administrator has accepted restored entries; returns them, for the caller to finish. Returns each
    /// entry once; dropping the future loses none.
    pub async fn accepted(&self) -> Vec<Entry> {
        self.requested(&self.shared.accepted, State::accepted).await
    }

    async fn requested<T>(&self, notify: &Notify, take: fn(&mut State) -> Vec<T>) -> Vec<T> {
        loop {
            let notified = notify.notified();
            let taken = take(&mut crate::sync::lock(&self.shared.state));
            if !taken.is_empty() {
                return taken;
            }
            notified.await;
        }
    }

    /// Returns true if there is an entry for `key`.
    pub fn contains(&self, key: &str) -> bool {
        crate::sync::lock(&self.shared.state).contains(key)
    }

    /// Returns when a response of the API server, to a request sent after this call, confirms that this process still
    /// holds the journal. Earlier removals are stored by then.
    ///
    /// # Errors
    /// Fails if this process does not hold the journal, or if the server does not respond.
    pub async fn fence(&self) -> Result<(), JournalError> {
        let stored = self.change(State::fence)?;
        wait(stored).await
    }

    /// Same as [`fence`](Self::fence), but accepts the response to a request that is at most this old.
    ///
    /// # Errors
    /// Fails if this process does not hold the journal, or if the server does not respond.
    pub async fn fence_since(&self, age: Duration) -> Result<(), JournalError> {
        if self.is_confirmed(age) { Ok(()) } else { self.fence().await }
    }

    /// Returns true if the response to a request that is at most this old has confirmed that this process holds the
    /// journal.
    pub fn is_confirmed(&self, age: Duration) -> bool {
        crate::sync::lock(&self.shared.state).is_confirmed(age)
    }

    /// Stores everything now instead of waiting for the next commit; returns when it is stored.
    ///
    /// # Errors
    /// Fails if the first attempt fails.
    pub async fn flush(&self) -> Result<(), JournalError> {
        match self.change(State::flush)? {
            Some(stored) => wait(stored).await,
            None => Ok(()),
        }
    }

    /// Closes the journal: nothing more is written. Its entries stay.
    pub fn close(&self) {
        self.change(|state| state.end("no process yet"));
        self.shared.over.cancel();
    }

    /// Returns a token that is cancelled when the journal is lost or [closed](Self::close).
    pub fn over(&self) -> &CancellationToken {
        &self.shared.over
    }

    /// Returns the journal's contents, and counts since it was taken over.
    pub fn stats(&self) -> JournalStats {
        crate::sync::lock(&self.shared.state).stats()
    }

    /// Returns the object's uid at the time of the takeover.
    pub(crate) fn uid(&self) -> Option<Arc<str>> {
        self.uid.clone()
    }

    /// Returns why the last attempt to write failed; `None` while writing works.
    pub fn problem(&self) -> Option<String> {
        crate::sync::lock(&self.shared.state).problem()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut crate::sync::lock(&self.shared.state));
        self.shared.changed.notify_one();
        result
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

async fn wait(stored: oneshot::Receiver<StoreResult>) -> Result<(), JournalError> {
    // A writer that is dropped does not answer.
    stored.await.unwrap_or_else(|_| Err(JournalError::Lost("no process: this one is stopping".to_owned())))
}
