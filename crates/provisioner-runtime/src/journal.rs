//! A record of intents that survives the process: what was begun and is not known to have ended.
//!
//! Some work cannot be found again by looking, such as making an asset in a backend. Whoever begins it
//! [records](Journal::record) that first. The next holder [takes the journal over](Journal::take_over) and finishes what is
//! in it.
//!
//! * **One writer.** Every write names the version that the last one left. Taking over writes the new holder's name. From
//!   then on no write of the former holder succeeds, so it can begin nothing more: it is *fenced*. Work that needs no
//!   record asks for a [fence](Journal::fence) instead.
//! * **Group commit.** Changes during a write join the next one. Removals wait up to a second for other
//!   changes, because an entry that stays too long does no harm.
//! * **Bounded.** At most 20 writes and 1.5 MB in a second; see the limits below. An entry that finds no room is refused,
//!   not queued.
//! * **Its own.** A journal notes its object's uid and its cluster. What a backup brings back, here or in another cluster, has
//!   another uid: its entries are set apart, and nobody acts on them before a person [accepts](request_accept) them.
//! * **Open to people.** An entry that the annotation `kube-provisioner/drop` names is [dropped](Journal::dropped): nobody
//!   finishes it any more. [`list`] and [`request_drop`] are for a command line.
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
//! | labels | `app.kubernetes.io/instance` | [`JournalOptions::group`]; one that is too long for a label is cut and ends with a hash |
//! | annotations | `kube-provisioner/holder` | [`JournalOptions::holder`]: who writes the journal; nobody else may |
//! | annotations | `kube-provisioner/layout` | [`JournalOptions::layout`]: how keys are spread over the group's journals |
//! | annotations | `kube-provisioner/journal-uid` | the object's uid; a journal of an earlier version has none |
//! | annotations | `kube-provisioner/cluster-id` | [`JournalOptions::cluster_id`] |
//! | annotations | `kube-provisioner/accept` | the keys of restored entries to be finished, separated by commas, or `*`. People write it, the holder's next write removes it |
//! | annotations | `kube-provisioner/drop` | the keys of entries to be dropped, separated by commas. People write it, the holder's next write removes it |
//! | data | `version` | the format, `1`; if it is missing, the format is `1` |
//! | data | `entries` | a line for each entry, in the order of the keys; missing when there is none |
//! | data | `restored` | the lines of entries that were restored with the object; missing when there is none |
//! | data | `shared` | a line for each shared text, in the order of the names; missing when there is none |
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
//! `names` are the shared texts that an entry needs; `-` is none. Where a name stands for another text already, `+` is
//! appended to it. The first name is the entry's *group*.
//!
//! What a reader does with what it does not expect:
//!
//! * **Another version:** taking over fails with [`TakeOverError::Version`], adoption leaves the journal alone, [`list`] shows
//!   it as unreadable. Nothing is written.
//! * **An unreadable line** of `entries` (a field or a shared text is missing): it is logged, kept as it is, and written behind
//!   the entries. Its first word counts as its key for `drop`.
//! * **Blank lines, shared texts that no entry names, other keys of the data, other labels and annotations:** they are gone
//!   after the next write.
//! * **Two entries with one key:** the last one counts.
//!
//! Limits, in bytes of `entries` and `shared`:
//!
//! | limit | in a ConfigMap | in a Lease |
//! |---|---|---|
//! | one entry with its shared texts but that of its group | 16 000 | 16 000 |
//! | all entries; a group leaves room for others by [`fair_share`](crate::limiter::fair_share) | 450 000 | 150 000 |
//! | all entries, if the new one is the first of its group | 900 000 | 225 000 |
//!
//! What a group may still take, its [tenants](JournalOptions::tenant_of) share by the same rule.
//!
//! Entries of a journal that is taken over stay, whatever room they take.
//!
//! # Leases
//!
//! An account that may not write ConfigMaps stores its journals in [`Lease`](JournalKind::Lease)s. Such a Lease has the
//! same labels and annotations, and each part of the data in one more annotation: `kube-provisioner/journal-version`,
//! `…-entries`, `…-restored` and `…-shared`. Its `spec` is empty: nobody is elected by it.

mod adopt;
mod drop;
mod entries;
mod error;
mod list;
mod object;
mod options;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::state::{Shared, State, Stored};

pub use self::adopt::{Adopted, Adoption, Other};
pub use self::drop::{DropError, request_accept, request_drop};
pub use self::error::{JournalError, TakeOverError};
pub use self::list::{Listing, list, remove_empty, selector};
pub(crate) use self::object::JournalResource;
pub use self::object::{JournalKind, JournalObject};
pub use self::options::{JournalOptions, PART_LAYOUT, journal_name, part_journal_name};
pub use self::state::JournalStats;
pub use self::text::Entry;
pub use self::write::Writer;

/// A journal that this process has taken over. Clones are the same journal.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    uid: Option<Arc<str>>,
}

impl Journal {
    /// Takes a journal over, or creates it. Returns the entries to finish, and the writer: nothing is written unless it
    /// [runs](Writer::run).
    ///
    /// `still_ours` is asked when the object has vanished: whether it may be written again.
    ///
    /// # Errors
    /// See [`TakeOverError`]. Nothing is lost then; another attempt may succeed.
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

    /// Records that something is about to begin; returns when that is stored. It replaces an entry of the same key.
    ///
    /// # Errors
    /// When it is not stored; then it must not begin.
    pub async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        let stored = self.change(|state| state.record(entry))?;
        wait(stored).await
    }

    /// Removes the entry: the work on `key` can be found again by looking, or has left nothing.
    pub fn remove(&self, key: &str) {
        self.change(|state| state.remove(key));
    }

    /// Records an entry of another journal, unless there is one for its key. The future returns when it is stored.
    fn adopt(&self, entry: Entry) -> Result<impl Future<Output = Result<(), JournalError>>, JournalError> {
        self.change(|state| state.adopt(entry)).map(wait)
    }

    /// Waits until a person has dropped entries; returns their keys, for the caller to forget. Each key is returned once;
    /// dropping the future loses none.
    pub async fn dropped(&self) -> Vec<String> {
        loop {
            let notified = self.shared.dropped.notified();
            let keys = crate::sync::lock(&self.shared.state).dropped();
            if !keys.is_empty() {
                return keys;
            }
            notified.await;
        }
    }

    /// Waits until a person has accepted restored entries; returns them, for the caller to finish. Each is returned once;
    /// dropping the future loses none.
    pub async fn accepted(&self) -> Vec<Entry> {
        loop {
            let notified = self.shared.accepted.notified();
            let entries = crate::sync::lock(&self.shared.state).accepted();
            if !entries.is_empty() {
                return entries;
            }
            notified.await;
        }
    }

    /// Whether there is an entry for `key`.
    pub fn contains(&self, key: &str) -> bool {
        crate::sync::lock(&self.shared.state).contains(key)
    }

    /// Returns when an answer of the API server, to a request after this call, shows that the journal is still ours.
    /// Earlier removals are stored by then.
    ///
    /// # Errors
    /// When it is not ours, or when the server does not answer.
    pub async fn fence(&self) -> Result<(), JournalError> {
        let stored = self.change(State::fence)?;
        wait(stored).await
    }

    /// As [`fence`](Self::fence), but the answer to a request that is at most this old counts.
    ///
    /// # Errors
    /// When the journal is not ours, or when the server does not answer.
    pub async fn fence_since(&self, age: Duration) -> Result<(), JournalError> {
        if self.is_confirmed(age) { Ok(()) } else { self.fence().await }
    }

    /// Whether the answer to a request that is at most this old has shown that the journal is ours.
    pub fn is_confirmed(&self, age: Duration) -> bool {
        crate::sync::lock(&self.shared.state).is_confirmed(age)
    }

    /// Stores everything now instead of waiting for the next commit; returns when it is stored.
    ///
    /// # Errors
    /// When the first attempt fails.
    pub async fn flush(&self) -> Result<(), JournalError> {
        match self.change(State::flush)? {
            Some(stored) => wait(stored).await,
            None => Ok(()),
        }
    }

    /// Gives the journal up: nothing more is written. Its entries stay.
    pub fn close(&self) {
        self.change(|state| state.end("nobody yet"));
        self.shared.over.cancel();
    }

    /// Cancelled when the journal is lost or [closed](Self::close).
    pub fn over(&self) -> &CancellationToken {
        &self.shared.over
    }

    /// What it holds, and counts since it was taken over.
    pub fn stats(&self) -> JournalStats {
        crate::sync::lock(&self.shared.state).stats()
    }

    /// The object's uid when it was taken over.
    pub(crate) fn uid(&self) -> Option<Arc<str>> {
        self.uid.clone()
    }

    /// Why the last attempt to write failed; `None` while it works.
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

async fn wait(stored: oneshot::Receiver<Stored>) -> Result<(), JournalError> {
    // A writer that is dropped answers nobody.
    stored.await.unwrap_or_else(|_| Err(JournalError::Lost("nobody: this process stops".to_owned())))
}
