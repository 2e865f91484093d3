//! Handles all requests, received over HTTP or as direct calls, like kube-apiserver's handlers and its generic registry
//! (`pkg/registry/generic/registry/store.go`).

mod create;
mod custom;
mod delete;
mod read;
mod review;
mod update;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::authorize::Authorizer;
use crate::ownership::{Credit, ServerSet};
use crate::request::{Request, Subresource, Verb};
use crate::resource::{Resource, Special, StorageId};
use crate::selection::Selection;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::Stored;
use crate::view::View;
use crate::{object, validate};

/// The answer to a request that is not refused.
pub(crate) enum Answer {
    /// One object, in this view.
    Object { code: u16, view: View, object: Arc<Stored> },
    /// A list, or any other document that is not a stored object.
    Document { code: u16, json: Bytes },
    /// A stream of changes.
    Watch(Box<WatchStart>),
}

/// The parameters of a new watch.
pub(crate) struct WatchStart {
    pub(crate) id: u64,
    pub(crate) storage: StorageId,
    pub(crate) view: View,
    pub(crate) selection: Selection,
    /// Changes after this resourceVersion are delivered.
    pub(crate) after: u64,
    /// The initial objects, delivered as ADDED.
    pub(crate) initial: Vec<Arc<Stored>>,
    /// The minimum resourceVersion of the bookmark after the initial objects, if one is wanted.
    pub(crate) initial_end: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// An error that is delivered instead of events.
    pub(crate) refused: Option<Status>,
}

/// Handles a request.
pub(crate) fn handle(
    state: &mut State,
    authorizer: Option<&dyn Authorizer>,
    request: &mut Request,
) -> Result<Answer, Status> {
    if request.resource.ephemeral {
        return review::create(authorizer, request);
    }
    check_shape(request)?;
    match request.verb {
        Verb::Get => read::get(state, request),
        Verb::List => read::list(state, request),
        Verb::Watch => read::watch(state, request),
        Verb::Create => create::create(state, request),
        Verb::Update => update::update(state, request),
        Verb::Patch => update::patch(state, request),
        Verb::Delete => delete::delete(state, request),
        Verb::DeleteCollection => delete::delete_collection(state, request),
    }
}

impl Answer {
    /// Returns the status code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Object { code, .. } | Self::Document { code, .. } => *code,
            Self::Watch(_) => 200,
        }
    }

    fn value(code: u16, value: &Value) -> Self {
        let json = serde_json::to_vec(value).expect("JSON values can be written to memory");
        Self::Document { code, json: Bytes::from(json) }
    }
}

/// Checks that the resource supports the verb at this path.
fn check_shape(request: &Request) -> Result<(), Status> {
    let resource = &request.resource;
    let on_object = !request.name.is_empty();
    let in_place = match request.verb {
        Verb::List | Verb::Watch => true,
        Verb::Create | Verb::DeleteCollection => !on_object,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => on_object,
    };
    let in_part = match request.subresource {
        None => true,
        Some(Subresource::Status) => matches!(request.verb, Verb::Get | Verb::Update | Verb::Patch),
        Some(Subresource::Finalize) => request.verb == Verb::Update,
    };
    // Only lists and watches of collections can span all namespaces.
    let over_all = resource.namespaced && request.namespace.is_empty();
    let can_span = matches!(request.verb, Verb::List | Verb::Watch) && !on_object;
    // Namespaces cannot be deleted as a collection.
    let refused = request.verb == Verb::DeleteCollection && resource.special == Special::Namespace;
    if in_place && in_part && !refused && (!over_all || can_span) { Ok(()) } else { Err(Status::method_not_allowed()) }
}

/// Returns the view for a request.
fn view(state: &State, request: &Request) -> View {
    let stored = &state.storage(request.resource.storage).resource;
    View::new(&request.resource, stored, request.metadata_only, request.managed_fields)
}

/// Returns the owner of the fields that a request writes.
fn credit(state: &mut State, request: &Request, unowned: ServerSet) -> Credit {
    let writer = state.writer(request.manager(), &request.resource, request.subresource);
    Credit::Writer(writer, state.clock.now().as_second(), unowned)
}

/// Takes `metadata.managedFields` out of a client's object.
fn take_owners(object: &mut Value) -> Option<Value> {
    object::metadata_mut(object).remove("managedFields").filter(Value::is_array)
}

/// Returns the object that a request names.
fn existing(state: &State, request: &Request) -> Result<Arc<Stored>, Status> {
    let found = state.find(&request.resource, &request.namespace, &request.name);
    found.cloned().ok_or_else(|| Status::not_found(&request.resource, &request.name))
}

/// Converts the causes of validation to a refusal, which names the stored kind.
fn refuse(state: &State, resource: &Resource, name: &str, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&state.storage(resource.storage).resource, name, causes))
    }
}

/// Validates a new object.
fn validate_new(state: &State, resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = validate::on_create(resource, object);
    causes.extend(custom::validate(state, resource, object));
    causes
}
