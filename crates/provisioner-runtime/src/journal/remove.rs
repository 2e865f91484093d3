//! Removes the journal of a part that is gone, such as that of a node, if it holds nothing.
//!
//! Kubernetes would do it if the journal named its node as its owner, but too early: a node that was deleted and registers
//! again has another uid and the same disk, and has to finish what is in its journal.

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};

use super::list::Listing;
use super::object::{JournalKind, JournalObject};
use super::write::LIMIT;
use crate::call::{CallError, call};

/// Deletes a journal; returns whether it is deleted. One that holds something, or that was written since it was listed, stays.
/// A holder that is alive after all writes it again.
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
