//! The steps of a write that concern only CustomResourceDefinitions and custom resources.

use std::sync::Arc;

use serde_json::Value;

use crate::crd::Definition;
use crate::crd::definition::{self, FINALIZER};
use crate::defaults::FieldValidation;
use crate::object::{self, set, text_at};
use crate::ownership::Credit;
use crate::request::{Request, Subresource};
use crate::resource::{Resource, StorageId};
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::Stored;

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Prepares an object for validation: the decoder and strategy of custom resources and their definitions.
pub(crate) fn prepare(state: &State, request: &Request, old: Option<&Value>, object: &mut Value) -> Result<(), Status> {
    let resource = &request.resource;
    if resource.is(GROUP, PLURAL) {
        return definition::prepare(old, object);
    }
    let Some(definition) = state.definition(resource) else { return Ok(()) };
    let unknown = definition.prune(object);
    if request.options.field_validation == FieldValidation::Strict && !unknown.is_empty() {
        let fields: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
        return Err(Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
            resource.kind,
            resource.version,
            resource.kind,
            fields.join(", ")
        )));
    }
    definition.set_defaults(object);
    if request.subresource == Some(Subresource::Status)
        && let Some(old) = old
    {
        let status = object.get("status").cloned();
        object.clone_from(old);
        set(object, "status", status);
        return Ok(());
    }
    if resource.status {
        set(object, "status", old.and_then(|old| old.get("status")).cloned());
    }
    if let Some(old) = old {
        let fields = object.as_object().into_iter().chain(old.as_object()).flat_map(|map| map.keys());
        let mut counted = fields.filter(|field| !matches!(field.as_str(), "metadata" | "apiVersion" | "kind"));
        let changed = counted.any(|field| object.get(field) != old.get(field));
        object::set_meta(object, "generation", object::generation(old) + i64::from(changed));
    }
    Ok(())
}

/// Validates a custom resource or a definition.
pub(crate) fn validate(state: &State, resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.is(GROUP, PLURAL) {
        return definition::validate(object);
    }
    state.definition(resource).map(|definition| definition.validate(object)).unwrap_or_default()
}

/// Registers the resources of a definition that was just written.
pub(crate) fn after_write(state: &mut State, resource: &Resource, written: &Arc<Stored>) {
    if !resource.is(GROUP, PLURAL) || written.is_deleting() {
        return;
    }
    let mut object = written.value();
    let storage = storage_of(state, &object);
    let taken = definition::conflict(&state.registry, &object, storage);
    if taken.is_none() {
        let storage = storage.unwrap_or_else(|| state.next_storage());
        let (resources, definitions) = definition::served(&object, storage);
        register(state, storage, &object, resources, definitions);
    }
    definition::set_status(&mut object, taken.as_deref(), &state.clock.seconds());
    state.update(resource.storage, written, object, Credit::Server);
}

/// Unregisters the resources of a deleted definition, or finishes the deletion of a definition without objects.
pub(crate) fn after_remove(state: &mut State, resource: &Resource, last: &Stored) {
    if resource.is(GROUP, PLURAL) {
        let object = last.value();
        if let Some(storage) = storage_of(state, &object) {
            state.registry.remove(storage);
            state.definitions.retain(|(id, _), _| *id != storage);
            let storage = state.storage_mut(storage);
            storage.closed = true;
            storage.wake();
        }
    } else if resource.custom && state.storage(resource.storage).len() == 0 {
        let definitions = Resource::builtin(GROUP, PLURAL);
        let name = format!("{}.{}", resource.plural, resource.group);
        if let Some(definition) =
            state.find(&definitions, "", &name).filter(|definition| definition.is_deleting()).cloned()
        {
            finish(state, &definitions, &definition);
        }
    }
}

pub(super) fn finish(state: &mut State, definitions: &Resource, definition: &Arc<Stored>) {
    let mut object = definition.value();
    let others: Vec<String> =
        object::finalizers(&object).filter(|name| *name != FINALIZER).map(str::to_owned).collect();
    if others.is_empty() {
        let last = state.remove(definitions.storage, definition);
        after_remove(state, definitions, &last);
    } else {
        object::set_finalizers(&mut object, others);
        state.update(definitions.storage, definition, object, Credit::Server);
    }
}

/// Returns the storage of a definition's objects, if it is registered.
pub(super) fn storage_of(state: &State, definition: &Value) -> Option<StorageId> {
    let (group, plural) = (text_at(definition, &["spec", "group"]), text_at(definition, &["spec", "names", "plural"]));
    state.registry.named(group, plural).filter(|resource| resource.custom).map(|resource| resource.storage)
}

fn register(
    state: &mut State,
    storage: StorageId,
    object: &Value,
    resources: Vec<Resource>,
    definitions: Vec<(String, Definition)>,
) {
    let kept = definition::storage_version(object);
    let resources: Vec<Arc<Resource>> = resources.into_iter().map(Arc::new).collect();
    if storage == state.next_storage() {
        let first = resources.iter().find(|resource| resource.version == kept).or(resources.first());
        let Some(first) = first else { return };
        state.add_storage(Arc::clone(first));
    }
    state.registry.remove(storage);
    state.definitions.retain(|(id, _), _| *id != storage);
    state
        .definitions
        .extend(definitions.into_iter().map(|(version, definition)| ((storage, version), Arc::new(definition))));
    state.registry.add(resources);
}
