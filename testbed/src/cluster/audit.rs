//! What service accounts asked of the API server, as it logged it.

use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use crate::control_plane::State;

/// The API server's audit log.
pub struct AuditLog {
    path: PathBuf,
}

/// One request: of a watch when it started, of anything else when it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Such as `system:serviceaccount:storage:provisioner`.
    pub user: String,
    /// Such as `get`, `list`, `watch`, `create`, `patch`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// Such as `persistentvolumes`; empty if the request was not about a resource.
    pub resource: String,
    /// Such as `status`; mostly empty.
    pub subresource: String,
    /// The namespace; empty for cluster-wide requests.
    pub namespace: String,
    /// The object's name; empty for lists and watches. A create has it only if the client chose it in the path.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The request's path and query.
    pub uri: String,
}

impl AuditLog {
    /// The one of this control plane, which must have been started with one.
    pub fn of(state: &State) -> anyhow::Result<Self> {
        let path = state.audit_log.clone().context("this control plane keeps no audit log")?;
        Ok(Self { path })
    }

    /// The requests of one user, oldest first. Requests whose answers were just received are in it.
    pub fn entries_of(&self, user: &str) -> anyhow::Result<Vec<AuditEntry>> {
        let text =
            std::fs::read_to_string(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let quoted = format!("\"{user}\"");
        let mut entries = Vec::new();
        // A line without its end is still being written. Most lines are about others, and parsing is slow.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains(&quoted)) {
            let event: Event = serde_json::from_str(line).context("the audit log has a line that is no event")?;
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
