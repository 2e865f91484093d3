//! An administrator's request to drop an entry, or to finish a restored one: an annotation that the holder removes
//! afterwards.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::format::{ACCEPT, COMPONENT, Content, DROP, VERSION, VERSION_KEY, accept_requests, drop_requests};
use super::object::{JournalKind, JournalObject};
use super::write::{LIMIT, TRIES};
use crate::call::{CallError, call};

/// The reason why an entry cannot be dropped or accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// The API server did not respond as expected.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The object is not a journal of this version, or does not contain the entry.
    #[error("{0}")]
    Refused(String),
}

/// Asks the holder of a journal to drop an entry, so that no process finishes it. The holder does so within 10 seconds,
/// or when it takes over the journal.
///
/// # Errors
/// See [`DropError`].
pub async fn request_drop(
    client: &Client,
    kind: JournalKind,
    namespace: &str,
    journal: &str,
    key: &str,
) -> Result<(), DropError> {
    request(client, kind, namespace, journal, key, DROP).await
}

/// Asks the holder of a restored journal to finish an entry as if it had begun it.
///
/// # Errors
/// See [`DropError`].
pub async fn request_accept(
    client: &Client,
    kind: JournalKind,
    namespace: &str,
    journal: &str,
    key: &str,
) -> Result<(), DropError> {
    request(client, kind, namespace, journal, key, ACCEPT).await
}

async fn request(
    client: &Client,
    kind: JournalKind,
    namespace: &str,
    journal: &str,
    key: &str,
    annotation: &str,
) -> Result<(), DropError> {
    let api: Api<JournalObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    for _ in 0..TRIES {
        let found = call(LIMIT, api.get(journal)).await?;
        if found.labels().get(COMPONENT.0).map(String::as_str) != Some(COMPONENT.1) {
            return Err(DropError::Refused(format!("{journal} is not a journal")));
        }
        let data = found.data();
        let version = data.get(VERSION_KEY);
        if let Some(version) = version.filter(|version| *version != VERSION) {
            return Err(DropError::Refused(format!(
                "the format {version:?} of the journal {journal} is not known to this version; use the version that wrote it"
            )));
        }
        let mut content = Content::read(&data);
        if content.drop_keys(vec![key.to_owned()]).is_empty() {
            // It may have ended in the meantime.
            return Err(DropError::Refused(format!("the journal {journal} has no entry {key}")));
        }
        let requested = if annotation == DROP { drop_requests(&found) } else { accept_requests(&found) };
        let mut keys = requested.unwrap_or_default();
        if keys.iter().any(|requested| requested == key) {
            return Ok(());
        }
        keys.push(key.to_owned());
        let patch = Patch::Merge(json!({ "metadata": {
            "uid": found.uid(), "resourceVersion": found.resource_version(), "annotations": { annotation: keys.join(",") },
        }}));
        match call(LIMIT, api.patch_metadata(journal, &PatchParams::default(), &patch)).await {
            Ok(_) => return Ok(()),
            Err(CallError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(CallError::Conflict.into())
}
