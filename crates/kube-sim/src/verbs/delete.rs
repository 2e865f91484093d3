//! The verbs `delete` and `deletecollection`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, custom, existing, read, view};
use crate::crd::definition;
use crate::ownership::Credit;
use crate::request::{DeleteOptions, Request};
use crate::resource::{Resource, Special};
use crate::state::State;
use crate::status::Status;
use crate::store::{Ownership, Stored};
use crate::{clock, object};

/// The namespaces that admission (NamespaceLifecycle) protects.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn delete(state: &mut State, request: &Request) -> Result<Answer, Status> {
    let before = existing(state, request)?;
    let resource = &request.resource;
    let options = &request.options.delete;
    let deleted = delete_object(state, resource, &before, options, request.options.dry_run)?;
    let code = match deleted {
        Deleted::Pending(_) if options.orphan_dependents == Some(false) => 202,
        _ => 200,
    };
    Ok(match deleted {
        Deleted::Gone(last) if !resource.returns_deleted => Answer::value(code, &success(resource, &last)),
        Deleted::Gone(object) | Deleted::Pending(object) => Answer::Object { code, view: view(state, request), object },
    })
}

pub(super) fn delete_collection(state: &mut State, request: &Request) -> Result<Answer, Status> {
    let page = read::page(state, request, request.options.limit)?;
    for before in &page.items {
        delete_object(state, &request.resource, before, &request.options.delete, request.options.dry_run)?;
    }
    let metadata = json!({"resourceVersion": page.version.to_string()});
    Ok(Answer::list_of(&view(state, request), &metadata, &page.items))
}

/// The result of a delete.
enum Deleted {
    /// A finalizer or a grace period delays the deletion.
    Pending(Arc<Stored>),
    /// The object is deleted. This is its last state.
    Gone(Arc<Stored>),
}

/// Deletes an object, or marks it for deletion if a finalizer or a grace period delays its deletion.
fn delete_object(
    state: &mut State,
    resource: &Resource,
    before: &Arc<Stored>,
    options: &DeleteOptions,
    dry_run: bool,
) -> Result<Deleted, Status> {
    check_preconditions(resource, before, options)?;
    if resource.special == Special::Namespace && IMMORTAL.contains(&before.name()) {
        return Err(Status::forbidden(resource, before.name(), "this namespace may not be deleted"));
    }
    let mut object = Value::clone(&before.parsed());
    let first = !before.is_deleting();
    let is_crd = resource.special == Special::Definition;
    let waits = if resource.special == Special::Namespace {
        if first {
            object::set_meta(&mut object, "deletionTimestamp", state.clock.seconds());
            object["status"]["phase"] = "Terminating".into();
        }
        first || object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    } else if is_crd && first {
        definition::mark_terminating(&mut object, &state.clock.seconds());
        true
    } else {
        let graceful = resource.special == Special::Pod && !kill_at_once(state, &mut object, options);
        if !resource.plural.eq("events") {
            set_dependents_finalizers(&mut object, options);
        }
        let held = object::finalizers(&object).next().is_some();
        if held && !graceful {
            mark(state, &mut object);
        }
        graceful || held
    };
    if dry_run {
        let version = before.resource_version();
        let stored = &state.storage(resource.storage).resource;
        let object = Arc::new(Stored::new(stored, &object, version, Ownership::same(before)));
        return Ok(if waits { Deleted::Pending(object) } else { Deleted::Gone(object) });
    }
    if !waits {
        return Ok(Deleted::Gone(remove(state, resource, before)));
    }
    let marked = state.update(resource.storage, before, object, Credit::Server);
    if is_crd {
        clean_up(state, resource, &marked);
    }
    Ok(Deleted::Pending(marked))
}

/// The second step of deleting a definition: deletes all its objects, then the definition.
fn clean_up(state: &mut State, definitions: &Resource, marked: &Arc<Stored>) {
    let object = marked.value();
    if let Some(storage) = custom::storage_of(state, &object) {
        let resource = Arc::clone(&state.storage(storage).resource);
        let objects: Vec<Arc<Stored>> = state.storage(storage).range("", "").cloned().collect();
        for object in &objects {
            // Without preconditions a delete cannot be refused.
            let _ = delete_object(state, &resource, object, &DeleteOptions::default(), false);
        }
        if state.storage(storage).len() > 0 {
            return;
        }
    }
    // The removal of the last object may already have completed the deletion.
    if let Some(marked) = state.find(definitions, "", marked.name()).cloned() {
        custom::finish(state, definitions, &marked);
    }
}

/// Removes an object. Returns its last state.
pub(crate) fn remove(state: &mut State, resource: &Resource, before: &Arc<Stored>) -> Arc<Stored> {
    let last = state.remove(resource.storage, before);
    custom::after_remove(state, resource, &last);
    last
}

/// `BeforeDelete` of apiserver's `registry/rest/delete.go`. Namespaces have other texts.
fn check_preconditions(resource: &Resource, before: &Stored, options: &DeleteOptions) -> Result<(), Status> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    // The server names the kind instead of the resource here.
    let named = || Resource { plural: resource.kind.clone(), ..resource.clone() };
    if let Some(uid) = wanted.uid.as_deref().filter(|uid| *uid != before.uid()) {
        let found = before.uid();
        if resource.special == Special::Namespace {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
            return Err(Status::conflict(resource, before.name(), &why));
        }
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). \
             The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&named(), before.name(), &why));
    }
    let found = before.resource_version().to_string();
    if let Some(version) = wanted.resource_version.as_deref().filter(|version| *version != found) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). \
             The object might have been modified"
        );
        return Err(Status::conflict(&named(), before.name(), &why));
    }
    Ok(())
}

/// `deletionFinalizersForGarbageCollection`: sets the garbage collector's finalizers by the propagation policy.
fn set_dependents_finalizers(object: &mut Value, options: &DeleteOptions) {
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    let present = |name: &str| object::finalizers(object).any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) => (present(ORPHAN), present(FOREGROUND)),
    };
    if (orphan, foreground) == (present(ORPHAN), present(FOREGROUND)) {
        return;
    }
    let others = object::finalizers(object).filter(|name| !matches!(*name, ORPHAN | FOREGROUND));
    let mut finalizers: Vec<String> = others.map(str::to_owned).collect();
    finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
    finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
    object::set_finalizers(object, finalizers);
}

/// `markAsDeleting`.
fn mark(state: &State, object: &mut Value) {
    let now = state.clock.seconds();
    let generation = object::generation(object);
    let since = object::deletion_timestamp(object);
    if since.is_none() && generation > 0 {
        object::set_meta(object, "generation", generation + 1);
    }
    // These times sort as texts.
    if object::deletion_timestamp(object).is_none_or(|since| since > now.as_str()) {
        object::set_meta(object, "deletionTimestamp", now);
    }
    object::set_meta(object, "deletionGracePeriodSeconds", 0);
}

/// Returns whether a pod is deleted immediately. Otherwise a running pod receives its grace period.
fn kill_at_once(state: &State, pod: &mut Value, options: &DeleteOptions) -> bool {
    const DEFAULT_SECONDS: i64 = 30;
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if object::deletion_timestamp(pod).is_some() {
        let left = object::meta(pod, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        let shorter = asked.unwrap_or(left).min(left);
        if shorter > 0 && shorter < left {
            set_deadline(state, pod, shorter);
        }
        return shorter == 0;
    }
    let unscheduled = object::text_at(pod, &["spec", "nodeName"]).is_empty();
    let ended = matches!(object::text_at(pod, &["status", "phase"]), "Failed" | "Succeeded");
    let own = object::at(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let seconds = if unscheduled || ended { 0 } else { asked.or(own).unwrap_or(DEFAULT_SECONDS) };
    if seconds > 0 {
        let generation = object::generation(pod);
        if generation > 0 {
            object::set_meta(pod, "generation", generation + 1);
        }
        set_deadline(state, pod, seconds);
    }
    seconds == 0
}

fn set_deadline(state: &State, pod: &mut Value, seconds: i64) {
    let now = state.clock.now();
    let end = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
    object::set_meta(pod, "deletionTimestamp", clock::seconds(end));
    object::set_meta(pod, "deletionGracePeriodSeconds", seconds);
}

fn success(resource: &Resource, last: &Stored) -> Value {
    let mut details = json!({"name": last.name(), "kind": resource.plural, "uid": last.uid()});
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
