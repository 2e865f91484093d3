//! update and patch, and what both end in.

use std::sync::Arc;

use serde_json::Value;

use super::{Answer, create, existing, refuse, view};
use crate::patch::{self, PatchKind, PatchOptions};
use crate::request::{Content, Request, Subresource};
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::Stored;
use crate::view::View;
use crate::{crd, defaults, object, validate};

pub(super) fn update(state: &mut State, request: &mut Request) -> Result<Answer, Status> {
    let object = request.take_object()?;
    check_name(request, &object)?;
    let resource = Arc::clone(&request.resource);
    let uid = object::uid(&object).to_owned();
    let before = match state.find(&resource, &request.namespace, &request.name) {
        Some(before) => Arc::clone(before),
        None if resource.create_on_update && request.subresource.is_none() => {
            if !uid.is_empty() {
                return Err(wrong_uid(request, &uid, ""));
            }
            return create::create_object(state, request, object);
        }
        None => return Err(Status::not_found(&resource, &request.name)),
    };
    if !uid.is_empty() && uid != before.uid() {
        return Err(wrong_uid(request, &uid, before.uid()));
    }
    let view = view(state, request);
    let object = view.to_stored(object);
    write(state, request, &view, &before, object)
}

pub(super) fn patch(state: &mut State, request: &mut Request) -> Result<Answer, Status> {
    let Content::Patch(kind, patch) = std::mem::take(&mut request.content) else {
        return Err(Status::bad_request("the request has no patch"));
    };
    let resource = Arc::clone(&request.resource);
    let now = state.clock.seconds();
    let manager = Some(request.options.field_manager.as_str()).filter(|manager| !manager.is_empty());
    let part = request.subresource.map(Subresource::as_str);
    let options =
        PatchOptions { field_manager: manager, force: request.options.force, subresource: part, now: &now };
    let view = View::new(&resource, &state.storage(resource.storage).resource, false);
    let before = match existing(state, request) {
        Ok(before) => before,
        Err(_) if kind == PatchKind::Apply && request.subresource.is_none() => {
            let mut object = patch::apply_patch(kind, &resource, None, &patch, &options)?;
            request.decode(&mut object)?;
            check_name(request, &object)?;
            return create::create_object(state, request, object);
        }
        Err(refused) => return Err(refused),
    };
    let current = view.value(&before);
    let mut object = patch::apply_patch(kind, &resource, Some(&current), &patch, &options)?;
    request.decode(&mut object)?;
    check_name(request, &object)?;
    let object = view.to_stored(object);
    write(state, request, &self::view(state, request), &before, object)
}

/// Replaces `before` by `object` if that may be.
fn write(
    state: &mut State,
    request: &Request,
    view: &View,
    before: &Arc<Stored>,
    mut object: Value,
) -> Result<Answer, Status> {
    let resource = &request.resource;
    check_version(request, before, &object)?;
    let old = before.value();
    set_namespace(request, &mut object)?;
    let now = state.clock.seconds();
    let part = request.subresource.map(Subresource::as_str);
    defaults::on_update(resource, &old, &mut object, part, &*state, &now)?;
    object::remove_meta(&mut object, "managedFields");
    crd::prepare(state, request, Some(&old), &mut object)?;
    let mut causes = validate::on_update(resource, &old, &object, part);
    causes.extend(crd::validate(state, resource, &object));
    refuse(resource, &request.name, causes)?;
    if is_finished(request, &old, &object) {
        let answer = Stored::new(&state.storage(resource.storage).resource, &object, before.resource_version());
        if !request.options.dry_run {
            super::delete::remove(state, resource, before);
        }
        return Ok(Answer::object(view, 200, &answer));
    }
    if request.options.dry_run {
        let version = before.resource_version();
        return Ok(Answer::object(view, 200, &Stored::new(&state.storage(resource.storage).resource, &object, version)));
    }
    let written = state.update(resource.storage, before, &object);
    crd::after_write(state, resource, &written);
    Ok(Answer::object(view, 200, &written))
}

/// `checkName` of apiserver's `endpoints/handlers/rest.go`.
fn check_name(request: &Request, object: &Value) -> Result<(), Status> {
    let wanted = &request.name;
    match object::name(object) {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        ))),
        name if name != wanted => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        ))),
        _ => match object::namespace(object) {
            namespace if request.namespace.is_empty() || namespace.is_empty() || namespace == request.namespace => Ok(()),
            namespace => Err(Status::bad_request(format!(
                "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
                request.namespace
            ))),
        },
    }
}

/// An update keeps its object in its namespace.
fn set_namespace(request: &Request, object: &mut Value) -> Result<(), Status> {
    match object::namespace(object) {
        _ if !request.resource.namespaced => object::remove_meta(object, "namespace"),
        "" => object::set_meta(object, "namespace", request.namespace.as_str()),
        namespace if namespace == request.namespace => {}
        _ => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// A write that names a resourceVersion must name the newest.
fn check_version(request: &Request, before: &Stored, object: &Value) -> Result<(), Status> {
    let resource = &request.resource;
    match object::resource_version(object) {
        "" | "0" if resource.unconditional_update => Ok(()),
        "" | "0" => {
            let field = "metadata.resourceVersion";
            let cause = Cause {
                message: "Invalid value: 0x0: must be specified for an update".to_owned(),
                ..Cause::invalid(field, &Value::Null, "")
            };
            // The server names the resource here where it names the kind elsewhere.
            Err(Status::invalid_kind(&resource.group, &resource.plural, &request.name, vec![cause]))
        }
        version if version.parse() == Ok(before.resource_version()) => Ok(()),
        _ => Err(Status::modified(resource, &request.name)),
    }
}

/// The refusal of an update whose UID is not the object's, in the storage's words.
fn wrong_uid(request: &Request, given: &str, actual: &str) -> Status {
    let resource = &request.resource;
    let group = if resource.custom { format!("{}/", resource.group) } else { String::new() };
    let key = crate::store::key(&request.namespace, &request.name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {actual}",
        resource.plural
    );
    Status::conflict(resource, &request.name, &why)
}

/// `ShouldDeleteDuringUpdate`: nothing holds an object any more whose deletion was asked for.
fn is_finished(request: &Request, old: &Value, object: &Value) -> bool {
    let pending = object::meta(old, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) != 0;
    let held = request.resource.is("", "namespaces")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    object::finalizers(object).next().is_none() && object::deletion_timestamp(old).is_some() && !pending && !held
}
