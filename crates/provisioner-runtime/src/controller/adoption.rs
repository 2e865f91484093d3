//! Adoption of entries in other journals of the fleet that no other process will finish. Entries that do not fit are
//! adopted later, when others end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use super::engine::Engine;
use super::reconciler::Reconciler;
use super::retry::Retry;
use super::shards::Sharing;
use crate::events::{Event, EventKind, ObjectRef};
use crate::journal::{Adopted, Adoption, Entry, Journal, JournalOptions, JournalResource, OtherJournal, PART_LAYOUT};

/// The pause between attempts to adopt entries that did not fit.
const PAUSE: Duration = Duration::from_secs(2);

const PROBLEM: &str = "cannot take over the journals of other replicas";

/// The keys of attempts that an administrator should look at, by the name and uid of their journal.
type Strays = BTreeMap<(String, String), BTreeSet<String>>;

/// The adoption of one shard's entries during one term.
pub(super) struct Adopter<'a, R: Reconciler> {
    engine: &'a Engine<R>,
    shard: u32,
    options: &'a JournalOptions,
    adoption: Adoption<'a>,
    /// The keys of stray attempts that were reported.
    reported: BTreeSet<String>,
}

impl<'a, R: Reconciler> Adopter<'a, R> {
    pub(super) fn new(engine: &'a Engine<R>, shard: u32, options: &'a JournalOptions, journal: &'a Journal) -> Self {
        let adoption = Adoption::new(engine.context.client().clone(), options, journal);
        Self { engine, shard, options, adoption, reported: BTreeSet::new() }
    }

    /// Moves the entries that fit. Retries until the API server answers.
    pub(super) async fn adopt(&mut self) -> Adopted {
        let options = &self.engine.shards.options;
        let mut retry = Retry::new(PROBLEM, options.environment);
        loop {
            // Journals written for another number of shards, or another kind of sharing, no longer have a holder.
            let abandoned = |other: OtherJournal<'_>| other.layout != self.options.layout;
            let strays = Mutex::new(Strays::new());
            let mine = |other: OtherJournal<'_>, entry: &Entry| {
                let part = (self.engine.journal.part_of)(entry);
                let is_mine = options.is_mine(self.shard, entry, part.as_deref());
                let is_stray = match options.sharing {
                    Sharing::Own { .. } => part.is_none(),
                    _ => is_mine && other.layout == PART_LAYOUT,
                };
                if is_stray {
                    let journal = (other.name.to_owned(), other.uid.to_owned());
                    crate::sync::lock(&strays).entry(journal).or_default().insert(entry.key.clone());
                }
                is_mine
            };
            let adopted = self.adoption.run(abandoned, mine).await;
            self.report(std::mem::take(&mut *crate::sync::lock(&strays)));
            match adopted {
                Ok(adopted) => return adopted,
                Err(error) => {
                    self.engine.report_delayed(self.shard, PROBLEM, &error);
                    retry.failed(error).await;
                }
            }
        }
    }

    /// Reports attempts that need an administrator after the kind of sharing has changed, once per term.
    fn report(&mut self, strays: Strays) {
        for ((journal, uid), mut keys) in strays {
            keys.retain(|key| self.reported.insert(key.clone()));
            if keys.is_empty() {
                continue;
            }
            let (reason, text) = match self.engine.shards.options.sharing {
                Sharing::Own { .. } => (
                    "JournalUnclaimed",
                    "name no node, so no node's replica continues them: list them with the \
                     command `journal list`, check the backend for their leftovers, and end each with \
                     `journal drop ENTRY`",
                ),
                _ => (
                    "JournalMoved",
                    "began on a node, and another replica continues them now: if only that \
                     node can reach their leftovers, remove them there",
                ),
            };
            let note = format!("Attempts in this journal ({} in total) {text}", keys.len());
            tracing::warn!(journal, ?keys, "{note}");
            let event = journal_event(self.options, &journal, &uid, reason, note);
            // The replicas of all nodes find the same attempts.
            self.engine.context.events().record(Event { same_from_all: true, ..event });
        }
    }

    /// Same as [`Self::adopt`], after a pause in which entries may have ended.
    pub(super) async fn adopt_rest(&mut self) -> Adopted {
        sleep(PAUSE).await;
        self.adopt().await
    }
}

/// Returns a Warning event about a journal; `options` determine its kind and namespace.
pub(super) fn journal_event(
    options: &JournalOptions,
    name: &str,
    uid: &str,
    reason: &'static str,
    note: String,
) -> Event {
    let JournalResource { api_version, kind, .. } = options.kind.resource();
    let (namespace, name, uid) = (Some(options.namespace.as_str().into()), name.into(), uid.into());
    let object = ObjectRef { api_version, kind, namespace, name, uid };
    Event { object, kind: EventKind::Warning, reason, action: "TakeOver", note, same_from_all: false }
}
