//! A record of intents that survives the process: what was begun and is not known to have ended.
//!
//! Who does something that cannot be found again by looking, such as making an asset in a backend, first
//! [records](Journal::record) that it is about to. Whoever comes next [takes the journal over](Journal::take_over)
//! and finishes what is in it. The journal is a ConfigMap:
//!
//! ```yaml
//! metadata:
//!   labels: {app.kubernetes.io/component: journal, app.kubernetes.io/instance: example.com-disks}
//!   annotations: {kube-provisioner/holder: disks-7f9c_01ab…, kube-provisioner/layout: "1"}
//! data:
//!   version: "1"
//!   entries: |
//!     pvc-4a1c… gold-9f21,spec-07c4 {"metadata":{"name":"data",…}}
//!   shared: |
//!     gold-9f21 {"provisioner":"example.com/disks",…}
//!     spec-07c4 {"accessModes":["ReadWriteOnce"],…}
//! ```
//!
//! * **One writer.** Every write names the version that the last one left. Taking over writes the new holder's name, so
//!   that from then on no write of the former one succeeds, and it can begin nothing more: it is *fenced*. What needs no
//!   record asks for a [fence](Journal::fence) instead.
//! * **Group commit.** What arrives while a write is under way goes into the next one. Removals wait a second for
//!   company, for an entry that stays too long does no harm.
//! * **Bounded.** At most 20 writes and 1.5 MB in a second, at most 450 kB in all and 16 kB in one entry. Entries that name
//!   the same shared text first are a group, and leave room for other groups as in [`limiter`](crate::limiter). What
//!   finds no room is refused, not queued.
//! * **Open to people.** Whose key is in the annotation `kube-provisioner/drop` is [dropped](Journal::dropped): nobody
//!   finishes it any more. [`list`] and [`request_drop`] are for a command line.

mod adopt;
mod drop;
mod entries;
mod list;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod write;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::state::{State, Stored};
use crate::name::lease_name;
use crate::{CallError, Environment};

pub use self::adopt::{Adopted, Adoption, Other};
pub use self::drop::{DropError, request_drop};
pub use self::list::{Listing, list};
pub use self::state::JournalStats;
pub use self::text::Entry;
pub use self::write::Writer;

/// Where a journal is and who writes it.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The ConfigMap's namespace.
    pub namespace: String,
    /// The ConfigMap's name.
    pub name: String,
    /// What all journals of one kind of work share: a label, cut and marked where it is too long for one.
    pub group: String,
    /// How keys are spread over the journals of the group. Entries of other layouts can be [adopted](Adoption).
    pub layout: String,
    /// This process: no two have ever had the same.
    pub holder: String,
    /// What the jitter of pauses is drawn from.
    pub environment: Environment,
}

/// One journal, from taking it over to losing it. Clones are the same journal.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

/// Why something was not recorded, so that it must not be begun.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// No room, or none that leaves others theirs.
    #[error(
        "it has no room for more of this class: {entries} entries take {bytes} bytes; \
         other attempts of this class have to end first"
    )]
    Full {
        /// How many entries there are.
        entries: usize,
        /// How large they are together.
        bytes: usize,
    },
    /// One entry is not to take so much.
    #[error("an entry of {bytes} bytes is too large for it; it takes {most}")]
    TooLarge {
        /// How large the entry would be.
        bytes: usize,
        /// How large it may be at most.
        most: usize,
    },
    /// A person has dropped it meanwhile.
    #[error("a person has dropped the entry")]
    Dropped,
    /// Another process has taken the journal over, or this one has given it up.
    #[error("it was taken over by {0}")]
    Lost(String),
    /// The API server did not take it.
    #[error(transparent)]
    Call(#[from] Arc<CallError>),
}

/// Why a journal could not be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The API server did not answer as it should.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What is there was not written by this version of the program or an earlier one.
    #[error("its format {0:?} is not known to this version; run the version that wrote it")]
    Version(String),
}

/// The ConfigMap of one shard's journal, for a controller that is called `name`.
pub fn journal_name(name: &str, shard: u32, shards: u32) -> String {
    let part = if shards > 1 { format!("-{shard}-of-{shards}") } else { String::new() };
    lease_name(&format!("{name}-journal{part}"))
}

impl Journal {
    /// Takes a journal over, or begins it. Returns what is to be finished, and the writer: nothing is written unless it
    /// [runs](Writer::run), and whoever waits for a write waits for that.
    ///
    /// `still_ours` is asked when the ConfigMap has vanished: whether it may be written anew.
    ///
    /// # Errors
    /// See [`TakeOverError`]. Nothing is lost then; another attempt may succeed.
    pub async fn take_over(
        client: Client,
        options: JournalOptions,
        still_ours: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<(Self, Writer, Vec<Entry>), TakeOverError> {
        let (place, content, dropped) = write::take_over(client, options).await?;
        let entries = content.entries.clone();
        let state = Mutex::new(State::new(content, dropped));
        let (changed, dropped) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { state, changed, dropped, over: CancellationToken::new() });
        let writer = Writer::new(place, shared.clone(), Box::new(still_ours));
        Ok((Self { shared }, writer, entries))
    }

    /// Records that something is about to be begun, and returns when that is stored. It replaces an entry of the same key.
    ///
    /// # Errors
    /// When it is not stored; then it must not be begun.
    pub async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        let stored = self.change(|state| state.record(entry))?;
        wait(stored).await
    }

    /// The work on `key` has ended and can be found again by looking, or left nothing behind.
    pub fn remove(&self, key: &str) {
        self.change(|state| state.remove(key));
    }

    /// Records an entry of another journal, unless there is one for its key. Returns how that ends.
    fn adopt(&self, entry: Entry) -> Result<impl Future<Output = Result<(), JournalError>>, JournalError> {
        self.change(|state| state.adopt(entry)).map(wait)
    }

    /// Waits until a person has dropped entries, and returns their keys. What is known of them is to be forgotten. Each key
    /// is returned once; dropping the future loses none.
    pub async fn dropped(&self) -> Vec<String> {
        loop {
            let told = self.shared.dropped.notified();
            let keys = crate::lock(&self.shared.state).dropped();
            if !keys.is_empty() {
                return keys;
            }
            told.await;
        }
    }

    /// Whether there is an entry for `key`.
    pub fn contains(&self, key: &str) -> bool {
        crate::lock(&self.shared.state).contains(key)
    }

    /// Returns once the API server has said, after this call, that the journal is still ours. Removals made before are
    /// stored by then.
    ///
    /// # Errors
    /// When it is not ours, or when the server does not say.
    pub async fn fence(&self) -> Result<(), JournalError> {
        let stored = self.change(State::fence)?;
        wait(stored).await
    }

    /// As [`fence`](Self::fence), but what the API server has said to a request of at most so long ago counts.
    ///
    /// # Errors
    /// When the journal is not ours, or when the server does not say.
    pub async fn fence_since(&self, age: Duration) -> Result<(), JournalError> {
        if self.is_confirmed(age) { Ok(()) } else { self.fence().await }
    }

    /// Whether the API server has said to a request of at most so long ago that the journal is ours.
    pub fn is_confirmed(&self, age: Duration) -> bool {
        crate::lock(&self.shared.state).is_confirmed(age)
    }

    /// Returns when everything is stored, which it does not wait for as long as it usually would.
    ///
    /// # Errors
    /// When the first attempt fails.
    pub async fn flush(&self) -> Result<(), JournalError> {
        match self.change(State::flush)? {
            Some(stored) => wait(stored).await,
            None => Ok(()),
        }
    }

    /// Gives the journal up: nothing more is written. What is in it stays.
    pub fn close(&self) {
        self.change(|state| state.end("nobody yet"));
        self.shared.over.cancel();
    }

    /// Cancelled when the journal is lost or [closed](Self::close).
    pub fn over(&self) -> &CancellationToken {
        &self.shared.over
    }

    /// Counts since it was taken over.
    pub fn stats(&self) -> JournalStats {
        crate::lock(&self.shared.state).stats()
    }

    /// Why the last attempt to write failed; `None` while it works.
    pub fn problem(&self) -> Option<String> {
        crate::lock(&self.shared.state).problem()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut crate::lock(&self.shared.state));
        self.shared.changed.notify_one();
        result
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// A person has dropped something.
    dropped: Notify,
    over: CancellationToken,
}

async fn wait(stored: oneshot::Receiver<Stored>) -> Result<(), JournalError> {
    // A writer that is dropped answers nobody.
    stored.await.unwrap_or_else(|_| Err(JournalError::Lost("nobody: this process stops".to_owned())))
}
