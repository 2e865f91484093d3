//! What is in journals, for people, and the end of those that hold nothing.

use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::object::{JournalKind, JournalObject};
use super::text::{
    COMPONENT, Content, Entry, HOLDER, INSTANCE, LAYOUT, Unreadable, VERSION, VERSION_KEY, drop_requests,
};
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
    /// What all journals of its kind share, as it is in the label.
    pub group: String,
    /// How keys are spread over the journals of the group.
    pub layout: String,
    /// Who writes it, or has written it last.
    pub holder: String,
    /// What was begun and is not known to have ended.
    pub entries: Vec<Entry>,
    /// What was restored with the object. Nobody acts on it, unless a person accepts it.
    pub restored: Vec<Entry>,
    /// Lines that cannot be read.
    pub unreadable: Vec<String>,
    /// The keys that a person has asked to drop and that are still there.
    pub dropping: Vec<String>,
}

/// The journals in a namespace, of all groups or of one.
///
/// # Errors
/// When the API server does not answer as it should.
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

/// The label selector of journals, of all groups or of one.
pub fn selector(group: Option<&str>) -> String {
    let (component, journal) = COMPONENT;
    let of_group = group.map(|group| format!(",{INSTANCE}={}", label_value(group))).unwrap_or_default();
    format!("{component}={journal}{of_group}")
}

impl Listing {
    /// Whether there is nothing that anybody might have to finish.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.restored.is_empty() && self.unreadable.is_empty()
    }

    /// What is in a journal.
    pub fn read(journal: &JournalObject) -> Self {
        let annotation = |name: &str| journal.annotations().get(name).cloned().unwrap_or_default();
        let data = journal.data();
        let content = match data.get(VERSION_KEY).map(String::as_str) {
            // Which cluster it is does not matter: a copy has another uid.
            None | Some(VERSION) => Content::of(journal, ""),
            Some(_) => Content::default(),
        };
        let mut unreadable: Vec<String> = content.unreadable.into_iter().map(|unreadable| unreadable.line).collect();
        unreadable.extend(
            data.get(VERSION_KEY)
                .filter(|version| *version != VERSION)
                .map(|version| format!("everything: its format {version:?} is not known to this version")),
        );
        Self {
            name: journal.name_any(),
            version: journal.resource_version().unwrap_or_default(),
            group: journal.labels().get(INSTANCE).cloned().unwrap_or_default(),
            layout: annotation(LAYOUT),
            holder: annotation(HOLDER),
            entries: content.entries,
            restored: content.restored.iter().filter_map(Unreadable::entry).collect(),
            unreadable,
            dropping: drop_requests(journal).unwrap_or_default(),
        }
    }
}

/// Deletes a journal; returns whether it is deleted. One that holds something, or that was written since it was listed, stays.
/// A holder that is alive after all writes it again.
///
/// It is for a part that is gone, such as a node. Kubernetes would do it if the journal named its node as its owner, but too
/// early: a node that was deleted and registers again has another uid and the same disk, and has to finish what is in its
/// journal.
///
/// # Errors
/// When the API server does not answer as it should.
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
