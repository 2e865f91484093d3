//! What other journals of the fleet hold that nobody else will finish: it is taken over as far as there is room, and the rest
//! as entries end.

use std::time::Duration;

use kube::Client;
use provisioner_runtime::journal::{self, Adopted, Adoption, Entry, Journal, JournalOptions, Other};
use provisioner_runtime::surroundings::Surroundings;
use tokio::time::sleep;

use super::attempts::Attempts;
use super::plan::Plan;

/// Between looks at what found no room.
const PAUSE: Duration = Duration::from_secs(2);

/// The adoption of one shard's entries during one term.
pub(super) struct Peers<'a> {
    adoption: Adoption<'a>,
    plan: &'a Plan,
    shard: u32,
    surroundings: Surroundings,
}

impl<'a> Peers<'a> {
    pub(super) fn new(
        client: Client,
        plan: &'a Plan,
        shard: u32,
        options: &'a JournalOptions,
        journal: &'a Journal,
    ) -> Self {
        Self { adoption: Adoption::new(client, options, journal), plan, shard, surroundings: plan.surroundings }
    }

    /// Moves what fits, however often the API server has to be asked.
    pub(super) async fn adopt(&mut self) -> Adopted {
        let mut attempts = Attempts::at("the journals of other replicas cannot be looked at", self.surroundings);
        let layout = self.plan.journal(self.shard).layout;
        loop {
            // Journals of another number of shards, or of another way to share the work, have no holder any more.
            let abandoned = |other: Other<'_>| other.layout != layout;
            let mine = |entry: &Entry| self.plan.is_mine(self.shard, entry);
            match self.adoption.run(abandoned, mine).await {
                Ok(adopted) => return adopted,
                Err(error) => attempts.failed(error).await,
            }
        }
    }

    /// As [`Self::adopt`], after a pause in which entries may have ended.
    pub(super) async fn adopt_rest(&mut self) -> Adopted {
        sleep(PAUSE).await;
        self.adopt().await
    }
}

/// Returns when no journal of the fleet has an entry: claims that record their attempts themselves cannot take them over.
pub(super) async fn until_empty(client: &Client, options: &JournalOptions, mut problem: impl FnMut(Option<String>)) {
    let mut attempts = Attempts::at("the journals of the fleet cannot be looked at", options.surroundings);
    loop {
        match journal::list(client, &options.namespace, Some(&options.group)).await {
            Ok(journals) => {
                let Some(full) = journals.iter().find(|journal| !journal.entries.is_empty()) else {
                    return problem(None);
                };
                problem(Some(format!(
                    "ConfigMap {}/{} has {} attempts that were begun with another --coordination; start the provisioner with \
                     that one until they have ended",
                    options.namespace,
                    full.name,
                    full.entries.len()
                )));
                sleep(PAUSE).await;
            }
            Err(error) => attempts.failed(error).await,
        }
    }
}
