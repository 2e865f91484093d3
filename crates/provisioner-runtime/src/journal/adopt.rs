//! Adoption of entries from journals that are no longer written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use super::Journal;
use super::error::JournalError;
use super::format::{Content, Entry, HOLDER, LAYOUT, VERSION, VERSION_KEY, drop_requests, is_copy, write};
use super::list::selector;
use super::object::{JournalKind, JournalObject};
use super::options::JournalOptions;
use super::write::{LIMIT, TRIES};
use crate::call::{CallError, call};

/// The pause after a response that leaves the outcome open.
const PAUSE: Duration = Duration::from_millis(250);

/// Another journal of the group.
#[derive(Clone, Copy, Debug)]
pub struct OtherJournal<'a> {
    /// The object's name.
    pub name: &'a str,
    /// The object's uid.
    pub uid: &'a str,
    /// The distribution of keys over the journals of its kind.
    pub layout: &'a str,
    /// The resource version; changes with every write.
    pub version: &'a str,
}

impl<'a> OtherJournal<'a> {
    fn of(journal: &'a JournalObject) -> Self {
        let ObjectMeta { name, uid, resource_version, .. } = &journal.metadata;
        Self {
            name: name.as_deref().unwrap_or_default(),
            uid: uid.as_deref().unwrap_or_default(),
            layout: journal.annotations().get(LAYOUT).map(String::as_str).unwrap_or_default(),
            version: resource_version.as_deref().unwrap_or_default(),
        }
    }
}

/// The result of an adoption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Entries that are now in our journal, and in no other.
    pub entries: Vec<Entry>,
    /// Entries that did not fit. They stay in the other journal, which no other process writes. Another run may move
    /// them.
    pub left: Vec<Entry>,
}

/// Moves entries from other journals of the group into ours, while ours is being written. At any time, an entry is in
/// at least one of the two. The former holder of the other journal is fenced first.
///
/// Other processes may adopt other keys at the same time.
pub struct Adoption<'a> {
    api: Api<JournalObject>,
    options: &'a JournalOptions,
    journal: &'a Journal,
    /// By key: entries in our journal that may still be in another one, with the name of that journal.
    copied: BTreeMap<String, (Entry, String)>,
    /// By key: entries that are no longer in any other journal.
    adopted: BTreeMap<String, Entry>,
    /// The journals that the log has already mentioned.
    warned: BTreeSet<String>,
}

impl<'a> Adoption<'a> {
    /// Creates an adoption into `journal`, which has these options.
    pub fn new(client: Client, options: &'a JournalOptions, journal: &'a Journal) -> Self {
        let api = Api::namespaced_with(client, &options.namespace, &options.kind);
        let (copied, adopted, warned) = Default::default();
        Self { api, options, journal, copied, adopted, warned }
    }

    /// Moves the entries for which `mine` returns true from journals for which `abandoned` returns true, as far as they
    /// fit, and deletes journals that end up empty. Until a run returns a key among the [entries](Adopted::entries), do
    /// not work on it, and do not remove it from our journal. Only then is it certain that the other journal no longer
    /// contains it.
    ///
    /// # Errors
    /// Fails if the API server does not respond as expected. The next call continues.
    pub async fn run(
        &mut self,
        mut abandoned: impl FnMut(OtherJournal<'_>) -> bool,
        mine: impl Fn(OtherJournal<'_>, &Entry) -> bool,
    ) -> Result<Adopted, CallError> {
        if self.options.kind == JournalKind::Memory {
            return Ok(Adopted::default());
        }
        let parameters = ListParams::default().labels(&selector(Some(&self.options.group)));
        let found = call(LIMIT, self.api.list(&parameters)).await?;
        let sources: BTreeSet<String> = self.copied.values().map(|(_, source)| source.clone()).collect();
        for source in sources.iter().filter(|source| found.items.iter().all(|other| other.name_any() != **source)) {
            self.mark_adopted(source, &[]);
        }
        let mut left = Vec::new();
        for other in found.items.into_iter().filter(|other| other.name_any() != self.options.name) {
            if sources.contains(&other.name_any()) || abandoned(OtherJournal::of(&other)) {
                left.extend(self.move_entries(other, &mut abandoned, &mine).await?);
            }
        }
        let mut entries: Vec<Entry> = std::mem::take(&mut self.adopted).into_values().collect();
        // An administrator may have dropped some in the meantime.
        entries.retain(|entry| self.journal.contains(&entry.key));
        Ok(Adopted { entries, left })
    }

    /// Moves our entries out of another journal while it is abandoned. Returns those that have to stay there.
    pub(super) async fn move_entries(
        &mut self,
        mut other: JournalObject,
        abandoned: &mut impl FnMut(OtherJournal<'_>) -> bool,
        mine: &impl Fn(OtherJournal<'_>, &Entry) -> bool,
    ) -> Result<Vec<Entry>, CallError> {
        let name = other.name_any();
        for _ in 0..TRIES {
            let data = other.data();
            if data.get(VERSION_KEY).is_some_and(|version| version != VERSION) {
                self.warn_kept(&name, "its format is not known to this version");
                return Ok(Vec::new());
            }
            if is_copy(&other, &self.options.cluster_id) && self.options.sets_restored_apart {
                self.warn_kept(&name, "it was restored from a backup, and can be deleted");
                // The journal that our copies are from no longer exists, and entries of a restored journal must not be
                // continued.
                self.mark_adopted(&name, &[]);
                return Ok(Vec::new());
            }
            let mut content = Content::read(&data);
            // Dropped entries are never finished, and the next write of this journal leaves them out.
            for key in content.drop_keys(drop_requests(&other).unwrap_or_default()) {
                if self.copied.remove(&key).is_some() {
                    self.journal.remove(&key);
                }
            }
            let Content { entries, unreadable, restored } = content;
            if !unreadable.is_empty() || !restored.is_empty() {
                self.warn_kept(&name, "it has lines that cannot be read or were restored; see `journal list`");
            }
            let (wanted, rest): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|entry| mine(OtherJournal::of(&other), entry));
            self.mark_adopted(&name, &wanted);
            let is_marked = other.annotations().get(HOLDER) == Some(&self.options.holder);
            // Its holder may have written it since it was read.
            if !is_marked && !abandoned(OtherJournal::of(&other)) {
                self.remove_copies(&name);
                return Ok(Vec::new());
            }
            // Copy only entries that no other process can change any more.
            if is_marked {
                self.copy(&name, &wanted).await?;
            }
            let (copied, left): (Vec<Entry>, Vec<Entry>) =
                wanted.into_iter().partition(|entry| self.copied.contains_key(&entry.key));
            let is_empty = rest.is_empty() && left.is_empty() && unreadable.is_empty() && restored.is_empty();
            let is_done = copied.is_empty() && (is_marked || left.is_empty());
            if !is_done {
                match self.write(&other, write(rest.iter().chain(&left), &unreadable, &restored)).await {
                    Ok(stored) => {
                        let (journal, entries) = (&name, copied.len());
                        tracing::info!(journal, entries, "an abandoned journal is fenced, and entries are moved");
                        other = stored;
                        continue;
                    }
                    Err(CallError::Conflict | CallError::NotFound) => {}
                    Err(error) if !error.is_transient() => return Err(error),
                    Err(_) => sleep(PAUSE).await,
                }
            } else if !is_empty || self.delete(&other).await {
                return Ok(left);
            }
            match self.read(&name).await? {
                Some(stored) => other = stored,
                None => {
                    self.mark_adopted(&name, &[]);
                    return Ok(Vec::new());
                }
            }
        }
        Err(CallError::Conflict)
    }

    /// Logs once why another journal stays, although no process writes it.
    fn warn_kept(&mut self, journal: &str, reason: &str) {
        if self.warned.insert(journal.to_owned()) {
            tracing::warn!(journal, "an abandoned journal stays: {reason}");
        }
    }

    /// Stores the entries in our journal, as far as they fit.
    async fn copy(&mut self, source: &str, wanted: &[Entry]) -> Result<(), CallError> {
        let new = wanted.iter().filter(|entry| !self.copied.contains_key(&entry.key));
        let mut recording = Vec::new();
        for entry in new.cloned() {
            match self.journal.adopt(entry.clone()) {
                Ok(stored) => recording.push(async { (entry, stored.await) }),
                Err(JournalError::Full { .. }) => {}
                Err(error) => return Err(CallError::Other(error.to_string())),
            }
        }
        let mut failed = None;
        for (entry, stored) in join_all(recording).await {
            match stored {
                Ok(()) => drop(self.copied.insert(entry.key.clone(), (entry, source.to_owned()))),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), |error| Err(CallError::Other(error.to_string())))
    }

    /// Marks entries that are no longer in the other journal as adopted.
    fn mark_adopted(&mut self, source: &str, there: &[Entry]) {
        let gone = |key: &String, (_, from): &mut (Entry, String)| {
            from == source && there.iter().all(|entry| entry.key != *key)
        };
        for (key, (entry, _)) in self.copied.extract_if(.., gone) {
            self.adopted.insert(key, entry);
        }
    }

    /// Removes our copies of entries whose journal has a holder again.
    fn remove_copies(&mut self, source: &str) {
        for (key, _) in self.copied.extract_if(.., |_, (_, from)| from == source) {
            self.journal.remove(&key);
        }
    }

    async fn read(&self, name: &str) -> Result<Option<JournalObject>, CallError> {
        loop {
            match call(LIMIT, self.api.get(name)).await {
                Ok(other) => return Ok(Some(other)),
                Err(CallError::NotFound) => return Ok(None),
                Err(error) if !error.is_transient() => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Deletes an empty journal. Returns false if it has changed: its former holder's last write may arrive late. If
    /// the deletion is refused or repeatedly fails, the next adoption retries.
    async fn delete(&self, other: &JournalObject) -> bool {
        let preconditions = Preconditions { uid: other.uid(), resource_version: other.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let name = other.name_any();
        for _ in 0..TRIES {
            match call(LIMIT, self.api.delete(&name, &parameters)).await {
                Ok(_) | Err(CallError::NotFound) => return true,
                Err(CallError::Conflict) => return false,
                Err(error) => {
                    tracing::debug!(journal = name, "an empty journal is not deleted: {error}");
                    if !error.is_transient() {
                        return true;
                    }
                }
            }
            sleep(PAUSE).await;
        }
        true
    }

    /// Writes the remaining entries to the other journal, with this process as the holder. This fences the former
    /// holder if it is still alive.
    async fn write(&self, other: &JournalObject, data: BTreeMap<String, String>) -> Result<JournalObject, CallError> {
        let mut metadata = other.metadata.clone();
        metadata.annotations.get_or_insert_default().insert(HOLDER.to_owned(), self.options.holder.clone());
        metadata.managed_fields = None;
        let written = JournalObject::new(self.options.kind, metadata, &data);
        call(LIMIT, self.api.replace(&other.name_any(), &PostParams::default(), &written)).await
    }
}
