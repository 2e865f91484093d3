//! Adoption of entries from other journals of the fleet that no other process will finish: as many as fit, and the rest
//! as entries end.

use std::time::Duration;

use tokio::time::sleep;

use super::engine::Engine;
use super::reconciler::Reconciler;
use super::retry::Retry;
use crate::journal::{Adopted, Adoption, Entry, Journal, JournalOptions, Other};

/// The pause between attempts to adopt entries that did not fit.
const PAUSE: Duration = Duration::from_secs(2);

const PROBLEM: &str = "cannot take over the journals of other replicas";

/// The adoption of one shard's entries during one term.
pub(super) struct Adopter<'a, R: Reconciler> {
    engine: &'a Engine<R>,
    shard: u32,
    adoption: Adoption<'a>,
}

impl<'a, R: Reconciler> Adopter<'a, R> {
    pub(super) fn new(engine: &'a Engine<R>, shard: u32, options: &'a JournalOptions, journal: &'a Journal) -> Self {
        Self { engine, shard, adoption: Adoption::new(engine.context.client().clone(), options, journal) }
    }

    /// Moves the entries that fit. Retries until the API server answers.
    pub(super) async fn adopt(&mut self) -> Adopted {
        let options = &self.engine.shards.options;
        let mut retry = Retry::new(PROBLEM, options.environment);
        let layout = options.journal_of(self.shard).layout;
        loop {
            // Journals written for another number of shards, or another kind of sharing, no longer have a holder.
            let abandoned = |other: Other<'_>| other.layout != layout;
            let mine = |entry: &Entry| options.is_mine(self.shard, entry, |entry| self.engine.journal.owns(entry));
            match self.adoption.run(abandoned, mine).await {
                Ok(adopted) => return adopted,
                Err(error) => {
                    self.engine.report_delayed(self.shard, PROBLEM, &error);
                    retry.failed(error).await;
                }
            }
        }
    }

    /// Same as [`Self::adopt`], after a pause in which entries may have ended.
    pub(super) async fn adopt_rest(&mut self) -> Adopted {
        sleep(PAUSE).await;
        self.adopt().await
    }
}
