//! One term of one shard: from taking over its journal to releasing the shard.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::adoption::{Adopter, journal_event};
use super::engine::Engine;
use super::reconciler::{KeyOf, Reconciler};
use super::retry::Retry;
use super::step::panic_text;
use crate::journal::{Adopted, Entry, Journal, JournalOptions, JournalStats, Writer};
use crate::lease::Term;

/// Time limit for the last write of a journal when a shard is released.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Works on a shard until its term ends. If another process took over the journal, returns its name.
pub(super) async fn run_term<R: Reconciler>(engine: Arc<Engine<R>>, term: Term) -> Option<String> {
    let shard = Shard { engine: &engine, number: term.shard };
    // Other processes may have made the state from an earlier term obsolete.
    shard.forget();
    let options = engine.shards.options.journal_of(term.shard);
    let taken = tokio::select! {
        biased;
        () = term.lost.cancelled() => return None,
        () = term.leave.cancelled() => return None,
        taken = shard.take_over(&term, &options) => taken,
    };
    let (journal, writer, entries) = taken;
    let over = journal.over().clone();
    let ended = tokio::select! {
        biased;
        () = term.lost.cancelled() => None,
        by = writer.run() => Some(by),
        () = shard.work(&term, &options, &journal, entries) => None,
    };
    over.cancel();
    journal.close();
    shard.release().await;
    ended
}

/// A shard of this process. Dropping it ends all work on it at once.
struct Shard<'a, R: Reconciler> {
    engine: &'a Engine<R>,
    number: u32,
}

impl<R: Reconciler> Shard<'_, R> {
    async fn take_over(&self, term: &Term, options: &JournalOptions) -> (Journal, Writer, Vec<Entry>) {
        let mut retry = Retry::new("the journal cannot be taken over", options.environment);
        loop {
            let valid = term.clone();
            let client = self.engine.context.client().clone();
            let shared = JournalOptions { tenant_of: self.engine.journal.tenant_of, ..options.clone() };
            let error = match Journal::take_over(client, shared, move || valid.is_valid()).await {
                Ok(taken) => {
                    self.engine.shards.set_problem(self.number, None);
                    return taken;
                }
                Err(error) => error,
            };
            let object = format!("{} {}/{}", options.kind.resource().kind, options.namespace, options.name);
            self.set_problem(Some(format!("the journal ({object}) cannot be taken over: {error}")));
            retry.failed(format!("{object}: {error}")).await;
        }
    }

    /// Runs from the takeover of the journal until no work is in flight.
    async fn work(&self, term: &Term, options: &JournalOptions, journal: &Journal, mut entries: Vec<Entry>) {
        let mut adopter = Adopter::new(self.engine, self.number, options, journal);
        let left = tokio::select! {
            biased;
            () = term.leave.cancelled() => return,
            (adopted, ()) = join(adopter.adopt(), self.wait_until_ready()) => {
                entries.extend(adopted.entries);
                adopted.left
            }
        };
        let working = TaskTracker::new();
        self.engine.adopt(entries, journal);
        self.report_journal(options, journal);
        self.report_left_behind(&left, true);
        self.begin(term, journal.clone(), &working);
        tokio::select! {
            biased;
            () = term.leave.cancelled() => {}
            () = self.adopt_rest(&mut adopter, journal, left) => {}
            () = self.honour_drops(journal) => {}
            () = self.honour_acceptances(journal) => {}
            () = self.while_leading() => {}
        }
        self.end(&working).await;
        // Otherwise the next holder would have to check entries that were removed just before the end.
        let _ = timeout(LAST_WRITE, journal.flush()).await;
    }

    /// Waits until the cache is complete and up to date with this term, and starts the author's code.
    async fn wait_until_ready(&self) {
        let environment = self.engine.shards.options.environment;
        let unread = "cannot read the cluster's current state";
        let mut retry = Retry::new(unread, environment);
        while let Err(error) = self.engine.refresh().await {
            self.engine.report_delayed(self.number, unread, &error);
            retry.failed(error).await;
        }
        let mut retry = Retry::new("the provisioner cannot begin", environment);
        while let Err(error) = self.engine.reconciler.start().await {
            self.set_problem(Some(format!("the provisioner cannot begin: {error}")));
            retry.failed(error).await;
        }
        // Do not clear the problem here: it may come from the concurrent adoption. `report_left_behind` sets it
        // afterwards.
    }

    fn begin(&self, term: &Term, journal: Journal, working: &TaskTracker) {
        tracing::info!(shard = self.number, "ready");
        self.engine.begin(|key| self.is_here(key), || self.engine.shards.insert(term, journal, working));
    }

    async fn end(&self, working: &TaskTracker) {
        working.close();
        let grace = self.engine.shards.options.grace;
        if timeout(grace, working.wait()).await.is_err() {
            tracing::warn!("work in flight did not end within {} s and is left to the next replica", grace.as_secs());
        }
    }

    /// Adopts entries that did not fit at first. Never returns.
    async fn adopt_rest(&self, adopter: &mut Adopter<'_, R>, journal: &Journal, mut left: Vec<Entry>) {
        while !left.is_empty() {
            let Adopted { entries, left: rest } = adopter.adopt_rest().await;
            let differs = keys::<R>(&left) != keys::<R>(&rest);
            let released = [keys::<R>(&entries), keys::<R>(&no_longer_left(left, &rest))].concat();
            self.engine.adopt(entries, journal);
            self.engine.resume(released);
            left = rest;
            self.report_left_behind(&left, differs);
        }
        std::future::pending::<()>().await;
    }

    /// Reports the entries that wait for room: on `/readyz`, and once in the log and to their users.
    fn report_left_behind(&self, left: &[Entry], differs: bool) {
        let keys = keys::<R>(left);
        let problem = (!keys.is_empty()).then(|| {
            format!(
                "attempts of other replicas wait for space in the journal ({} in total): they are taken over when other \
                 attempts end",
                keys.len()
            )
        });
        if let Some(problem) = problem.as_ref().filter(|_| differs) {
            tracing::warn!("{problem}");
            self.engine.await_adoption(&keys, problem);
        }
        self.engine.shards.set_problem(self.number, problem);
    }

    /// Ends attempts that an administrator has dropped. Never returns.
    async fn honour_drops(&self, journal: &Journal) {
        loop {
            for key in journal.dropped().await {
                tracing::warn!(
                    key,
                    "an administrator dropped the attempt; its leftovers in the backend, if any, stay there"
                );
                self.engine.drop_attempt(&KeyOf::<R>::from(&key));
            }
        }
    }

    /// Finishes restored entries that an administrator has accepted. Never returns.
    async fn honour_acceptances(&self, journal: &Journal) {
        loop {
            let entries = journal.accepted().await;
            let keys = keys::<R>(&entries);
            self.engine.adopt(entries, journal);
            self.engine.resume(keys);
        }
    }

    /// Runs the reconciler's `while_leading`. Never returns.
    async fn while_leading(&self) {
        if let Err(panic) = AssertUnwindSafe(self.engine.reconciler.while_leading()).catch_unwind().await {
            tracing::warn!("the background work of this term crashed: {}", panic_text(&*panic));
        }
        std::future::pending::<()>().await;
    }

    /// Reports entries that were restored from a backup, and a journal that exists only in memory.
    fn report_journal(&self, options: &JournalOptions, journal: &Journal) {
        let (JournalStats { restored, in_memory, .. }, uid) = (journal.stats(), journal.uid());
        let (reason, note) = match (restored, in_memory) {
            (0, 0) => return,
            (0, _) => {
                let note = "the account may not write Leases in this namespace, so attempts are not recorded, and \
                     assets may leak when this process is killed: grant get, list, create and update of leases, \
                     and restart the process";
                ("JournalInMemory", note.to_owned())
            }
            _ => {
                let note = format!(
                    "this journal was restored from a backup, and its attempts ({restored} in total) may have ended since the \
                     backup, so they are not continued: list them with the command `journal list`, check the backend \
                     for their leftovers, and end each with `journal drop ENTRY`, or have it finished with `journal \
                     accept ENTRY`"
                );
                ("JournalRestored", note)
            }
        };
        let event = journal_event(options, &options.name, uid.as_deref().unwrap_or_default(), reason, note);
        self.engine.context.events().record(event);
    }

    /// Reports on `/readyz` and to users why no work is done.
    fn set_problem(&self, problem: Option<String>) {
        if let Some(problem) = &problem {
            self.engine.report_blocked(|key| self.is_here(key), problem);
        }
        self.engine.shards.set_problem(self.number, problem);
    }

    async fn release(&self) {
        if let Some(working) = self.engine.shards.remove(self.number) {
            // The tasks end at their next poll, because the journal is closed.
            working.wait().await;
        }
        self.forget();
    }

    fn forget(&self) {
        self.engine.forget(|key| self.is_here(key));
    }

    fn is_here(&self, key: &KeyOf<R>) -> bool {
        self.engine.shards.shard_of(key) == self.number
    }
}

impl<R: Reconciler> Drop for Shard<'_, R> {
    fn drop(&mut self) {
        self.engine.shards.remove(self.number);
        self.engine.shards.set_problem(self.number, None);
    }
}

/// Returns the entries that are no longer in the other journals. They are not necessarily in ours: an administrator may
/// have dropped them.
fn no_longer_left(left: Vec<Entry>, rest: &[Entry]) -> Vec<Entry> {
    let rest: BTreeSet<&str> = rest.iter().map(|entry| &*entry.key).collect();
    left.into_iter().filter(|entry| !rest.contains(&*entry.key)).collect()
}

fn keys<R: Reconciler>(entries: &[Entry]) -> Vec<KeyOf<R>> {
    entries.iter().map(|entry| KeyOf::<R>::from(&entry.key)).collect()
}
