//! The other journals of the fleet, and which of them nobody writes any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use provisioner_runtime::backoff::Backoff;
use provisioner_runtime::call::CallError;
use provisioner_runtime::journal::{Adoption, Entry, Journal, JournalOptions, Other};
use tokio::time::{Instant, sleep};

/// Between attempts to have what is in journals.
pub(super) const RETRIES: Backoff = Backoff::exponential(Duration::from_millis(250), Duration::from_secs(15));

/// What one process knows of the journals beside its own.
pub(crate) struct Peers {
    pub(crate) options: JournalOptions,
    /// How long a journal that beats may be silent.
    patience: Duration,
    /// Since when journals are as they are.
    seen: Mutex<HashMap<String, (String, Instant)>>,
    /// One adoption at a time: two of one process would take the same entry for each other's.
    adopting: tokio::sync::Mutex<()>,
}

impl Peers {
    pub(super) fn new(options: JournalOptions, patience: Duration) -> Self {
        Self { options, patience, seen: Mutex::default(), adopting: tokio::sync::Mutex::default() }
    }

    /// For how long the own journal may be silent, where it beats, before this process has to fear that it is taken for dead.
    pub(super) fn silence(&self) -> Option<Duration> {
        self.options.beat.map(|_| self.patience * 5 / 6)
    }

    /// Held while entries are moved, until it is known what they stand for.
    pub(crate) async fn adopting(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.adopting.lock().await
    }

    /// Journals of another number of shards, or of another way to share the work, have no holder any more. Neither have
    /// those that do not beat.
    pub(super) fn is_abandoned(&self, other: Other<'_>) -> bool {
        other.layout != self.options.layout || (self.options.beat.is_some() && self.is_silent(other))
    }

    fn is_silent(&self, other: Other<'_>) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, since) = seen.entry(other.name.to_owned()).or_insert_with(|| (other.version.to_owned(), now));
        if version != other.version {
            (*version, *since) = (other.version.to_owned(), now);
        }
        now.duration_since(*since) >= self.patience
    }

    /// Moves what dead replicas had begun for this key into `journal`, pinned, and returns it; and the journals of living ones
    /// that have an entry for it, each with whether it will keep it: while there are any nothing may be begun.
    pub(crate) async fn take_from_the_dead(
        &self,
        key: &str,
        client: Client,
        journal: &Journal,
    ) -> (Vec<Entry>, BTreeMap<String, bool>) {
        let mut living = BTreeMap::new();
        let dead = |other: Other<'_>| {
            let silent = self.is_abandoned(other);
            match other.holds(key) && !silent {
                true => living.insert(other.name.to_owned(), !other.may_drop(key)),
                false => living.remove(other.name),
            };
            silent && other.holds(key)
        };
        let entries = self.adopt(client, journal, dead, |entry| entry.key == key).await;
        (entries, living)
    }

    /// Moves entries that are `mine` from journals that are `abandoned` into `journal`, pinned, however often the API server
    /// has to be asked.
    pub(super) async fn adopt(
        &self,
        client: Client,
        journal: &Journal,
        mut abandoned: impl FnMut(Other<'_>) -> bool,
        mine: impl Fn(&Entry) -> bool,
    ) -> Vec<Entry> {
        let mut adoption = Adoption::new(client, &self.options, journal);
        let mut attempts = Attempts::at("the journals of other replicas");
        loop {
            match adoption.run(&mut abandoned, &mine).await {
                Ok(adopted) => return adopted,
                Err(error) => attempts.failed(error).await,
            }
        }
    }
}

/// Attempts to have an answer of the API server, however often it has to be asked.
pub(super) struct Attempts {
    about: &'static str,
    failed: u32,
}

impl Attempts {
    /// To look at this.
    pub(super) fn at(about: &'static str) -> Self {
        Self { about, failed: 0 }
    }

    /// One has failed: the next one may be made when this returns.
    pub(super) async fn failed(&mut self, error: CallError) {
        self.failed += 1;
        tracing::warn!("{} cannot be looked at: {error}", self.about);
        sleep(RETRIES.delay(self.failed, 0.0)).await;
    }
}
