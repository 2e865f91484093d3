//! Entries of journals that nobody writes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use super::text::{ADOPTING, Content, ENTRIES, VERSION, VERSION_KEY, write};
use super::write::{HOLDER, LAYOUT, labels};
use super::{Entry, Journal, JournalOptions};
use crate::{CallError, call};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How often somebody else may be faster with one journal, or the server be out of order.
const TRIES: usize = 10;
/// After an answer that says nothing.
const PAUSE: Duration = Duration::from_millis(250);

/// Another journal of the group.
#[derive(Clone, Copy, Debug)]
pub struct Other<'a> {
    /// The ConfigMap's name.
    pub name: &'a str,
    /// How keys are spread over the journals of its kind.
    pub layout: &'a str,
    /// Changes with every write.
    pub version: &'a str,
    entries: &'a str,
    adopting: &'a str,
}

impl Other<'_> {
    fn read<T>(other: &ConfigMap, look: impl FnOnce(Other<'_>) -> T) -> T {
        let (name, version) = (other.name_any(), other.resource_version().unwrap_or_default());
        let layout = other.annotations().get(LAYOUT).map(String::as_str).unwrap_or_default();
        let part = |name: &str| other.data.as_ref()?.get(name).map(String::as_str);
        let [entries, adopting] = [ENTRIES, ADOPTING].map(|name| part(name).unwrap_or_default());
        look(Other { name: &name, layout, version: &version, entries, adopting })
    }

    /// Whether it has an entry for `key`.
    pub fn holds(&self, key: &str) -> bool {
        self.entries.lines().any(|line| line.split(' ').next() == Some(key))
    }

    /// Whether it may let go of the entry for `key` again, because it cannot know yet whether somebody else has adopted it.
    pub fn may_drop(&self, key: &str) -> bool {
        self.adopting.lines().any(|line| line == key)
    }
}

/// Moves entries from other journals of the group into one that is being written meanwhile. An entry is in one of the two at
/// any time, and whoever has written the other journal cannot write it any more.
///
/// Others may do the same at the same time with other keys, or with the same: one of them gets an entry.
pub struct Adoption<'a> {
    api: Api<ConfigMap>,
    options: &'a JournalOptions,
    journal: &'a Journal,
    pins: BTreeMap<String, Pin>,
}

/// An entry that is in our journal and may still be in the other.
struct Pin {
    entry: Entry,
    source: String,
    /// It was taken out of the other journal by a write of ours, or may have been by one whose answer was lost.
    ours: bool,
}

impl<'a> Adoption<'a> {
    /// Into `journal`, whose options these are.
    pub fn new(client: Client, options: &'a JournalOptions, journal: &'a Journal) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self { api, options, journal, pins: BTreeMap::new() }
    }

    /// Moves the entries that are `mine` from journals that are `abandoned`, and deletes those that are empty then. What is
    /// returned cannot be removed from the journal before it is [unpinned](Journal::unpin): what it stands for must be known
    /// first.
    ///
    /// # Errors
    /// When the API server does not answer as it should. The next call goes on where this one has ended.
    pub async fn run(
        &mut self,
        mut abandoned: impl FnMut(Other<'_>) -> bool,
        mine: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Entry>, CallError> {
        let selector: Vec<String> =
            labels(&self.options.group).iter().map(|(name, value)| format!("{name}={value}")).collect();
        let found = call(LIMIT, self.api.list(&ListParams::default().labels(&selector.join(",")))).await?;
        let gone = self.pins.values().map(|pin| pin.source.clone());
        let gone: BTreeSet<String> =
            gone.filter(|source| found.items.iter().all(|other| other.name_any() != **source)).collect();
        gone.iter().for_each(|source| self.settle(source, &[], false));
        for other in found.items.into_iter().filter(|other| other.name_any() != self.options.name) {
            let begun = self.pins.values().any(|pin| pin.source == other.name_any());
            if begun || Other::read(&other, &mut abandoned) {
                self.empty(other, &mut abandoned, &mine).await?;
            }
        }
        for pin in self.pins.values().filter(|pin| !self.journal.contains(&pin.entry.key)) {
            self.journal.pin(pin.entry.clone()).await.map_err(|error| CallError::Other(error.to_string()))?;
        }
        Ok(std::mem::take(&mut self.pins).into_values().map(|pin| pin.entry).collect())
    }

    /// Takes what is ours out of another journal, as long as that is abandoned.
    async fn empty(
        &mut self,
        mut other: ConfigMap,
        abandoned: &mut impl FnMut(Other<'_>) -> bool,
        mine: &impl Fn(&Entry) -> bool,
    ) -> Result<(), CallError> {
        let name = other.name_any();
        for _ in 0..TRIES {
            let data = other.data.clone().unwrap_or_default();
            if data.get(VERSION_KEY).is_some_and(|version| version != VERSION) {
                tracing::warn!(journal = name, "the format of an abandoned journal is not known; it is left alone");
                return Ok(());
            }
            let Content { entries, unreadable } = Content::read(&data);
            let (wanted, rest): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(mine);
            let is_empty = rest.is_empty() && unreadable.is_empty();
            let marked = other.annotations().get(HOLDER) == Some(&self.options.holder);
            self.settle(&name, &wanted, marked);
            // Its holder may have written it since it was looked at.
            if !marked && !Other::read(&other, &mut *abandoned) {
                self.leave(&name, &wanted);
                return Ok(());
            }
            if wanted.is_empty() {
                if is_empty {
                    self.delete(&other).await;
                }
                return Ok(());
            }
            for entry in &wanted {
                let pin = Pin { entry: entry.clone(), source: name.clone(), ours: false };
                self.pins.entry(entry.key.clone()).or_insert(pin);
            }
            for stored in join_all(wanted.iter().map(|entry| self.journal.pin(entry.clone()))).await {
                stored.map_err(|error| CallError::Other(error.to_string()))?;
            }
            match self.mark(&mut other, write(rest.iter(), &unreadable)).await {
                Ok(()) => {
                    self.taken_from(&name);
                    tracing::info!(
                        journal = name,
                        entries = wanted.len(),
                        "entries of an abandoned journal are adopted"
                    );
                    if is_empty {
                        self.delete(&other).await;
                    }
                    return Ok(());
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(_) => {
                    self.taken_from(&name);
                    sleep(PAUSE).await;
                }
            }
            other = loop {
                match call(LIMIT, self.api.get(&name)).await {
                    Ok(other) => break other,
                    Err(CallError::NotFound) => {
                        self.settle(&name, &[], false);
                        return Ok(());
                    }
                    Err(error) if !error.is_transient() => return Err(error),
                    Err(_) => sleep(PAUSE).await,
                }
            };
        }
        Err(CallError::Conflict)
    }

    /// Lets go of what is not in the other journal any more and was not taken out by us.
    fn settle(&mut self, source: &str, there: &[Entry], marked: bool) {
        // Where replicas have a journal each, all want the same entries; otherwise nobody but us wants ours.
        let rivals = self.options.beat.is_some();
        let journal = self.journal;
        self.pins.retain(|key, pin| {
            let gone = pin.source == source && there.iter().all(|entry| entry.key != *key);
            let ours = marked || pin.ours || !rivals;
            if gone && !ours {
                journal.drop_pinned(key);
            }
            !gone || ours
        });
    }

    /// What is in the other journal now was taken out by us, or may be before long.
    fn taken_from(&mut self, source: &str) {
        self.pins.values_mut().filter(|pin| pin.source == source).for_each(|pin| pin.ours = true);
    }

    /// Lets go of what is still in the other journal, whose holder lives.
    fn leave(&mut self, source: &str, there: &[Entry]) {
        for entry in there {
            if self.pins.get(&entry.key).is_some_and(|pin| pin.source == source) {
                self.pins.remove(&entry.key);
                self.journal.drop_pinned(&entry.key);
            }
        }
    }

    /// Deletes one that is empty. Where that fails, whoever looks next does it.
    async fn delete(&self, other: &ConfigMap) {
        let preconditions = Preconditions { uid: other.uid(), resource_version: other.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        if let Err(error) = call(LIMIT, self.api.delete(&other.name_any(), &parameters)).await {
            tracing::debug!(journal = other.name_any(), "an empty journal is not deleted: {error}");
        }
    }

    /// Leaves the rest in the other journal, under our name: its former holder, should it live, finds that it is not the
    /// holder any more.
    async fn mark(&self, other: &mut ConfigMap, data: BTreeMap<String, String>) -> Result<(), CallError> {
        other.data = Some(data);
        other.annotations_mut().insert(HOLDER.to_owned(), self.options.holder.clone());
        other.metadata.managed_fields = None;
        let stored = call(LIMIT, self.api.replace(&other.name_any(), &PostParams::default(), other)).await?;
        *other = stored;
        Ok(())
    }
}
