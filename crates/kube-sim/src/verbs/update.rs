//! The verbs `update` and `patch`, and their common write.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, create, credit, custom, existing, refuse, take_owners, view};
use crate::ownership::{Credit, ServerSet};
use crate::patch::{self, Managers, PatchKind, PatchOptions};
use crate::request::{Content, Request, Subresource};
use crate::resource::Special;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::{Ownership, Stored};
use crate::view::View;
use crate::{defaults, object, validate};

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
    let value = before.parsed();
    write(state, request, view, Current { state: &before, value: &value }, object, false)
}

const OWNERS: &[u8] = b"managedFields";

pub(super) fn patch(state: &mut State, request: &mut Request) -> Result<Answer, Status> {
    let Content::Patch(kind, patch) = std::mem::take(&mut request.content) else {
        return Err(Status::bad_request("the request has no patch"));
    };
    let resource = Arc::clone(&request.resource);
    let now = state.clock.seconds();
    let manager = Some(request.options.field_manager.as_str()).filter(|manager| !manager.is_empty());
    let part = request.subresource.map(Subresource::as_str);
    let options = PatchOptions {
        field_manager: manager,
        force: request.options.force == Some(true),
        field_validation: request.options.field_validation,
        subresource: part,
        now: &now,
    };
    let view = View::new(&resource, &state.storage(resource.storage).resource, false, false);
    let before = match existing(state, request) {
        Ok(before) => before,
        Err(_) if kind == PatchKind::Apply && request.subresource.is_none() => {
            let mut object = patch::apply_patch(kind, &resource, None, &patch, &options)?.object;
            check_name(request, &object)?;
            object::remove_meta(&mut object, "resourceVersion");
            return create::create_object(state, request, object);
        }
        Err(refused) => return Err(refused),
    };
    let old = before.parsed();
    let mut current = view.value(Cow::Borrowed(&old));
    // A patch of the owners needs them in the object.
    if kind == PatchKind::Apply || patch.windows(OWNERS.len()).any(|text| text == OWNERS) {
        let owners = before.managed_fields();
        if let Ok(owners) = serde_json::from_str::<Value>(&owners) {
            object::set_meta(current.to_mut(), "managedFields", owners);
        }
    }
    let patched = patch::apply_patch(kind, &resource, Some(&current), &patch, &options)?;
    request.warnings.extend(patched.warnings);
    check_name(request, &patched.object)?;
    let object = view.to_stored(patched.object);
    let view = self::view(state, request);
    write(state, request, view, Current { state: &before, value: &old }, object, kind == PatchKind::Apply)
}

/// The state to replace, with its parsed value.
struct Current<'a> {
    state: &'a Arc<Stored>,
    value: &'a Value,
}

/// Validates `object`, and replaces the current state with it.
fn write(
    state: &mut State,
    request: &Request,
    view: View,
    Current { state: before, value: old }: Current<'_>,
    mut object: Value,
    is_apply: bool,
) -> Result<Answer, Status> {
    let resource = &request.resource;
    check_version(request, before, &mut object)?;
    create::set_namespace(resource, &request.namespace, &mut object)?;
    let now = state.clock.seconds();
    let part = request.subresource.map(Subresource::as_str);
    let owners = take_owners(&mut object);
    let owners = match owners {
        Some(owners) if is_apply => Some(owners.to_string().into()),
        Some(owners) => sent_owners(request, before, (old, &object), &owners, &now),
        None => None,
    };
    let unchanged_by_client = ServerSet::unchanged_by_client(resource, Some(old), &object);
    defaults::on_update(resource, old, &mut object, part, &*state, &now);
    custom::prepare(state, request, Some(old), &mut object)?;
    let mut causes = validate::on_update(resource, old, &object, part);
    causes.extend(custom::validate(state, resource, &object));
    refuse(state, resource, &request.name, causes)?;
    defaults::admit_update(resource, old, &object, part, &*state)?;
    let credit = match owners {
        Some(owners) => Credit::Known(owners),
        None => credit(state, request, unchanged_by_client.changed_since(resource, Some(old), &object)),
    };
    let finished = is_finished(request, old, &object);
    if finished || request.options.dry_run {
        let stored = &state.storage(resource.storage).resource;
        let ownership = Ownership::after(before, credit);
        let answer = Stored::new(stored, &object, before.resource_version(), ownership);
        if finished && !request.options.dry_run {
            super::delete::remove(state, resource, before);
        }
        return Ok(Answer::Object { code: 200, view, object: Arc::new(answer) });
    }
    let written = state.update(resource.storage, before, object, credit);
    custom::after_write(state, resource, &written);
    Ok(Answer::Object { code: 200, view, object: written })
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
        _ => Ok(()),
    }
}

/// Returns the owners if a write sends changed `metadata.managedFields`. `None` if they follow from the changed fields.
fn sent_owners(
    request: &Request,
    before: &Arc<Stored>,
    (old, new): (&Value, &Value),
    sent: &Value,
    now: &str,
) -> Option<Arc<str>> {
    // Clients cannot send owners to a subresource.
    if request.subresource.is_some() {
        return None;
    }
    // `isResetManagedFields`
    if *sent == json!([]) || *sent == json!([{}]) {
        return Some(Arc::default());
    }
    let sent = Managers::read(sent);
    if sent == Managers::from_json(&before.managed_fields()) {
        return None;
    }
    let options = PatchOptions { field_manager: Some(request.manager()), now, ..PatchOptions::default() };
    Some(sent.after_change(&request.resource, old, new, &options).to_json().into())
}

/// Checks that a write's resourceVersion, if it has one, is the newest.
fn check_version(request: &Request, before: &Stored, object: &mut Value) -> Result<(), Status> {
    let resource = &request.resource;
    match object::resource_version(object) {
        "" | "0" if resource.unconditional_update => {
            object::set_meta(object, "resourceVersion", before.resource_version().to_string());
            Ok(())
        }
        "" | "0" => {
            let field = "metadata.resourceVersion";
            let cause = Cause {
                message: "Invalid value: 0: must be specified for an update".to_owned(),
                ..Cause::invalid(field, &Value::Null, "")
            };
            // The server names the resource instead of the kind here.
            Err(Status::invalid_kind(&resource.group, &resource.plural, &request.name, vec![cause]))
        }
        version => match version.parse::<u64>() {
            Ok(version) if version == before.resource_version() => Ok(()),
            Ok(_) => Err(Status::modified(resource, &request.name)),
            Err(_) => Err(Status::new(500, "", format!("strconv.ParseUint: parsing {version:?}: invalid syntax"))),
        },
    }
}

/// Returns the refusal of an update with another UID, with the storage's text.
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

/// `ShouldDeleteDuringUpdate`: whether a terminating object has lost its last finalizer.
fn is_finished(request: &Request, old: &Value, object: &Value) -> bool {
    let pending = object::meta(old, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) != 0;
    let held = request.resource.special == Special::Namespace
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    object::finalizers(object).next().is_none() && object::deletion_timestamp(old).is_some() && !pending && !held
}
