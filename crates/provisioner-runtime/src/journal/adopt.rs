//! Entries of journals that nobody writes any more.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use super::text::{Content, ENTRIES, VERSION, VERSION_KEY, write};
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
}

impl Other<'_> {
    /// Whether it has an entry for `key`.
    pub fn holds(&self, key: &str) -> bool {
        self.entries.lines().any(|line| line.split(' ').next() == Some(key))
    }
}

/// Moves entries from other journals of the group into one that is being written meanwhile. An entry is in one of the two at
/// any time, and whoever has written the other journal cannot write it any more.
///
/// Others may do the same at the same time with other keys, or with the same: then both have it. To let go of what somebody
/// else seems to have taken would be wrong, for they may do so too.
pub struct Adoption<'a> {
    api: Api<ConfigMap>,
    options: &'a JournalOptions,
    journal: &'a Journal,
    /// Entries that are in our journal and may still be in the other.
    pinned: BTreeMap<String, Entry>,
}

impl<'a> Adoption<'a> {
    /// Into `journal`, whose options these are.
    pub fn new(client: Client, options: &'a JournalOptions, journal: &'a Journal) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self { api, options, journal, pinned: BTreeMap::new() }
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
        for other in found.items.into_iter().filter(|other| other.name_any() != self.options.name) {
            let name = other.name_any();
            let layout = other.annotations().get(LAYOUT).map(String::as_str).unwrap_or_default();
            let version = other.resource_version().unwrap_or_default();
            let entries =
                other.data.as_ref().and_then(|data| data.get(ENTRIES)).map(String::as_str).unwrap_or_default();
            if abandoned(Other { name: &name, layout, version: &version, entries }) {
                self.empty(other, &mine).await?;
            }
        }
        for entry in self.pinned.values().filter(|entry| !self.journal.contains(&entry.key)) {
            self.journal.pin(entry.clone()).await.map_err(|error| CallError::Other(error.to_string()))?;
        }
        Ok(std::mem::take(&mut self.pinned).into_values().collect())
    }

    /// Takes what is ours out of another journal.
    async fn empty(&mut self, mut other: ConfigMap, mine: &impl Fn(&Entry) -> bool) -> Result<(), CallError> {
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
            if wanted.is_empty() {
                if is_empty {
                    self.delete(&other).await;
                }
                return Ok(());
            }
            for entry in &wanted {
                self.pinned.entry(entry.key.clone()).or_insert_with(|| entry.clone());
            }
            for stored in join_all(wanted.iter().map(|entry| self.journal.pin(entry.clone()))).await {
                stored.map_err(|error| CallError::Other(error.to_string()))?;
            }
            match self.mark(&mut other, write(rest.iter(), &unreadable)).await {
                Ok(()) => {
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
                Err(_) => sleep(PAUSE).await,
            }
            other = loop {
                match call(LIMIT, self.api.get(&name)).await {
                    Ok(other) => break other,
                    Err(CallError::NotFound) => return Ok(()),
                    Err(error) if !error.is_transient() => return Err(error),
                    Err(_) => sleep(PAUSE).await,
                }
            };
        }
        Err(CallError::Conflict)
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
