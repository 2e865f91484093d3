//! `metadata`: apimachinery's `api/validation/objectmeta.go` and core's `ValidateObjectMeta`.

use serde_json::{Map, Value, json};

use super::go::GoValue;
use super::{invalid_as_shown, names};
use crate::defaults::schema::Struct;
use crate::object;
use crate::resource::{Resource, Special};
use crate::status::Cause;

/// The rule for a resource's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameRule {
    Label,
    Subdomain,
    /// Any segment of a path.
    PathSegment,
}

impl NameRule {
    /// Returns the rule of a resource.
    pub(super) fn of(resource: &Resource) -> Self {
        match resource.group.as_str() {
            _ if resource.special == Special::Namespace => Self::Label,
            "rbac.authorization.k8s.io" => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    fn complaints(self, name: &str) -> Vec<String> {
        match self {
            Self::Label => names::dns_label(name),
            Self::Subdomain => names::dns_subdomain(name),
            Self::PathSegment => names::path_segment(name, false),
        }
    }

    fn prefix_complaints(self, prefix: &str) -> Vec<String> {
        match self {
            Self::PathSegment => names::path_segment(prefix, true),
            _ => self.complaints(&names::with_open_end(prefix)),
        }
    }
}

/// The fields of `metadata` to check.
#[derive(Clone, Debug)]
pub(super) enum CheckedFields<'a> {
    /// All fields, for a new object.
    All,
    /// The fields that an update changes. The others were valid when they were written.
    Only(Vec<&'a str>),
}

impl<'a> CheckedFields<'a> {
    pub(super) fn between(old: &'a Value, new: &'a Value) -> Self {
        let fields = |object: &'a Value| object.get("metadata").and_then(Value::as_object).into_iter().flatten();
        let mut before = fields(old).peekable();
        let mut touched: Vec<&str> = Vec::new();
        // Both are sorted.
        for (name, value) in fields(new) {
            while let Some((gone, _)) = before.next_if(|(other, _)| *other < name) {
                touched.push(gone);
            }
            if before.next_if(|(other, _)| *other == name).is_none_or(|(_, other)| other != value) {
                touched.push(name);
            }
        }
        touched.extend(before.map(|(gone, _)| gone.as_str()));
        Self::Only(touched)
    }

    fn has(&self, field: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(fields) => fields.contains(&field),
        }
    }
}

/// Total size of all annotations, keys and values.
const MAX_ANNOTATIONS: usize = 256 << 10;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// `ValidateObjectMeta` of apimachinery.
pub(super) fn check(
    resource: &Resource,
    object: &Value,
    rule: NameRule,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    if touched.has("generateName") {
        let prefix = object::meta(object, "generateName").and_then(Value::as_str).unwrap_or_default();
        if !prefix.is_empty() {
            invalid("metadata.generateName", prefix, rule.prefix_complaints(prefix), causes);
        }
    }
    if touched.has("name") {
        match object::name(object) {
            "" => causes.push(Cause::required("metadata.name", "name or generateName is required")),
            name => invalid("metadata.name", name, rule.complaints(name), causes),
        }
    }
    if touched.has("namespace") {
        match (resource.namespaced, object::namespace(object)) {
            (true, "") => causes.push(Cause::required("metadata.namespace", "")),
            (true, namespace) => invalid("metadata.namespace", namespace, names::dns_label(namespace), causes),
            (false, "") => {}
            (false, _) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
        }
    }
    if touched.has("generation") {
        nonnegative_generation(object, causes);
    }
    if touched.has("labels") {
        labels(map(object, "labels"), "metadata.labels", causes);
    }
    if touched.has("annotations") {
        annotations(map(object, "annotations"), "metadata.annotations", causes);
    }
    if touched.has("ownerReferences") {
        owner_references(object, causes);
    }
    if touched.has("finalizers") {
        finalizers(object, causes);
    }
}

/// `ValidateObjectMetaUpdate` of apimachinery.
pub(super) fn check_update(new: &Value, old: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    if touched.has("finalizers") && object::deletion_timestamp(old).is_some() {
        let mut added: Vec<&str> =
            object::finalizers(new).filter(|name| object::finalizers(old).all(|known| known != *name)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    if object::resource_version(new).is_empty() {
        causes.push(Cause::invalid("metadata.resourceVersion", &json!(""), "must be specified for an update"));
    }
    if touched.has("generation") {
        nonnegative_generation(new, causes);
        let generation = object::generation(new);
        if generation < object::generation(old) {
            causes.push(Cause::invalid("metadata.generation", &json!(generation), "must not be decremented"));
        }
    }
    for field in ["name", "namespace", "uid"] {
        if touched.has(field) {
            immutable_text(new, old, field, causes);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if touched.has(field) {
            let shown = object::meta(new, field).unwrap_or(&Value::Null);
            causes.push(Cause::invalid(format!("metadata.{field}"), shown, super::IMMUTABLE));
        }
    }
    // [`check`] runs first and finds the same causes.
    if causes.is_empty() {
        return;
    }
    labels(map(new, "labels"), "metadata.labels", causes);
    annotations(map(new, "annotations"), "metadata.annotations", causes);
    owner_references(new, causes);
}

/// [`check_update`] for resources with core's own metadata check.
pub(super) fn check_core_update(new: &Value, old: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    check_update(new, old, touched, causes);
    check_core_finalizers(new, touched, causes);
}

/// Core's `ValidateObjectMeta` for names that are DNS subdomains.
pub(super) fn check_core(resource: &Resource, object: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    check(resource, object, NameRule::Subdomain, touched, causes);
    check_core_finalizers(object, touched, causes);
}

/// The addition of core's `ValidateObjectMeta`: finalizers are qualified or standard.
pub(super) fn check_core_finalizers(object: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    if !touched.has("finalizers") {
        return;
    }
    for (index, name) in object::finalizers(object).enumerate() {
        standard_or_qualified(name, || format!("metadata.finalizers[{index}]"), causes);
    }
}

/// `validateKubeFinalizerName`
pub(super) fn standard_or_qualified(name: &str, path: impl Fn() -> String, causes: &mut Vec<Cause>) {
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        causes.push(Cause::invalid(path(), &json!(name), detail));
    }
}

/// `ValidateLabels`
pub(super) fn labels(labels: Option<&Map<String, Value>>, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        invalid(path, key, names::qualified(key), causes);
        invalid(path, value, names::label_value(value), causes);
    }
}

/// `ValidateAnnotations`
fn annotations(annotations: Option<&Map<String, Value>>, path: &str, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Keys are checked in lower case.
        if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            invalid(path, key, names::qualified(&key.to_lowercase()), causes);
        } else {
            invalid(path, key, names::qualified(key), causes);
        }
    }
    if size > MAX_ANNOTATIONS {
        causes.push(Cause::too_long(path, MAX_ANNOTATIONS));
    }
}

fn owner_references(object: &Value, causes: &mut Vec<Cause>) {
    let Some(references) = object::meta(object, "ownerReferences").and_then(Value::as_array) else { return };
    let mut controller: Option<String> = None;
    for (index, reference) in references.iter().enumerate() {
        let path = |field: &str| format!("metadata.ownerReferences[{index}].{field}");
        let text = |field: &str| object::text_at(reference, &[field]);
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            causes.push(Cause::required(path("apiVersion"), "must not be empty"));
        } else if api_version.matches('/').count() > 1 || api_version.ends_with('/') {
            let detail = "must be <group>/<version> or <version>";
            causes.push(Cause::invalid(path("apiVersion"), &json!(api_version), detail));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                causes.push(Cause::required(path(field), "must not be empty"));
            }
        }
        if (api_version, text("kind")) == ("v1", "Event") {
            let path = format!("metadata.ownerReferences[{index}]");
            causes.push(Cause::invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let current = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(current),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    );
                    let structure = Struct::named("meta/v1.OwnerReference");
                    let shown = references.iter().map(|reference| GoValue::structure(reference, structure)).collect();
                    let shown = GoValue::List(shown).to_string();
                    causes.push(invalid_as_shown("metadata.ownerReferences", &shown, &detail));
                }
            }
        }
    }
}

fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    let (mut orphan, mut foreground) = (false, false);
    for name in object::finalizers(object) {
        invalid("metadata.finalizers", name, names::qualified(name), causes);
        orphan |= name == "orphan";
        foreground |= name == "foregroundDeletion";
    }
    if orphan && foreground {
        let list: Vec<&str> = object::finalizers(object).collect();
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &json!(list), detail));
    }
}

fn nonnegative_generation(object: &Value, causes: &mut Vec<Cause>) {
    let generation = object::generation(object);
    if generation < 0 {
        causes.push(Cause::invalid("metadata.generation", &json!(generation), "must be greater than or equal to 0"));
    }
}

fn immutable_text(new: &Value, old: &Value, field: &str, causes: &mut Vec<Cause>) {
    let text = |object| object::meta(object, field).and_then(Value::as_str).unwrap_or_default();
    if text(new) != text(old) {
        causes.push(Cause::invalid(format!("metadata.{field}"), &json!(text(new)), super::IMMUTABLE));
    }
}

fn map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object::meta(object, field).and_then(Value::as_object)
}

/// Adds a cause for each complaint about a text.
pub(super) fn invalid(path: &str, text: &str, complaints: Vec<String>, causes: &mut Vec<Cause>) {
    causes.extend(complaints.iter().map(|complaint| Cause::invalid(path, &json!(text), complaint)));
}
