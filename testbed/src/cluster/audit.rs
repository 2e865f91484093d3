//! Requests of service accounts, from the API server's audit log.

use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use crate::control_plane::State;

/// The API server's audit log.
pub struct AuditLog {
    path: PathBuf,
}

/// One request. A watch is logged at its start, every other request at its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The user, such as `system:serviceaccount:storage:provisioner`.
    pub user: String,
    /// The verb, such as `get`, `list`, `watch`, `create`, or `patch`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, such as `persistentvolumes`; empty if the request was not for a resource.
    pub resource: String,
    /// The subresource, such as `status`; usually empty.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped requests.
    pub namespace: String,
    /// The object's name; empty for lists and watches. A create request has it only if the client put it in the path.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
    /// The request's path and query.
    pub uri: String,
}

impl AuditLog {
    /// The audit log of this control plane, which must have been started with one.
    pub fn of(state: &State) -> anyhow::Result<Self> {
        let path = state.audit_log.clone().context("this control plane keeps no audit log")?;
        Ok(Self { path })
    }

    /// The requests of one user, oldest first, including those whose responses have just been received.
    pub fn entries_of(&self, user: &str) -> anyhow::Result<Vec<AuditEntry>> {
        let text =
            std::fs::read_to_string(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let quoted = format!("\"{user}\"");
        let mut entries = Vec::new();
        // A line without an end is still being written. Skip other users' lines first, because parsing is slow.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains(&quoted)) {
            let event: Event = serde_json::from_str(line).context("the audit log has a line that is not an event")?;
            if event.user.username == user {
                entries.push(event.into());
            }
        }
        Ok(entries)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    user: User,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    object_ref: Reference,
    #[serde(default)]
    response_status: Response,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    code: u16,
}

impl From<Event> for AuditEntry {
    fn from(event: Event) -> Self {
        let Reference { api_group, resource, subresource, namespace, name } = event.object_ref;
        Self {
            user: event.user.username,
            verb: event.verb,
            group: api_group,
            resource,
            subresource,
            namespace,
            name,
            code: event.response_status.code,
            uri: event.request_uri,
        }
    }
}
