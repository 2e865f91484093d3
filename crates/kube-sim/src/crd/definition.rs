//! One CustomResourceDefinition: its names, versions and conditions.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Value, json};

use super::schema;
use crate::object::{self, at, object_mut, text_at};
use crate::resource::{Resource, Special, StorageId};
use crate::status::{Cause, Status};
use crate::store::Registry;

/// The rules of a definition for objects of one version.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) schema: Value,
    patterns: BTreeMap<String, Regex>,
    selectable_fields: Vec<String>,
}

/// The finalizer that keeps a definition until its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Definition {
    fn new(version: &Value) -> Self {
        let schema = at(version, &["schema", "openAPIV3Schema"]).cloned().unwrap_or_default();
        let mut patterns = BTreeMap::new();
        schema::collect_patterns(&schema, &mut patterns);
        let selectable = items(version, &["selectableFields"]).filter_map(|field| field["jsonPath"].as_str());
        let selectable_fields = selectable.map(|path| path.trim_start_matches('.').to_owned()).collect();
        Self { schema, patterns, selectable_fields }
    }

    /// Fields for field selectors in addition to name and namespace, e.g. `spec.color`.
    pub(crate) fn selectable_fields(&self) -> &[String] {
        &self.selectable_fields
    }

    /// Removes fields that the schema does not know. Returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut removed = Vec::new();
        schema::prune_object(&self.schema, object, &mut removed);
        removed
    }

    pub(crate) fn set_defaults(&self, object: &mut Value) {
        schema::set_defaults(&self.schema, object);
    }

    pub(crate) fn validate(&self, object: &Value) -> Vec<Cause> {
        schema::validate(&self.schema, &self.patterns, object)
    }
}

/// Sets a definition's defaults and the fields that clients may not set.
pub(crate) fn prepare(old: Option<&Value>, object: &mut Value) -> Result<(), Status> {
    let strategy = text_at(object, &["spec", "conversion", "strategy"]);
    if !matches!(strategy, "" | "None") {
        return Err(Status::not_implemented(format_args!("conversion of custom resources by {strategy}")));
    }
    let kind = text_at(object, &["spec", "names", "kind"]).to_owned();
    let spec = object_mut(object, "spec");
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let names = object_mut(&mut object["spec"], "names");
    names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    let generation = match old {
        None => {
            let stored = match storage_version(object) {
                "" => Value::Null,
                version => json!([version]),
            };
            object["status"] =
                json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored});
            1
        }
        Some(old) => object::generation(old) + i64::from(old.get("spec") != object.get("spec")),
    };
    object::set_meta(object, "generation", generation);
    Ok(())
}

/// The checks of `apiextensions/validation` that keep the registry consistent.
pub(crate) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut require = |path: &[&str]| {
        if text_at(object, path).is_empty() {
            causes.push(Cause::required(path.join("."), ""));
        }
    };
    require(&["spec", "group"]);
    require(&["spec", "scope"]);
    require(&["spec", "names", "plural"]);
    require(&["spec", "names", "kind"]);
    let wanted = format!("{}.{}", text_at(object, &["spec", "names", "plural"]), text_at(object, &["spec", "group"]));
    if object::name(object) != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &object::name(object).into(), detail));
    }
    let scope = text_at(object, &["spec", "scope"]);
    if !matches!(scope, "" | "Cluster" | "Namespaced") {
        causes.push(Cause::not_supported("spec.scope", &scope.into(), &["Cluster", "Namespaced"]));
    }
    let kept = items(object, &["spec", "versions"]).filter(|version| version["storage"] == true).count();
    if kept != 1 {
        let versions: Vec<String> = items(object, &["spec", "versions"]).map(shown).collect();
        let message =
            format!("Invalid value: [{}]: must have exactly one version marked as storage version", versions.join(","));
        causes.push(Cause { message, ..Cause::invalid("spec.versions", &Value::Null, "") });
    }
    let several = items(object, &["spec", "versions"]).count() > 1;
    for (index, version) in items(object, &["spec", "versions"]).enumerate() {
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match at(version, &["schema", "openAPIV3Schema"]) {
            None => causes.push(Cause::required(field, "")),
            Some(schema) if text_at(schema, &["type"]) != "object" => {
                // The server moves the schema of a single version to `spec.validation`, which predates `versions`.
                let field = if several { field } else { "spec.validation.openAPIV3Schema".to_owned() };
                causes.push(match text_at(schema, &["type"]) {
                    "" => Cause::required(format!("{field}.type"), "must not be empty at the root"),
                    other => Cause::invalid(format!("{field}.type"), &other.into(), "must be object at the root"),
                });
            }
            Some(_) => {}
        }
    }
    if kept == 0 {
        let detail = "must have at least one stored version";
        causes.push(Cause::invalid("status.storedVersions", &Value::Null, detail));
    }
    causes
}

/// Returns a version as Go prints it, without the schema and other fields that are rarely wrong.
fn shown(version: &Value) -> String {
    let truth = |field: &str| version[field] == true;
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":null,\"Schema\":null,\
         \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        version["name"],
        truth("served"),
        truth("storage"),
        truth("deprecated"),
    )
}

/// Returns the version in which objects are stored.
pub(crate) fn storage_version(object: &Value) -> &str {
    let kept = items(object, &["spec", "versions"]).find(|version| version["storage"] == true);
    kept.map(|version| text_at(version, &["name"])).unwrap_or_default()
}

/// Returns the resources that a definition serves, with their schemas.
pub(crate) fn served(object: &Value, storage: StorageId) -> (Vec<Resource>, Vec<(String, Definition)>) {
    let text = |path: &[&str]| text_at(object, path).to_owned();
    let names = |field: &str| {
        items(object, &["spec", "names", field]).filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let versions = || items(object, &["spec", "versions"]).filter(|version| version["served"] == true);
    let resource = |version: &Value| Resource {
        group: text(&["spec", "group"]),
        version: text_at(version, &["name"]).to_owned(),
        plural: text(&["spec", "names", "plural"]),
        singular: text(&["spec", "names", "singular"]),
        kind: text(&["spec", "names", "kind"]),
        list_kind: text(&["spec", "names", "listKind"]),
        namespaced: text_at(object, &["spec", "scope"]) == "Namespaced",
        short_names: names("shortNames"),
        categories: names("categories"),
        status: at(version, &["subresources", "status"]).is_some(),
        storage,
        unconditional_update: false,
        create_on_update: false,
        returns_deleted: false,
        ephemeral: false,
        custom: true,
        special: Special::Not,
    };
    let definitions = versions().map(|version| (text_at(version, &["name"]).to_owned(), Definition::new(version)));
    (versions().map(resource).collect(), definitions.collect())
}

/// Returns the naming controller's complaint if another resource of the group has one of the names.
pub(crate) fn conflict(registry: &Registry, object: &Value, own: Option<StorageId>) -> Option<String> {
    let group = text_at(object, &["spec", "group"]);
    let others = || registry.all().iter().filter(|other| other.group == group && Some(other.storage) != own);
    let plural = text_at(object, &["spec", "names", "plural"]);
    let kind = text_at(object, &["spec", "names", "kind"]);
    if others().any(|other| other.plural == plural) {
        return Some(format!("PluralConflict:{plural:?} is already in use"));
    }
    others().any(|other| other.kind == kind).then(|| format!("KindConflict:{kind:?} is already in use"))
}

/// The first step of deleting a definition: marks it, because its objects are deleted first.
pub(crate) fn mark_terminating(object: &mut Value, now: &str) {
    object::set_meta(object, "deletionTimestamp", now);
    if !object::finalizers(object).any(|name| name == FINALIZER) {
        let mut finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
        finalizers.push(FINALIZER.to_owned());
        object::set_finalizers(object, finalizers);
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(object, "Terminating", true, "InstanceDeletionPending", message, now);
}

/// Sets names and conditions as the API server's controllers do. `taken` is the result of [`conflict`].
pub(crate) fn set_status(object: &mut Value, taken: Option<&str>, now: &str) {
    let names = object["spec"]["names"].clone();
    let version = storage_version(object).to_owned();
    match taken.and_then(|text| text.split_once(':')) {
        Some((reason, message)) => {
            set_condition(object, "NamesAccepted", false, reason, message, now);
            let message = "not all names are accepted";
            set_condition(object, "Established", false, "NotAccepted", message, now);
        }
        None => {
            set_condition(object, "NamesAccepted", true, "NoConflicts", "no conflicts found", now);
            let message = "the initial names have been accepted";
            set_condition(object, "Established", true, "InitialNamesAccepted", message, now);
            object["status"]["acceptedNames"] = names;
        }
    }
    let status = object_mut(object, "status");
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(list) = stored.as_array_mut()
        && !list.iter().any(|known| *known == version.as_str())
    {
        list.push(version.into());
    }
}

/// Sets one condition. The transition time changes only with the status.
pub(crate) fn set_condition(object: &mut Value, kind: &str, holds: bool, reason: &str, message: &str, now: &str) {
    let status = if holds { "True" } else { "False" };
    let conditions = object_mut(object, "status").entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let known = list.iter_mut().find(|condition| condition["type"] == kind);
    let since = known.as_ref().filter(|condition| condition["status"] == status);
    let since = since.map_or(json!(now), |condition| condition["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match known {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}

/// Returns the objects of a list field.
fn items<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    at(object, path).and_then(Value::as_array).into_iter().flatten()
}
