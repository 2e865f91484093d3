//! Discovery of groups, versions and resources, individually or aggregated (`apidiscovery.k8s.io`).

use std::cmp::Reverse;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Page;
use crate::request::Verb;
use crate::resource::{Resource, Special};
use crate::state::State;
use crate::status::Status;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The order of the built-in groups, by the priorities in kube-aggregator and `apiserver.go`. Groups of custom
/// resources come last.
const ORDER: &[&str] = &[
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
];

/// A group with its preferred version first.
struct Group {
    name: String,
    versions: Vec<Version>,
}

struct Version {
    name: String,
    /// Sorted by name.
    resources: Vec<Arc<Resource>>,
}

/// `/api`
pub(super) fn core(state: &State, aggregated: bool) -> Page {
    if aggregated {
        all_at_once(all_groups(state).iter().filter(|group| group.name.is_empty()))
    } else {
        Page::json(&json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}))
    }
}

/// `/apis`
pub(super) fn groups(state: &State, aggregated: bool) -> Page {
    let groups = all_groups(state);
    let named = groups.iter().filter(|group| !group.name.is_empty());
    if aggregated {
        all_at_once(named)
    } else {
        let groups: Vec<Value> = named.map(Group::summary).collect();
        Page::json(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
    }
}

/// `/apis/GROUP`
pub(super) fn group(state: &State, name: &str) -> Option<Page> {
    let groups = all_groups(state);
    let group = groups.iter().find(|group| group.name == name && !name.is_empty())?;
    let mut summary = group.summary();
    summary["kind"] = "APIGroup".into();
    summary["apiVersion"] = "v1".into();
    Some(Page::json(&summary))
}

/// `/api/v1`, `/apis/GROUP/VERSION`
pub(super) fn resources(state: &State, group: &str, version: &str) -> Result<Page, Status> {
    let found = state.registry.all();
    let mut found = found.iter().filter(|resource| resource.group == group && resource.version == version).peekable();
    let first = found.peek().ok_or_else(Status::no_such_path)?;
    let mut list = json!({"kind": "APIResourceList", "groupVersion": first.api_version(), "resources": []});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["resources"] = found.flat_map(|resource| resource_and_parts(state, resource)).collect();
    Ok(Page::json(&list))
}

/// Returns whether the group exists.
pub(super) fn has(state: &State, group: &str) -> bool {
    state.registry.all().iter().any(|resource| resource.group == group)
}

/// Returns all paths, for `/`.
pub(super) fn paths(state: &State) -> Vec<String> {
    let mut paths: Vec<String> =
        ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned).to_vec();
    for resource in state.registry.all() {
        paths.push(base_path(&resource.group, &resource.version));
        if !resource.group.is_empty() {
            paths.push(format!("/apis/{}", resource.group));
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

/// `/api/v1` or `/apis/GROUP/VERSION`.
pub(super) fn base_path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        _ => format!("/apis/{group}/{version}"),
    }
}

fn all_groups(state: &State) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // Sorted by group, version and name.
    for resource in state.registry.all() {
        if groups.last().is_none_or(|group| group.name != resource.group) {
            groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
        }
        let Some(group) = groups.last_mut() else { continue };
        if group.versions.last().is_none_or(|version| version.name != resource.version) {
            group.versions.push(Version { name: resource.version.clone(), resources: Vec::new() });
        }
        if let Some(version) = group.versions.last_mut() {
            version.resources.push(Arc::clone(resource));
        }
    }
    for group in &mut groups {
        group.versions.sort_by_key(|version| Reverse(priority(&version.name)));
    }
    groups.sort_by_key(|group| ORDER.iter().position(|name| *name == group.name).unwrap_or(ORDER.len()));
    groups
}

/// `CompareKubeAwareVersionStrings` of apimachinery: v10, v2, v1, v11beta2, v1beta1, v2alpha1, others by name.
fn priority(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let other = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let major_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(major_end);
    let (stage, minor) = match (rest, rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        ("", _, _) => (3, "0"),
        (_, Some(minor), _) => (2, minor),
        (_, _, Some(minor)) => (1, minor),
        _ => return other,
    };
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => (stage, major, minor, Reverse(String::new())),
        _ => other,
    }
}

impl Group {
    fn summary(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| json!({"groupVersion": format!("{}/{}", self.name, version.name), "version": version.name}))
            .collect();
        json!({"name": self.name, "versions": versions, "preferredVersion": versions.first()})
    }
}

/// Returns the verbs of a resource, sorted by name.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    let all = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];
    let has = |verb: &Verb| match verb {
        Verb::Create => true,
        Verb::DeleteCollection => !resource.ephemeral && resource.special != Special::Namespace,
        _ => !resource.ephemeral,
    };
    all.iter().filter(|verb| has(verb)).map(|verb| verb.as_str()).collect()
}

/// A subresource.
struct SubresourceDiscovery {
    name: &'static str,
    verbs: &'static [&'static str],
}

fn parts(resource: &Resource) -> Vec<SubresourceDiscovery> {
    let mut parts = Vec::new();
    if resource.special == Special::Namespace {
        parts.push(SubresourceDiscovery { name: "finalize", verbs: &["update"] });
    }
    if resource.status {
        parts.push(SubresourceDiscovery { name: "status", verbs: &["get", "patch", "update"] });
    }
    parts
}

fn resource_and_parts(state: &State, resource: &Resource) -> Vec<Value> {
    let mut all = vec![json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs(resource),
    })];
    for (field, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            all[0][field] = names.as_slice().into();
        }
    }
    if !resource.ephemeral {
        all[0]["storageVersionHash"] = storage_version_hash(&state.storage(resource.storage).resource).into();
    }
    for part in parts(resource) {
        all.push(json!({
            "name": format!("{}/{}", resource.plural, part.name), "singularName": "", "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": part.verbs,
        }));
    }
    all
}

/// `StorageVersionHash` of apiserver's `endpoints/discovery/storageversionhash.go`.
fn storage_version_hash(stored: &Resource) -> String {
    let digest = Sha256::digest(format!("{}/{}/{}", stored.group, stored.version, stored.kind));
    STANDARD.encode(&digest[..8])
}

fn all_at_once<'a>(groups: impl Iterator<Item = &'a Group>) -> Page {
    let items: Vec<Value> = groups.map(aggregated_group).collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    Page { content_type: AGGREGATED, ..Page::json(&list) }
}

fn aggregated_group(group: &Group) -> Value {
    let version = |version: &Version| {
        let resources: Vec<Value> = version.resources.iter().map(|resource| aggregated_resource(resource)).collect();
        json!({"version": version.name, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    match group.name.as_str() {
        "" => json!({"metadata": {}, "versions": versions}),
        name => json!({"metadata": {"name": name}, "versions": versions}),
    }
}

fn aggregated_resource(resource: &Resource) -> Value {
    // The server names group and version only of custom resources.
    let (group, version) = if resource.custom { (&*resource.group, &*resource.version) } else { ("", "") };
    let kind = json!({"group": group, "version": version, "kind": resource.kind});
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular, "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": verbs(resource),
    });
    for (field, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry[field] = names.as_slice().into();
        }
    }
    let parts: Vec<Value> = parts(resource)
        .iter()
        .map(|part| json!({"subresource": part.name, "verbs": part.verbs, "responseKind": kind}))
        .collect();
    if !parts.is_empty() {
        entry["subresources"] = parts.into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_versions_by_maturity_then_number() {
        let mut versions =
            ["v1", "v1alpha1", "foo1", "v11beta2", "v10", "v2", "v3beta1", "foo10", "v12alpha1", "v1beta"];
        versions.sort_by_key(|version| Reverse(priority(version)));
        let expected = ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10", "v1beta"];
        assert_eq!(versions, expected);
    }
}
