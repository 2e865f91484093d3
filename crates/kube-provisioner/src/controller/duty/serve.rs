//! From taking the journal of a shard over to giving the shard up.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use kube::Client;
use provisioner_runtime::journal::{Entry, Journal, Writer};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::peers::{Attempts, Peers, RETRIES};
use super::{Held, Turn};
use crate::controller::engine::Engine;
use crate::controller::key::Key;

/// How long the last write of a journal may take when a shard is given up.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Works on a shard until the turn ends. Returns who took the journal over, if somebody did.
pub(crate) async fn serve(engine: Arc<Engine>, turn: Turn) -> Option<String> {
    let place = Place { engine: &engine, shard: turn.shard };
    // What was remembered of an earlier turn has been somebody else's since.
    place.forget();
    let taken = tokio::select! {
        biased;
        () = turn.lost.cancelled() => return None,
        () = turn.leave.cancelled() => return None,
        taken = place.take_over(&turn) => taken,
    };
    let (journal, writer, entries) = taken;
    let over = journal.over().clone();
    let ended = tokio::select! {
        biased;
        () = turn.lost.cancelled() => None,
        by = writer.run() => Some(by),
        () = place.work(&turn, &journal, entries) => None,
    };
    over.cancel();
    place.give_up(&journal).await;
    ended
}

/// A shard of this process. Dropping it ends all work on it at once.
struct Place<'a> {
    engine: &'a Engine,
    shard: u32,
}

impl Place<'_> {
    async fn take_over(&self, turn: &Turn) -> (Journal, Writer, Vec<Entry>) {
        let duties = &self.engine.duties;
        let options = duties.plan.journal(self.shard);
        let place = format!("ConfigMap {}/{}", options.namespace, options.name);
        let mut attempt = 0;
        loop {
            // Without a Lease nobody knows who deleted it, a person or the replica that went on with what was in it.
            let (valid, leased) = (turn.valid.clone(), options.beat.is_none());
            let still_ours = move || leased && valid();
            let taken = Journal::take_over(self.engine.client(), options.clone(), still_ours).await;
            let error = match taken {
                Ok(taken) => {
                    duties.set_problem(self.shard, None);
                    return taken;
                }
                Err(error) => error,
            };
            attempt += 1;
            let problem = format!("the journal ({place}) cannot be taken over: {error}");
            tracing::warn!("{problem}");
            self.engine.held_up(|key| self.is_here(key), &problem);
            duties.set_problem(self.shard, Some(problem));
            let chance = duties.plan.surroundings.number(&format!("take over {attempt}"));
            sleep(RETRIES.delay(attempt, chance as f64 / u64::MAX as f64)).await;
        }
    }

    /// Everything between taking the journal over and having nothing in flight any more.
    async fn work(&self, turn: &Turn, journal: &Journal, mut entries: Vec<Entry>) {
        let plan = &self.engine.duties.plan;
        let peers = Arc::new(Peers::new(plan.journal(self.shard), plan.lease_duration));
        tokio::select! {
            biased;
            () = turn.leave.cancelled() => return,
            (adopted, ()) = join(self.adopt_abandoned(journal, &peers), self.sync()) => entries.extend(adopted),
        }
        let working = TaskTracker::new();
        self.engine.begin(
            entries,
            journal,
            |key| self.is_here(key),
            || {
                let peers = peers.clone();
                let held =
                    Held { journal: journal.clone(), valid: turn.valid.clone(), peers, working: working.clone() };
                self.engine.duties.held().insert(self.shard, held);
            },
        );
        tokio::select! {
            biased;
            () = turn.leave.cancelled() => {}
            () = self.look_after_the_dead(journal, &peers) => {}
        }
        working.close();
        let grace = self.engine.duties.plan.grace;
        if timeout(grace, working.wait()).await.is_err() {
            tracing::warn!("work in flight did not end within {} s and is left to the next replica", grace.as_secs());
        }
        // What was removed last need not be looked at by the next holder.
        let _ = timeout(LAST_WRITE, journal.flush()).await;
    }

    /// Waits until everything is known, and asks how old what is known of the claims may be.
    async fn sync(&self) {
        let mut attempts = Attempts::at("the claims");
        let version = loop {
            match self.engine.actor.version_of_claims().await {
                Ok(version) => break version,
                Err(error) => attempts.failed(error).await,
            }
        };
        self.engine.synced_after(version).await;
    }

    /// Where every replica has a journal of its own, those of dead ones are finished by the others.
    async fn look_after_the_dead(&self, journal: &Journal, peers: &Peers) {
        let Some(beat) = peers.options.beat else { return std::future::pending().await };
        loop {
            sleep(beat).await;
            let _adopting = peers.adopting().await;
            let entries = self.adopt_abandoned(journal, peers).await;
            self.engine.begin(entries, journal, |_| false, || {});
        }
    }

    async fn adopt_abandoned(&self, journal: &Journal, peers: &Peers) -> Vec<Entry> {
        let mine = |entry: &Entry| self.engine.duties.plan.is_mine(self.shard, entry);
        peers.adopt(self.engine.client(), journal, |other| peers.is_abandoned(other), mine).await
    }

    async fn give_up(&self, journal: &Journal) {
        journal.close();
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
