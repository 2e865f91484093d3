//! Fields of pods that controllers read.

use serde_json::Value;

use crate::object;

/// Names of the claims that a pod uses, in order, including claims of generic ephemeral volumes.
pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = String> + '_ {
    let volumes = object::at(pod, &["spec", "volumes"]).and_then(Value::as_array).into_iter().flatten();
    volumes.filter_map(move |volume| {
        if let Some(name) = object::at(volume, &["persistentVolumeClaim", "claimName"]).and_then(Value::as_str) {
            return Some(name.to_owned());
        }
        let ephemeral = volume.get("ephemeral").is_some_and(Value::is_object);
        ephemeral.then(|| format!("{}-{}", object::name(pod), object::text_at(volume, &["name"])))
    })
}

/// Returns the node a pod is bound to; `""` for none.
pub(super) fn node(pod: &Value) -> &str {
    object::text_at(pod, &["spec", "nodeName"])
}

/// Returns whether a pod has succeeded or failed.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(object::text_at(pod, &["status", "phase"]), "Failed" | "Succeeded")
}
