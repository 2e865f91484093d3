//! Builds events about claims, and about the cluster's objects that belong to claims.

use std::sync::Arc;

use provisioner_runtime::events::{Event, EventKind, ObjectRef};

/// Group, version and kind of an object.
type Kind = (&'static str, &'static str);

/// Returns the reference to a claim from its namespace, name and uid.
pub(crate) fn claim_ref((api_version, kind): Kind, [namespace, name, uid]: [&Arc<str>; 3]) -> ObjectRef {
    ObjectRef { namespace: Some(namespace.clone()), ..object_ref((api_version, kind), name, uid) }
}

/// Returns the reference to a cluster-scoped object.
pub(crate) fn object_ref((api_version, kind): Kind, name: &str, uid: &Arc<str>) -> ObjectRef {
    ObjectRef { api_version, kind, namespace: None, name: name.into(), uid: uid.clone() }
}

/// Builds an event that each replica sends separately.
pub(crate) fn build(
    object: ObjectRef,
    is_warning: bool,
    reason: &'static str,
    action: &'static str,
    note: String,
) -> Event {
    let kind = if is_warning { EventKind::Warning } else { EventKind::Normal };
    Event { object, kind, reason, action, note, same_from_all: false }
}
