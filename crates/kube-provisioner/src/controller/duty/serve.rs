//! From taking the journal of a shard over to giving the shard up.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use kube::Client;
use provisioner_runtime::journal::{Adopted, Entry, Journal, JournalOptions, Writer};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::adopt::{Peers, until_empty};
use super::attempts::Attempts;
use super::{Held, Record, Turn};
use crate::controller::engine::Engine;
use crate::controller::key::Key;

/// How long the last write of a journal may take when a shard is given up.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Works on a shard until the turn ends. Returns who took the journal over, if somebody did.
pub(crate) async fn serve(engine: Arc<Engine>, turn: Turn) -> Option<String> {
    let place = Place { engine: &engine, shard: turn.shard };
    // What was remembered of an earlier turn has been somebody else's since.
    place.forget();
    let options = engine.duties.plan.journal(turn.shard);
    if engine.duties.plan.claims_record() {
        place.serve_by_claims(&turn, &options).await;
        return None;
    }
    let taken = tokio::select! {
        biased;
        () = turn.lost.cancelled() => return None,
        () = turn.leave.cancelled() => return None,
        taken = place.take_over(&turn, &options) => taken,
    };
    let (journal, writer, entries) = taken;
    let over = journal.over().clone();
    let ended = tokio::select! {
        biased;
        () = turn.lost.cancelled() => None,
        by = writer.run() => Some(by),
        () = place.work(&turn, &options, &journal, entries) => None,
    };
    over.cancel();
    journal.close();
    place.give_up().await;
    ended
}

/// A shard of this process. Dropping it ends all work on it at once.
struct Place<'a> {
    engine: &'a Engine,
    shard: u32,
}

impl Place<'_> {
    async fn take_over(&self, turn: &Turn, options: &JournalOptions) -> (Journal, Writer, Vec<Entry>) {
        let duties = &self.engine.duties;
        let mut attempts = Attempts::at("the journal cannot be taken over", options.surroundings);
        loop {
            let valid = turn.valid.clone();
            let taken = Journal::take_over(self.engine.client(), options.clone(), move || valid()).await;
            let error = match taken {
                Ok(taken) => {
                    duties.set_problem(self.shard, None);
                    return taken;
                }
                Err(error) => error,
            };
            let place = format!("ConfigMap {}/{}", options.namespace, options.name);
            let problem = format!("the journal ({place}) cannot be taken over: {error}");
            self.engine.held_up(|key| self.is_here(key), &problem);
            duties.set_problem(self.shard, Some(problem));
            attempts.failed(format!("{place}: {error}")).await;
        }
    }

    /// Everything between taking the journal over and having nothing in flight any more.
    async fn work(&self, turn: &Turn, options: &JournalOptions, journal: &Journal, mut entries: Vec<Entry>) {
        let plan = &self.engine.duties.plan;
        let mut peers = Peers::new(self.engine.client(), plan, self.shard, options, journal);
        let left = tokio::select! {
            biased;
            () = turn.leave.cancelled() => return,
            (adopted, ()) = join(peers.adopt(), self.ready()) => {
                entries.extend(adopted.entries);
                adopted.left
            }
        };
        let working = TaskTracker::new();
        self.engine.adopt(entries, |key| journal.remove(key));
        self.left_behind(&left);
        self.begin(turn, Record::Journal(journal.clone()), &working);
        tokio::select! {
            biased;
            () = turn.leave.cancelled() => {}
            () = self.adopt_rest(&mut peers, journal, left) => {}
            () = self.honour_drops(journal) => {}
        }
        self.end(&working).await;
        // What was removed last need not be looked at by the next holder.
        let _ = timeout(LAST_WRITE, journal.flush()).await;
    }

    /// Every replica works, and has nothing but the locks of claims.
    async fn serve_by_claims(&self, turn: &Turn, options: &JournalOptions) {
        let working = TaskTracker::new();
        let set_problem = |problem: Option<String>| {
            if let Some(problem) = &problem {
                self.engine.held_up(|key| self.is_here(key), problem);
            }
            self.engine.duties.set_problem(self.shard, problem);
        };
        tokio::select! {
            biased;
            () = turn.leave.cancelled() => return,
            () = async {
                self.ready().await;
                until_empty(&self.engine.client(), options, set_problem).await;
            } => {}
        }
        self.begin(turn, Record::Claims, &working);
        turn.leave.cancelled().await;
        self.end(&working).await;
        self.give_up().await;
    }

    /// Waits until everything is known, asks how old what is known may be, and lets the author begin.
    async fn ready(&self) {
        let plan = &self.engine.duties.plan;
        let mut attempts = Attempts::at("the cluster cannot be looked at", plan.surroundings);
        let versions = loop {
            match self.engine.actor.versions().await {
                Ok(versions) => break versions,
                Err(error) => attempts.failed(error).await,
            }
        };
        self.engine.synced_after(versions).await;
        let mut attempts = Attempts::at("the provisioner cannot begin", plan.surroundings);
        while let Err(error) = self.engine.actor.start().await {
            let problem = format!("the provisioner cannot begin: {error}");
            self.engine.held_up(|key| self.is_here(key), &problem);
            self.engine.duties.set_problem(self.shard, Some(problem));
            attempts.failed(error).await;
        }
        self.engine.duties.set_problem(self.shard, None);
    }

    fn begin(&self, turn: &Turn, record: Record, working: &TaskTracker) {
        tracing::info!(shard = self.shard, "ready");
        let held = Held { record, valid: turn.valid.clone(), working: working.clone() };
        self.engine.begin(
            |key| self.is_here(key),
            || {
                self.engine.duties.held().insert(self.shard, held);
            },
        );
    }

    async fn end(&self, working: &TaskTracker) {
        working.close();
        let grace = self.engine.duties.plan.grace;
        if timeout(grace, working.wait()).await.is_err() {
            tracing::warn!("work in flight did not end within {} s and is left to the next replica", grace.as_secs());
        }
    }

    /// Goes on with what found no room at first. Never ends.
    async fn adopt_rest(&self, peers: &mut Peers<'_>, journal: &Journal, mut left: Vec<Entry>) {
        while !left.is_empty() {
            let Adopted { entries, left: rest } = peers.adopt_rest().await;
            let keys: Vec<Key> = entries.iter().map(|entry| Key::of_volume(&entry.key)).collect();
            self.engine.adopt(entries, |key| journal.remove(key));
            self.engine.go_on(keys);
            left = rest;
            self.left_behind(&left);
        }
        std::future::pending::<()>().await;
    }

    /// Says what waits for room.
    fn left_behind(&self, left: &[Entry]) {
        let keys: Vec<Key> = left.iter().map(|entry| Key::of_volume(&entry.key)).collect();
        let problem = (!keys.is_empty()).then(|| {
            format!(
                "{} attempts that another replica has begun wait for room in the journal: they are taken over as others end",
                keys.len()
            )
        });
        if let Some(problem) = &problem {
            tracing::warn!("{problem}");
            self.engine.await_adoption(keys, problem);
        }
        self.engine.duties.set_problem(self.shard, problem);
    }

    /// Ends the attempts that a person has dropped. Never ends.
    async fn honour_drops(&self, journal: &Journal) {
        loop {
            for volume in journal.dropped().await {
                tracing::warn!(
                    pv = volume,
                    "the attempt is dropped by hand; what it may have left in the backend stays there"
                );
                self.engine.drop_attempt(&Key::of_volume(&volume));
            }
        }
    }

    async fn give_up(&self) {
        if let Some(working) = self.engine.duties.remove(self.shard) {
            // They see that the journal is over as soon as they run.
            working.wait().await;
        }
        self.forget();
    }

    fn forget(&self) {
        self.engine.forget(|key| self.is_here(key));
    }

    fn is_here(&self, key: &Key) -> bool {
        self.engine.duties.shard_of(key) == self.shard
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.engine.duties.remove(self.shard);
        self.engine.duties.set_problem(self.shard, None);
    }
}

/// The right to use the API server's client from here, so that journals and work share connections.
impl Engine {
    fn client(&self) -> Client {
        self.actor.client.clone()
    }
}
