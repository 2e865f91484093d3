//! The task that writes a journal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};
use tokio::time::{Instant, sleep_until};

use super::error::TakeOverError;
use super::format::{
    ALIASES, CLUSTER_ID, Content, ENTRIES, HOLDER, JOURNAL_UID, LAYOUT, RESTORED, UNANSWERED, Unreadable, VERSION,
    VERSION_KEY, accept_requests, drop_requests, labels, write,
};
use super::object::{JournalKind, JournalObject};
use super::options::JournalOptions;
use super::state::{Batch, Shared, WriterAction};
use crate::backoff::Random;
use crate::call::{CallError, WriteResponse, call, create_request, invalid_request, replace_request};

/// Time limit of one request.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Number of consecutive conflicts after which an attempt fails.
pub(super) const TRIES: usize = 10;

/// The `Accept` header for a response that contains only the object's metadata.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Writes a journal while it [runs](Self::run).
pub struct Writer {
    store: JournalStore,
    shared: Arc<Shared>,
    still_ours: Box<dyn Fn() -> bool + Send + Sync>,
    random: Random,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("options", &self.store.options).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(
        store: JournalStore,
        shared: Arc<Shared>,
        still_ours: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let random = Random::new(store.options.environment.number("journal"));
        Self { store, shared, still_ours, random }
    }

    /// Runs until the journal is lost or closed; returns its next holder. When the writer is dropped, waiters receive
    /// an error.
    pub async fn run(mut self) -> String {
        let shared = self.shared.clone();
        loop {
            let changed = shared.changed.notified();
            let action = crate::sync::lock(&shared.state).next_action(Instant::now());
            let outcome = match action {
                WriterAction::Wait(due) => {
                    tokio::select! {
                        biased;
                        () = shared.over.cancelled() => return "no process yet".to_owned(),
                        () = changed => {}
                        () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                    }
                    continue;
                }
                WriterAction::Commit(data, mut batch) => (self.store(data, &mut batch).await, batch, true),
                WriterAction::Check(mut batch) => (self.check(&mut batch).await, batch, false),
            };
            let mut state = crate::sync::lock(&shared.state);
            match outcome {
                (Ok(()), batch, true) => state.committed(batch),
                (Ok(()), batch, false) => state.checked(batch),
                (Err(WriteError::Failed(error)), batch, _) => {
                    tracing::warn!(journal = self.store.options.name, "the journal cannot be written: {error}");
                    state.failed(batch, error, self.random.next(), Instant::now());
                }
                (Err(WriteError::Lost(by)), batch, _) => {
                    tracing::warn!(journal = self.store.options.name, by, "the journal was taken over");
                    state.lost(batch, &by);
                    shared.over.cancel();
                    return by;
                }
            }
        }
    }

    /// Stores the data if this process still holds the journal.
    async fn store(&mut self, mut data: BTreeMap<String, String>, batch: &mut Batch) -> Result<(), WriteError> {
        for _ in 0..TRIES {
            let conflict = match self.store.put(&data).await {
                Ok(()) => return Ok(()),
                Err(error @ (CallError::Conflict | CallError::AlreadyExists | CallError::NotFound)) => error,
                Err(error) => return Err(error.into()),
            };
            // The object was changed by an earlier write of this process, whose response was lost, or by a user.
            match self.check_holder(batch).await {
                Ok(()) => data = crate::sync::lock(&self.shared.state).data(),
                Err(WriteError::Failed(CallError::NotFound)) if (self.still_ours)() => {
                    tracing::warn!(journal = self.store.options.name, "the journal was deleted; writing it again");
                    (self.store.uid, self.store.version) = (None, None);
                }
                Err(WriteError::Failed(CallError::NotFound)) => {
                    return Err(WriteError::Lost("no process: it was deleted".into()));
                }
                Err(trouble) => return Err(trouble),
            }
            tracing::debug!(journal = self.store.options.name, "written again after: {conflict}");
        }
        Err(CallError::Conflict.into())
    }

    async fn check(&mut self, batch: &mut Batch) -> Result<(), WriteError> {
        match self.check_holder(batch).await {
            Err(WriteError::Failed(CallError::NotFound)) => {
                let data = crate::sync::lock(&self.shared.state).data();
                self.store(data, batch).await
            }
            other => other,
        }
    }

    /// Checks whether this process is the holder, and drops or accepts entries at an administrator's request.
    async fn check_holder(&mut self, batch: &mut Batch) -> Result<(), WriteError> {
        let Requests { drop, accept } = self.store.check_holder().await?;
        if let Some(keys) = drop {
            crate::sync::lock(&self.shared.state).drop_entries(keys, batch);
            self.shared.dropped.notify_one();
        }
        if let Some(keys) = accept {
            crate::sync::lock(&self.shared.state).accept(&keys, batch);
            self.shared.accepted.notify_one();
        }
        Ok(())
    }
}

/// The object, and its version after the last request of this process.
pub(super) struct JournalStore {
    client: Client,
    options: JournalOptions,
    uid: Option<String>,
    version: Option<String>,
    /// Number of writes without a response. Each may still take effect, unless the object's version has changed since.
    unanswered: u32,
}

/// The keys of the entries to drop, and of the restored entries to finish, as an administrator requested.
struct Requests {
    drop: Option<Vec<String>>,
    accept: Option<Vec<String>>,
}

pub(super) enum WriteError {
    Failed(CallError),
    Lost(String),
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Takes over the journal. Also returns the keys that an administrator has dropped, which the content no longer
/// includes.
pub(super) async fn take_over(
    client: Client,
    options: JournalOptions,
) -> Result<(JournalStore, Content, Vec<String>), TakeOverError> {
    let mut store = JournalStore { client, options, uid: None, version: None, unanswered: 0 };
    for _ in 0..TRIES {
        let found = match store.read().await {
            Ok(found) => Some(found),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let data = found.as_ref().map(JournalObject::data).unwrap_or_default();
        match data.get(VERSION_KEY).map(String::as_str) {
            None | Some(VERSION) => {}
            Some(other) => return Err(TakeOverError::Version(other.to_owned())),
        }
        let mut content = match &found {
            Some(found) if store.options.sets_restored_apart => Content::of(found, &store.options.cluster_id),
            _ => Content::read(&data),
        };
        let dropped = content.drop_keys(found.as_ref().and_then(drop_requests).unwrap_or_default());
        let accepted = found.as_ref().and_then(accept_requests).unwrap_or_default();
        content.accept(&accepted);
        store.uid = found.as_ref().and_then(|found| found.uid());
        store.version = found.and_then(|found| found.resource_version());
        match store.put(&write(content.entries.iter(), &content.unreadable, &content.restored)).await {
            Ok(()) => {
                if !content.restored.is_empty() {
                    let (journal, entries) = (&store.options.name, content.restored.len());
                    tracing::warn!(
                        journal,
                        entries,
                        "the journal was restored from a backup; its attempts are not continued"
                    );
                }
                for Unreadable { line, .. } in &content.unreadable {
                    tracing::warn!(journal = store.options.name, line, "a line of the journal is unreadable");
                }
                for key in &dropped {
                    tracing::warn!(
                        journal = store.options.name,
                        key,
                        "an entry is dropped, as an administrator requested"
                    );
                }
                return Ok((store, content, dropped));
            }
            Err(CallError::Conflict | CallError::AlreadyExists | CallError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(CallError::Conflict.into())
}

impl JournalStore {
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Checks whether this process is the holder, and reads the version. Returns an administrator's requests, if any.
    async fn check_holder(&mut self) -> Result<Requests, WriteError> {
        if self.options.kind == JournalKind::Memory {
            return Ok(Requests { drop: None, accept: None });
        }
        let request = kube::core::Request::new(self.collection());
        let request = request.get_metadata(&self.options.name, &GetParams::default()).map_err(invalid_request)?;
        let found: PartialObjectMeta = call(LIMIT, self.client.request(request)).await?;
        let holder = found.annotations().get(HOLDER).cloned();
        if holder.as_deref() != Some(&*self.options.holder) {
            return Err(WriteError::Lost(holder.unwrap_or_else(|| "a process without a name".to_owned())));
        }
        let requests = Requests { drop: drop_requests(&found), accept: accept_requests(&found) };
        self.uid = found.metadata.uid;
        self.version = found.metadata.resource_version;
        Ok(requests)
    }

    fn collection(&self) -> String {
        JournalObject::url_path(&self.options.kind, Some(&self.options.namespace))
    }

    async fn read(&self) -> Result<JournalObject, CallError> {
        if self.options.kind == JournalKind::Memory {
            return Err(CallError::NotFound);
        }
        let request = kube::core::Request::new(self.collection());
        let request = request.get(&self.options.name, &GetParams::default()).map_err(invalid_request)?;
        call(LIMIT, self.client.request(request)).await
    }

    /// Replaces the known version, or creates the object if there was none.
    async fn put(&mut self, data: &BTreeMap<String, String>) -> Result<(), CallError> {
        // Entries must always be stored with the uid that distinguishes the journal from a copy, and a new object has
        // none yet.
        if self.version.is_none() && (data.contains_key(ENTRIES) || data.contains_key(RESTORED)) {
            self.send(&BTreeMap::from([(VERSION_KEY.to_owned(), VERSION.to_owned())])).await?;
        }
        self.send(data).await
    }

    async fn send(&mut self, data: &BTreeMap<String, String>) -> Result<(), CallError> {
        let JournalOptions { kind, namespace, name, group, aliases, layout, holder, cluster_id, .. } = &self.options;
        if *kind == JournalKind::Memory {
            return Ok(());
        }
        let mut annotations =
            BTreeMap::from([(HOLDER.to_owned(), holder.clone()), (LAYOUT.to_owned(), layout.clone())]);
        annotations.extend(self.uid.clone().map(|uid| (JOURNAL_UID.to_owned(), uid)));
        if self.unanswered > 0 {
            annotations.insert(UNANSWERED.to_owned(), self.unanswered.to_string());
        }
        if !aliases.is_empty() {
            annotations.insert(ALIASES.to_owned(), aliases.join(","));
        }
        if !cluster_id.is_empty() {
            annotations.insert(CLUSTER_ID.to_owned(), cluster_id.clone());
        }
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: self.uid.clone(),
            resource_version: self.version.clone(),
            labels: Some(labels(group)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let body = serde_json::to_vec(&JournalObject::new(*kind, metadata, data)).map_err(invalid_request)?;
        let collection = self.collection();
        let mut request = match self.version {
            Some(_) => replace_request(&collection, name, body)?,
            None => create_request(&collection, body)?,
        };
        request.headers_mut().insert(ACCEPT, METADATA_ONLY);
        let answer = call(LIMIT, self.client.request(request)).await;
        if answer.as_ref().is_err_and(CallError::is_transient) {
            self.unanswered += 1;
        }
        let WriteResponse { metadata } = answer?;
        (self.uid, self.version) = (metadata.uid, metadata.resource_version);
        Ok(())
    }
}
