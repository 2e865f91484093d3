//! Requests that the API server refuses, and their number per process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use kube_sim::{Content, Request, Resource, Status, Verb};
use serde_json::Value;

/// A period in which the API server permanently refuses some requests of the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The plural of the kind.
    pub kind: &'static str,
    /// The refused requests: `true` for creations, `false` for changes and deletions.
    pub creates: bool,
    /// The reason.
    pub reason: Reason,
    /// Beginning and end, since the start of the run.
    pub time: Range<Duration>,
}

/// The reason for which the API server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The account lacks the permission.
    Permission,
    /// A ResourceQuota is used up, or a policy denies it.
    Admission,
    /// The namespace is being deleted.
    Terminating,
    /// The namespace does not exist.
    NoNamespace,
}

impl Reason {
    /// Returns a reason by a number below 4. Only creations in a namespace are refused because of the namespace.
    pub(crate) fn of(number: u32, creates_in_namespace: bool) -> Self {
        match number {
            0 if creates_in_namespace => Self::Terminating,
            1 if creates_in_namespace => Self::NoNamespace,
            2 => Self::Permission,
            _ => Self::Admission,
        }
    }
}

/// Maximum number of refusals per object and minute. A process whose pauses grow receives fewer, even if it renews a
/// Lease of 3 s every second.
const MANY: u32 = 100;

/// Returns the answer to a request that is refused now.
pub(crate) fn answer(refusals: &[Refusal], request: &Request, now: Duration) -> Option<Status> {
    let is_hit = |refusal: &&Refusal| {
        refusal.kind == request.resource.plural
            && !request.verb.is_read()
            && refusal.creates == (request.verb == Verb::Create)
            && refusal.time.contains(&now)
    };
    let (resource, name, namespace) = (&request.resource, &*request.name, &request.namespace);
    Some(match refusals.iter().find(is_hit)?.reason {
        Reason::Permission => Status::forbidden(resource, name, "the account may not do that"),
        Reason::Admission => Status::forbidden(resource, name, "exceeded quota"),
        Reason::Terminating => {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            Status::forbidden(resource, name, &why)
        }
        Reason::NoNamespace => Status::not_found(&Resource::builtin("", "namespaces"), namespace),
    })
}

/// Returns the object's name. A request that creates an object has it only in the body.
fn object_name(request: &Request) -> String {
    let body = match &request.content {
        Content::Json(body) => serde_json::from_slice(body).ok(),
        Content::Value(body) => Some(body.clone()),
        _ => None,
    };
    let in_body = body.as_ref().and_then(|body: &Value| body["metadata"]["name"].as_str());
    in_body.unwrap_or(&request.name).to_owned()
}

/// The number of refusals of one process, by minute, kind of request and object.
#[derive(Default)]
pub(crate) struct Count(BTreeMap<(u64, String), u32>);

impl Count {
    /// Records a refusal. Returns a description of the problem if there were too many.
    pub(crate) fn add(&mut self, process: &str, request: &Request, now: Duration) -> Option<String> {
        // The recorder's own tests cover the pauses of events.
        if request.resource.plural == "events" {
            return None;
        }
        let what = format!("{:?} {} {}", request.verb, request.resource.plural, object_name(request));
        let count = self.0.entry((now.as_secs() / 60, what.clone())).or_default();
        *count += 1;
        (*count > MANY)
            .then(|| format!("{process} has asked for {what} {count} times in a minute, and was refused each time"))
    }
}
