//! The contents of journals, for administrators, and the removal of empty ones.

use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::format::{
    ALIASES, COMPONENT, Content, Entry, HOLDER, INSTANCE, LAYOUT, VERSION, VERSION_KEY, drop_requests,
};
use super::object::{JournalKind, JournalObject};
use super::write::LIMIT;
use crate::call::{CallError, call};
use crate::name::label_value;

/// One journal as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The object's name.
    pub name: String,
    /// The object's resource version.
    pub version: String,
    /// The name shared by all journals of the group, as in the label.
    pub group: String,
    /// Other names of the controller.
    pub aliases: Vec<String>,
    /// The distribution of keys over the journals of the group.
    pub layout: String,
    /// The current or last writer.
    pub holder: String,
    /// Attempts that have begun and are not known to have ended.
    pub entries: Vec<Entry>,
    /// Entries that were restored with the object. No process acts on them unless an administrator accepts them.
    pub restored: Vec<Entry>,
    /// Lines that cannot be read.
    pub unreadable: Vec<String>,
    /// The keys that an administrator has asked to drop and that still exist.
    pub dropping: Vec<String>,
}

/// Lists the journals in a namespace, of all groups or of one.
///
/// # Errors
/// Fails if the API server does not respond as expected.
pub async fn list(
    client: &Client,
    kind: JournalKind,
    namespace: &str,
    group: Option<&str>,
) -> Result<Vec<Listing>, CallError> {
    let api: Api<JournalObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let parameters = ListParams::default().labels(&selector(group));
    let found = call(LIMIT, api.list(&parameters)).await?;
    Ok(found.items.iter().map(Listing::read).collect())
}

/// Returns the label selector of journals, of all groups or of one.
pub fn selector(group: Option<&str>) -> String {
    let (component, journal) = COMPONENT;
    let of_group = group.map(|group| format!(",{INSTANCE}={}", label_value(group))).unwrap_or_default();
    format!("{component}={journal}{of_group}")
}

impl Listing {
    /// Returns true if the journal contains nothing that might have to be finished.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.restored.is_empty() && self.unreadable.is_empty()
    }

    /// Reads the contents of a journal.
    pub fn read(journal: &JournalObject) -> Self {
        let annotation = |name: &str| journal.annotations().get(name).cloned().unwrap_or_default();
        let data = journal.data();
        let content = match data.get(VERSION_KEY).map(String::as_str) {
            // The cluster does not matter here: a copy has another uid.
            None | Some(VERSION) => Content::of(journal, ""),
            Some(_) => Content::default(),
        };
        let mut unreadable: Vec<String> = content.unreadable.into_iter().map(|unreadable| unreadable.line).collect();
        let mut restored = Vec::new();
        for line in content.restored {
            match line.entry() {
                Some(entry) => restored.push(entry),
                None => unreadable.push(line.line),
            }
        }
        unreadable.extend(
            data.get(VERSION_KEY)
                .filter(|version| *version != VERSION)
                .map(|version| format!("everything: its format {version:?} is not known to this version")),
        );
        Self {
            name: journal.name_any(),
            version: journal.resource_version().unwrap_or_default(),
            group: journal.labels().get(INSTANCE).cloned().unwrap_or_default(),
            aliases: annotation(ALIASES).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            layout: annotation(LAYOUT),
            holder: annotation(HOLDER),
            entries: content.entries,
            restored,
            unreadable,
            dropping: drop_requests(journal).unwrap_or_default(),
        }
    }
}

/// Deletes a journal; returns true if it is deleted. A journal that is not empty, or that was written since it was
/// listed, stays. If its holder is still alive after all, it writes the journal again.
///
/// Use it for a part that no longer exists, such as a node. Kubernetes would delete the journal if it named its node as
/// its owner, but too early: a node that was deleted and registers again has another uid and the same disk, and has to
/// finish the entries of its journal.
///
/// # Errors
/// Fails if the API server does not respond as expected.
pub async fn remove_empty(
    client: &Client,
    kind: JournalKind,
    namespace: &str,
    listing: &Listing,
) -> Result<bool, CallError> {
    if !listing.is_empty() {
        return Ok(false);
    }
    let preconditions = Preconditions { uid: None, resource_version: Some(listing.version.clone()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let api: Api<JournalObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    match call(LIMIT, api.delete(&listing.name, &parameters)).await {
        Ok(_) => Ok(true),
        Err(CallError::Conflict | CallError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}
