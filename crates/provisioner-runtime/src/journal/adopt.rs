//! Entries of journals that nobody writes any more.

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::text::{Content, VERSION, VERSION_KEY, write};
use super::write::{HOLDER, LAYOUT, labels};
use super::{Entry, Journal, JournalOptions};
use crate::{CallError, call};

/// How long one request may take.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
/// How often somebody else may be faster with one journal.
const TRIES: usize = 10;

/// Another journal of the group.
#[derive(Clone, Copy, Debug)]
pub struct Other<'a> {
    /// The ConfigMap's name.
    pub name: &'a str,
    /// How keys are spread over the journals of its kind.
    pub layout: &'a str,
    /// Changes with every write.
    pub version: &'a str,
}

/// Moves the entries that are `mine` from `abandoned` journals of the group into `journal`, which is being written
/// meanwhile. An entry is in one of the two at any time. Journals that are empty then are deleted.
///
/// Others may do the same at the same time with other keys, or with the same: one of them gets an entry.
///
/// # Errors
/// When the API server does not answer as it should; what was moved until then is lost to the caller and stays in
/// `journal`, so that it comes back with the next take-over.
pub async fn adopt(
    client: &Client,
    options: &JournalOptions,
    journal: &Journal,
    mut abandoned: impl FnMut(Other<'_>) -> bool,
    mine: impl Fn(&Entry) -> bool,
) -> Result<Vec<Entry>, CallError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &options.namespace);
    let selector: Vec<String> = labels(&options.group).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let found = call(LIMIT, api.list(&ListParams::default().labels(&selector.join(",")))).await?;
    let mut adopted = Vec::new();
    for other in found.items.into_iter().filter(|other| other.name_any() != options.name) {
        let layout = other.annotations().get(LAYOUT).map(String::as_str).unwrap_or_default();
        let version = other.resource_version().unwrap_or_default();
        if abandoned(Other { name: &other.name_any(), layout, version: &version }) {
            adopted.extend(Move { api: &api, options, journal, mine: &mine }.from(other).await?);
        }
    }
    Ok(adopted)
}

struct Move<'a, F> {
    api: &'a Api<ConfigMap>,
    options: &'a JournalOptions,
    journal: &'a Journal,
    mine: &'a F,
}

impl<F: Fn(&Entry) -> bool> Move<'_, F> {
    async fn from(&self, mut other: ConfigMap) -> Result<Vec<Entry>, CallError> {
        let name = other.name_any();
        let mut moved: Vec<Entry> = Vec::new();
        for _ in 0..TRIES {
            let data = other.data.clone().unwrap_or_default();
            if data.get(VERSION_KEY).is_some_and(|version| version != VERSION) {
                tracing::warn!(journal = name, "the format of an abandoned journal is not known; it is left alone");
                return Ok(Vec::new());
            }
            let Content { entries, unreadable } = Content::read(&data);
            let (wanted, rest): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| (self.mine)(entry));
            // Somebody else was faster with those that are not there any more.
            for gone in moved.iter().filter(|entry| !wanted.contains(entry)) {
                self.journal.remove(&gone.key);
            }
            if wanted.is_empty() && !(rest.is_empty() && unreadable.is_empty()) {
                return Ok(Vec::new());
            }
            for stored in join_all(wanted.iter().map(|entry| self.journal.record(entry.clone()))).await {
                stored.map_err(|error| CallError::Other(error.to_string()))?;
            }
            moved = wanted;
            let outcome = if rest.is_empty() && unreadable.is_empty() {
                self.delete(&other).await
            } else {
                self.keep(&mut other, write(rest.iter(), &unreadable)).await
            };
            match outcome {
                Ok(()) => {
                    let entries = moved.len();
                    tracing::info!(journal = name, entries, "the entries of an abandoned journal were adopted");
                    return Ok(moved);
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => return Err(error),
            }
            other = match call(LIMIT, self.api.get(&name)).await {
                Ok(other) => other,
                Err(CallError::NotFound) => ConfigMap { data: None, ..other },
                Err(error) => return Err(error),
            };
            if other.data.is_none() {
                moved.iter().for_each(|entry| self.journal.remove(&entry.key));
                return Ok(Vec::new());
            }
        }
        Err(CallError::Conflict)
    }

    async fn delete(&self, other: &ConfigMap) -> Result<(), CallError> {
        let preconditions = Preconditions { uid: other.uid(), resource_version: other.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        call(LIMIT, self.api.delete(&other.name_any(), &parameters)).await.map(drop)
    }

    /// Its former holder, should it live, finds that it is not the holder any more.
    async fn keep(
        &self,
        other: &mut ConfigMap,
        data: std::collections::BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        other.data = Some(data);
        other.annotations_mut().insert(HOLDER.to_owned(), self.options.holder.clone());
        other.metadata.managed_fields = None;
        call(LIMIT, self.api.replace(&other.name_any(), &PostParams::default(), other)).await.map(drop)
    }
}
