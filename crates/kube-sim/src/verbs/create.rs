//! The verb `create`.

use std::sync::Arc;

use serde_json::Value;

use super::{Answer, credit, custom, refuse, take_owners, validate_new, view};
use crate::ownership::{Credit, ServerSet};
use crate::request::{Request, Verb};
use crate::resource::Resource;
use crate::state::State;
use crate::status::Status;
use crate::store::{Ownership, Stored};
use crate::{defaults, object};

pub(super) fn create(state: &mut State, request: &mut Request) -> Result<Answer, Status> {
    let object = request.take_object()?;
    create_object(state, request, object)
}

/// Creates `object`, which is in the request's version. Also used by updates and applies that create.
pub(super) fn create_object(state: &mut State, request: &Request, object: Value) -> Result<Answer, Status> {
    let resource = &request.resource;
    let view = view(state, request);
    let mut object = view.to_stored(object);
    // Only an apply has computed the owners. The manager of a create owns all fields that it sends.
    let owners = take_owners(&mut object).filter(|_| request.verb == Verb::Patch);
    set_namespace(resource, &request.namespace, &mut object)?;
    let resource_version_given = !matches!(object::resource_version(&object), "" | "0");
    set_system_fields(state, resource, &mut object);
    let now = state.clock.seconds();
    let left_out = ServerSet::unchanged_by_client(resource, None, &object);
    defaults::on_create(resource, &mut object, &*state, &now)?;
    custom::prepare(state, request, None, &mut object)?;
    refuse(state, resource, object::name(&object), validate_new(state, resource, &object))?;
    if resource_version_given {
        return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let name = object::name(&object);
    if let Some(existing) = state.find(resource, &request.namespace, name) {
        return Err(taken(resource, name, existing, &object));
    }
    let credit = match owners {
        Some(owners) => Credit::Known(owners.to_string().into()),
        None => credit(state, request, left_out.changed_since(resource, None, &object)),
    };
    if request.options.dry_run {
        let ownership = Ownership::of_new(credit);
        let stored = Stored::new(&state.storage(resource.storage).resource, &object, 0, ownership);
        let mut shown = view.shown(&Arc::new(stored));
        object::remove_meta(&mut shown, "resourceVersion");
        return Ok(Answer::value(201, &shown));
    }
    let created = state.create(resource.storage, object, credit);
    custom::after_write(state, resource, &created);
    Ok(Answer::Object { code: 201, view, object: created })
}

/// `EnsureObjectNamespaceMatchesRequestNamespace` of apiserver's `registry/rest/meta.go`.
pub(super) fn set_namespace(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Status> {
    match object::namespace(object) {
        "" if resource.namespaced => object::set_meta(object, "namespace", namespace),
        _ if !resource.namespaced => object::remove_meta(object, "namespace"),
        same if same == namespace => {}
        _ => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Sets the fields that clients cannot set: `WipeObjectMetaSystemFields`, `FillObjectMetaSystemFields` and the
/// generated name.
fn set_system_fields(state: &mut State, resource: &Resource, object: &mut Value) {
    let metadata = object::metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), state.random.uid().into());
    metadata.insert("creationTimestamp".to_owned(), state.clock.seconds().into());
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let prefix = text("generateName").to_owned();
    if !prefix.is_empty() && text("name").is_empty() {
        let name = generate_name(state, resource, object::namespace(object), &prefix);
        object::set_meta(object, "name", name);
    }
}

/// `storage/names`: at most 63 bytes, and up to eight tries to find a free one.
fn generate_name(state: &mut State, resource: &Resource, namespace: &str, prefix: &str) -> String {
    const TRIES: usize = 8;
    let end = prefix.floor_char_boundary(58);
    let mut name = String::new();
    for _ in 0..TRIES {
        name = format!("{}{}", &prefix[..end], state.random.name_suffix());
        if state.find(resource, namespace, &name).is_none() {
            break;
        }
    }
    name
}

fn taken(resource: &Resource, name: &str, existing: &Stored, object: &Value) -> Status {
    let mut status = Status::already_exists(resource, name);
    if object::meta(object, "generateName").and_then(Value::as_str).is_some_and(|prefix| !prefix.is_empty()) {
        status.message.push_str(", the server was not able to generate a unique name for the object");
        status = status.retry_after(1);
    }
    if existing.is_deleting() {
        status.message.insert_str(0, "object is being deleted: ");
    }
    status
}
