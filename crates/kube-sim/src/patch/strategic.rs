//! Strategic merge patch: `apimachinery/pkg/util/strategicpatch`.

use serde_json::{Map, Value};

use super::{PatchOptions, Patched, no_json, unexpected, unusable};
use crate::defaults;
use crate::defaults::schema::{Field, Struct, Type};
use crate::go_json::{self, Parsed, kind_of};
use crate::resource::Resource;
use crate::status::Status;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// Merges the patch into the object.
pub(super) fn patch(
    resource: &Resource,
    current: &Value,
    patch: &[u8],
    options: &PatchOptions<'_>,
) -> Result<Patched, Status> {
    let Some(structure) = Struct::of(resource) else {
        return Err(Status::unsupported_media_type(&super::OF_ALL_RESOURCES));
    };
    let Parsed { value, duplicates } = go_json::parse(patch).map_err(|_| no_json())?;
    let patch = match value {
        Value::Object(patch) => patch,
        Value::Null => Object::new(),
        other => {
            let found = kind_of(&other);
            let message = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Status::bad_request(message));
        }
    };
    let shown = go_map(&patch);
    let original = current.as_object().cloned().unwrap_or_default();
    let mut merged = Value::Object(merge_map(original, patch, MemberSchema::Struct(structure))?);
    // The server converts the result to the expected type and ignores the type in the object.
    if let Value::Object(object) = &mut merged {
        object.remove("kind");
        object.remove("apiVersion");
    }
    let warnings = defaults::decode_result(resource, &mut merged, &duplicates, options.field_validation);
    let warnings = warnings.map_err(|error| unusable(&shown, &error))?;
    Ok(Patched { object: merged, warnings })
}

/// The types of an object's members.
#[derive(Clone, Copy)]
enum MemberSchema {
    Struct(&'static Struct),
    /// The members are values of this type.
    Map(&'static Type),
    /// Unknown types: lists are replaced.
    Unknown,
}

impl MemberSchema {
    fn of(ty: &'static Type) -> Self {
        match (ty.structure(), ty.element()) {
            (Some(structure), _) => Self::Struct(structure),
            (None, Some(element)) => Self::Map(element),
            (None, None) => Self::Unknown,
        }
    }

    fn field(self, name: &str) -> Option<&'static Field> {
        match self {
            Self::Struct(structure) => structure.field(name),
            Self::Map(_) | Self::Unknown => None,
        }
    }

    fn member(self, name: &str) -> Self {
        match self {
            Self::Struct(structure) => structure.field(name).map_or(Self::Unknown, |field| Self::of(&field.ty)),
            Self::Map(element) => Self::of(element),
            Self::Unknown => Self::Unknown,
        }
    }

    /// Returns whether the list of this name is merged, the merge key, and the schema of its items.
    fn list(self, name: &str) -> (bool, &'static str, Self) {
        match self.field(name) {
            Some(field) => (field.patch.merge, field.patch.key, field.ty.element().map_or(Self::Unknown, Self::of)),
            None => (false, "", Self::Unknown),
        }
    }
}

fn merge_map(mut original: Object, mut patch: Object, schema: MemberSchema) -> Result<Object, Status> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => {
                patch.insert(DIRECTIVE.to_owned(), directive.clone());
                Err(bad_directive(&directive, &patch))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    ordered_lists(&mut original, &mut patch, schema)?;
    for (key, mut value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM) {
            Some(list) => (list.to_owned(), true),
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(original)), Value::Object(patch)) => {
                Some(Value::Object(merge_map(original, patch, schema.member(&key))?))
            }
            (Some(Value::Array(original)), Value::Array(patch)) => {
                let (merges, merge_key, items) = schema.list(&key);
                Some(Value::Array(if merges || deletes {
                    merge_list(original, patch, items, merge_key, deletes)?
                } else {
                    patch
                }))
            }
            (old, _) if deletes => old,
            (old, new) => {
                value = new;
                // A scalar replaces a scalar.
                if old.as_ref().is_none_or(|old| kind_of(old) != kind_of(&value)) {
                    discard_nulls(&mut value);
                }
                without_directives(value)
            }
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// `$retainKeys`: removes all other members.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Status> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || Status::bad_request("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(bad)?;
    let retained = |key: &str| keys.iter().any(|kept| kept == key);
    for (key, value) in patch.iter() {
        if !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(SET_ORDER) && !retained(key) {
            return Err(bad());
        }
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// `$setElementOrder/…`: merges these lists and sorts their items.
fn ordered_lists(original: &mut Object, patch: &mut Object, schema: MemberSchema) -> Result<(), Status> {
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for order_key in orders {
        let Some(order) = patch.remove(&order_key) else { continue };
        let order = into_list(order)?;
        let key = &order_key[SET_ORDER.len()..];
        let (merges, merge_key, items) = schema.list(key);
        let server = original.get(key).cloned().map(into_list).transpose()?;
        let given = patch.remove(key).map(into_list).transpose()?;
        if let Some(given) = &given {
            follows_order(given, &order, merge_key)?;
        }
        let merged = match (&server, given) {
            (Some(server), None) => server.clone(),
            (None, Some(given)) => given.into_iter().filter_map(without_directives).collect(),
            (Some(server), Some(given)) if merges => merge_list(server.clone(), given, items, merge_key, false)?,
            (Some(_), Some(given)) => given,
            (None, None) => continue,
        };
        let server = server.unwrap_or_default();
        original.insert(key.to_owned(), Value::Array(in_order(merged, &order, &server, merge_key)?));
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    items: MemberSchema,
    merge_key: &str,
    deletes: bool,
) -> Result<Vec<Value>, Status> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let objects = all_objects(&original, &patch)?;
    if !objects {
        if deletes {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut merged: Vec<Value> = Vec::new();
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return in_order(merged, &patch, &original, "");
    }
    if merge_key.is_empty() {
        return Err(unexpected("cannot merge lists without merge key"));
    }
    let (mut merged, patch) = special_items(original, patch, merge_key)?;
    let server = merged.clone();
    for item in &patch {
        let wanted = key_of(item, merge_key)?;
        match position(&merged, merge_key, wanted) {
            Some(index) => {
                let (Value::Object(old), Value::Object(new)) = (merged[index].take(), item.clone()) else { continue };
                merged[index] = Value::Object(merge_map(old, new, items)?);
            }
            None => merged.push(item.clone()),
        }
    }
    in_order(merged, &patch, &server, merge_key)
}

/// Items with a directive: `$patch: delete` removes the matching item, `$patch: replace` replaces the list.
fn special_items(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Status> {
    let (mut plain, mut replaces) = (Vec::new(), false);
    for item in patch {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let wanted = key_of(&item, merge_key)?.clone();
                    original.retain(|old| old.get(merge_key) != Some(&wanted));
                }
                Some("replace") => replaces = true,
                Some("merge") => return Err(unexpected("merging lists cannot yet be specified in the patch")),
                _ => return Err(bad_directive(directive, item.as_object().unwrap_or(&Object::new()))),
            },
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (original, plain) })
}

/// `normalizeElementOrder`: the patch's items keep its order, the server's items keep theirs. An item of the server
/// precedes an item of the patch if it does so in the server's list.
fn in_order(items: Vec<Value>, patch: &[Value], server: &[Value], merge_key: &str) -> Result<Vec<Value>, Status> {
    if !merge_key.is_empty() {
        items.iter().try_for_each(|item| key_of(item, merge_key).map(drop))?;
    }
    let position = |list: &[Value], item: &Value| match merge_key {
        "" => list.iter().position(|other| other == item),
        _ => item.get(merge_key).and_then(|key| position(list, merge_key, key)),
    };
    let (mut from_patch, mut from_server): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(patch, item).is_some());
    from_patch.sort_by_key(|item| position(patch, item));
    from_server.sort_by_key(|item| position(server, item));
    let (mut ordered, mut from_server) = (Vec::new(), from_server.into_iter().peekable());
    for item in from_patch {
        while let Some(other) = from_server.peek() {
            match (position(server, other), position(server, &item)) {
                (Some(left), Some(right)) if left < right => ordered.extend(from_server.next()),
                _ => break,
            }
        }
        ordered.push(item);
    }
    ordered.extend(from_server);
    Ok(ordered)
}

/// Checks that a patch's list has the order that the patch requests.
fn follows_order(given: &[Value], order: &[Value], merge_key: &str) -> Result<(), Status> {
    let mut wanted = order.iter();
    if given.is_empty() || order.is_empty() {
        return Ok(());
    }
    for item in given.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let same = |other: &Value| match merge_key {
            "" => other == item,
            _ => other.get(merge_key) == item.get(merge_key),
        };
        if !wanted.by_ref().any(same) {
            let (given, order) = (go_list(given), go_list(order));
            return Err(unexpected(format!(
                "The order in patch list:\n{given}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

fn all_objects(original: &[Value], patch: &[Value]) -> Result<bool, Status> {
    let mut kinds = original.iter().chain(patch).map(kind_of);
    let first = kinds.next();
    if kinds.any(|kind| Some(kind) != first) {
        let shown = format!("list element types are not identical: [{} {}]", go_list(original), go_list(patch));
        return Err(unexpected(shown));
    }
    match first {
        Some("array") => {
            let message = "the server rejected our request due to an error in our request";
            Err(Status::new(422, "Invalid", message))
        }
        first => Ok(first == Some("object")),
    }
}

fn key_of<'a>(item: &'a Value, merge_key: &str) -> Result<&'a Value, Status> {
    item.get(merge_key).ok_or_else(|| {
        let shown = item.as_object().map(go_map).unwrap_or_default();
        unexpected(format!("map: {shown} does not contain declared merge key: {merge_key}"))
    })
}

fn position(list: &[Value], merge_key: &str, key: &Value) -> Option<usize> {
    list.iter().position(|item| item.get(merge_key) == Some(key))
}

fn into_list(value: Value) -> Result<Vec<Value>, Status> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            let found = match other {
                Value::Object(_) => "map[string]interface {}",
                Value::Number(_) => "int64",
                Value::Bool(_) => "bool",
                _ => "string",
            };
            Err(unexpected(format!("expected a []interface {{}}, but received a {found}")))
        }
    }
}

/// Returns a value without its directives. `None` for an object that is itself a directive.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(object) if object.contains_key(DIRECTIVE) => return None,
        Value::Object(object) => {
            let members = object.into_iter();
            Value::Object(members.filter_map(|(key, value)| Some((key, without_directives(value)?))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().filter_map(without_directives).collect()),
        plain => plain,
    })
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn bad_directive(directive: &Value, patch: &Object) -> Status {
    unexpected(format!("unknown patch type: {} in map: {}", go_value(directive), go_map(patch)))
}

/// As Go's `%v` prints it: `map[a:1 b:[x y]]`.
fn go_map(object: &Object) -> String {
    let members: Vec<String> = object.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
    format!("map[{}]", members.join(" "))
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" "))
}

fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(object) => go_map(object),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
