//! Granted and used permissions of an account, both as texts such as `create persistentvolumes`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::AuditEntry;

/// The permissions that the roles among these manifests grant.
pub fn granted(manifests: &[Value]) -> BTreeSet<String> {
    let texts = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let rules = manifests.iter().flat_map(|manifest| manifest["rules"].as_array().into_iter().flatten());
    rules
        .flat_map(|rule| {
            let (groups, resources, verbs) =
                (texts(&rule["apiGroups"]), texts(&rule["resources"]), texts(&rule["verbs"]));
            let names = resources
                .into_iter()
                .map(move |resource| in_group(&resource, groups.first().map_or("", String::as_str)));
            names.flat_map(move |name| verbs.clone().into_iter().map(move |verb| format!("{verb} {name}")))
        })
        .collect()
}

/// The permission that a request needed.
pub fn used(entry: &AuditEntry) -> String {
    let resource = match entry.subresource.as_str() {
        "" => entry.resource.clone(),
        subresource => format!("{}/{subresource}", entry.resource),
    };
    format!("{} {}", entry.verb, in_group(&resource, &entry.group))
}

/// Leaves out the groups of well-known resources.
fn in_group(resource: &str, group: &str) -> String {
    match group {
        "" | "events.k8s.io" | "storage.k8s.io" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}
