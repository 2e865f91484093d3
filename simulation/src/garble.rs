//! Objects that a process cannot decode: a newer version of Kubernetes may write fields that an older program does not
//! know, and a custom resource may contain anything.

use kube_sim::object;
use serde_json::Value;

/// The annotation of the objects that cannot be decoded.
pub(crate) const GARBLED: &str = "example.com/garbled";

/// Makes an object with the annotation unreadable.
pub(crate) fn garble(value: &mut Value) {
    if object::annotation(value, GARBLED).is_none() {
        return;
    }
    let spec = value.get_mut("spec").and_then(Value::as_object_mut);
    for (_, field) in
        spec.into_iter().flatten().filter(|(name, _)| ["accessModes", "capacity"].contains(&name.as_str()))
    {
        *field = Value::from(7);
    }
}
