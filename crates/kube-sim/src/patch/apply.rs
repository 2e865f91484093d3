//! Server-side apply: `apimachinery/pkg/util/managedfields` over structured-merge-diff. The list types in schemas of
//! custom resources are not supported: their lists are owned as a whole.

use serde_json::{Value, json};

use super::fields::{Comparison, Fields};
use super::managers::{Manager, Managers, all_fields};
use super::shape::{Division, Shape};
use super::{PatchOptions, manager_conflict, unexpected, unusable};
use crate::resource::Resource;
use crate::status::{Details, Status};
use crate::yaml::read_yaml;
use crate::{defaults, object};

const MANAGED_FIELDS: &str = "managedFields";
/// The manager of fields that predate the first apply.
const BEFORE: &str = "before-first-apply";

/// Applies a configuration. Without a current object it is the new object.
pub(super) fn patch(
    resource: &Resource,
    current: Option<&Value>,
    patch: &[u8],
    options: &PatchOptions<'_>,
) -> Result<Value, Status> {
    // Requests without a manager have already been refused.
    let manager = options.field_manager.unwrap_or_default();
    let config = read(resource, current, patch)?;
    let shape = Shape::root(resource);
    let mut live = current.cloned().unwrap_or_else(|| json!({}));
    let Managers(mut managers) = object::meta(&live, MANAGED_FIELDS).map(Managers::read).unwrap_or_default();
    object::remove_meta(&mut live, MANAGED_FIELDS);
    if managers.is_empty() && current.is_some() {
        managers.push(before_first_apply(resource, &live, options));
    }

    let mut applier = Manager::new(manager, true, resource, options);
    applier.fields = Fields::of(&config, shape).ownable(resource, options.subresource);
    let last = managers.iter().position(|manager| manager.is_same(&applier)).map(|index| managers.remove(index));

    let mut merged = live.clone();
    merge(&mut merged, &config, shape);
    if let Some(last) = &last {
        // Includes fields that are never owned, such as the name.
        let mut owned = Fields::of(&config, shape);
        managers.iter().for_each(|manager| owned.union(&manager.fields));
        prune(&mut merged, &last.fields, &owned, shape);
    }
    defaults::decode_result(resource, &mut merged, &[], options.field_validation)
        .map_err(|error| unusable(&config.to_string(), &error))?;

    let change = Comparison::of(&live, &merged, shape).ownable(resource, options.subresource);
    if !options.force {
        refuse_conflicts(&managers, &change)?;
    }
    managers.iter_mut().for_each(|manager| manager.give_up(&change));
    if merged == live {
        applier.time = last.map(|last| last.time).unwrap_or_default();
    }
    managers.push(applier);
    match serde_json::from_str::<Value>(&Managers(managers).to_json()) {
        Ok(entries) => object::set_meta(&mut merged, MANAGED_FIELDS, entries),
        // Without owners, the field is omitted.
        Err(_) => object::remove_meta(&mut merged, MANAGED_FIELDS),
    }
    Ok(merged)
}

/// Reads the configuration and checks that it is for this object.
fn read(resource: &Resource, current: Option<&Value>, patch: &[u8]) -> Result<Value, Status> {
    let config: Value = match serde_json::from_slice(patch) {
        Ok(config) => config,
        Err(_) => read_yaml(patch).map_err(|error| Status::bad_request(format!("error encoding patch: {error}")))?,
    };
    if !config.is_object() {
        return Err(Status::bad_request(
            "error decoding patch: error unmarshaling JSON: the configuration is no object",
        ));
    }
    let text = |field: &str| object::text_at(&config, &[field]);
    if (text("apiVersion"), text("kind")) != (resource.api_version().as_str(), resource.kind.as_str()) {
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let kind = text("kind");
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if object::meta(&config, MANAGED_FIELDS).is_some_and(Value::is_array) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if current.is_none() && !object::uid(&config).is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            object::uid(&config)
        );
        return Err(Status::conflict(resource, object::name(&config), &why));
    }
    let name = |error: String| {
        let (namespace, name, api_version) =
            (object::namespace(&config), object::name(&config), resource.api_version());
        let version = if resource.group.is_empty() { format!("/{api_version}") } else { api_version };
        let kind = &resource.kind;
        unexpected(format!("failed to create typed patch object ({namespace}/{name}; {version}, Kind={kind}): {error}"))
    };
    let unknown = defaults::unknown_fields(resource, &config).map_err(name)?;
    let undeclared: Vec<String> =
        unknown.iter().map(|field| format!(".{field}: field not declared in schema")).collect();
    match undeclared.as_slice() {
        [] => Ok(config),
        [one] => Err(name(one.clone())),
        several => Err(name(format!("errors:\n  {}", several.join("\n  ")))),
    }
}

fn before_first_apply(resource: &Resource, live: &Value, options: &PatchOptions<'_>) -> Manager {
    let options = PatchOptions { subresource: None, ..*options };
    let mut before = Manager::new(BEFORE, false, resource, &options);
    before.fields = all_fields(resource, live, &options);
    before
}

fn refuse_conflicts(managers: &[Manager], change: &Comparison) -> Result<(), Status> {
    let mut conflicts: Vec<(String, String)> = Vec::new();
    for manager in managers {
        let paths = manager.conflict(change).paths();
        conflicts.extend(paths.into_iter().map(|path| (manager.shown(), path)));
    }
    conflicts.sort();
    let message = match conflicts.as_slice() {
        [] => return Ok(()),
        [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {path}"),
        several => {
            let mut lines: Vec<String> = Vec::new();
            let mut last = "";
            for (manager, path) in several {
                if manager != last {
                    lines.push(format!("conflicts with {manager}:"));
                    last = manager;
                }
                lines.push(format!("- {path}"));
            }
            format!("Apply failed with {} conflicts: {}", several.len(), lines.join("\n"))
        }
    };
    conflicts.sort_by(|(_, left), (_, right)| left.cmp(right));
    let cause = |(manager, path)| manager_conflict(path, format!("conflict with {manager}"));
    let causes = conflicts.into_iter().map(cause).collect();
    Err(Status {
        details: Some(Box::new(Details { causes, ..Details::default() })),
        ..Status::new(409, "Conflict", message)
    })
}

fn merge(target: &mut Value, config: &Value, shape: Shape) {
    match (shape.possible_division(config), target, config) {
        (Division::Members, Value::Object(target), Value::Object(members)) => {
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                merge(target.entry(name.as_str()).or_insert(Value::Null), value, shape.member(name));
            }
        }
        (Division::Keyed(_) | Division::Set, Value::Array(target), Value::Array(_)) => {
            let live = Value::Array(std::mem::take(target));
            *target = merge_items(&live, config, shape);
        }
        (_, target, config) => *target = config.clone(),
    }
}

/// Merges two lists: items in both are merged in the configuration's order, others keep their positions.
fn merge_items(live: &Value, config: &Value, shape: Shape) -> Vec<Value> {
    let (live, config) = (shape.children(live), shape.children(config));
    let has = |list: &[(String, &Value, Shape)], edge: &str| list.iter().any(|(other, ..)| other == edge);
    let mut merged = Vec::new();
    let mut live_items = live.iter().peekable();
    for (edge, item, shape) in &config {
        while let Some((_, live_item, _)) = live_items.next_if(|(edge, ..)| !has(&config, edge)) {
            merged.push((*live_item).clone());
        }
        live_items.next_if(|(live_edge, ..)| live_edge == edge);
        let mut result =
            live.iter().find(|(other, ..)| other == edge).map_or(Value::Null, |(_, old, _)| (*old).clone());
        merge(&mut result, item, *shape);
        merged.push(result);
    }
    merged.extend(live_items.filter(|(edge, ..)| !has(&config, edge)).map(|(_, item, _)| (*item).clone()));
    merged
}

/// Removes fields that were applied before and no longer have an owner. If all applied parts of a field are removed,
/// the whole field is removed with its contents.
fn prune(target: &mut Value, last: &Fields, owned: &Fields, shape: Shape) {
    let edges: Vec<String> = shape.children(target).into_iter().map(|(edge, ..)| edge).collect();
    let nothing = Fields::default();
    let mut gone: Vec<usize> = Vec::new();
    for (index, edge) in edges.iter().enumerate() {
        let Some(last) = last.part(edge) else { continue };
        let owned = owned.part(edge).unwrap_or(&nothing);
        if owned.is_empty() && (last.owns() || edge.starts_with("f:")) {
            gone.push(index);
            continue;
        }
        match target {
            Value::Object(members) => {
                if let Some(part) = members.get_mut(&edge[2..]) {
                    prune(part, last, owned, shape.member(&edge[2..]));
                }
            }
            Value::Array(items) => prune(&mut items[index], last, owned, shape.item()),
            _ => {}
        }
    }
    for index in gone.into_iter().rev() {
        match target {
            Value::Object(members) => drop(members.remove(&edges[index][2..])),
            Value::Array(items) => drop(items.remove(index)),
            _ => {}
        }
    }
}
