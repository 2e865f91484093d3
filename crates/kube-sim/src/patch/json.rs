//! JSON patch, compatible with the server's library (evanphx/json-patch v4). It is more lenient than RFC 6902:
//! `replace` may set a missing member, `test` treats a missing member as null, and indices may count from the end.

use serde_json::Value;

use super::no_json;
use crate::go_json::kind_of;
use crate::status::Status;

/// Most operations a patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// Applies all operations, or fails.
pub(super) fn patch(current: &Value, patch: &[u8]) -> Result<Value, Status> {
    let operations = match serde_json::from_slice(patch).map_err(|_| no_json())? {
        Value::Array(operations) => operations,
        Value::Null => return Ok(current.clone()),
        other => {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                kind_of(&other)
            )));
        }
    };
    if operations.len() > MAX_OPERATIONS {
        let given = operations.len();
        return Err(Status::too_large(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {given}"
        )));
    }
    let mut document = current.clone();
    for operation in &operations {
        // The server names neither the failed operation nor the cause.
        apply(&mut document, operation).ok_or_else(|| {
            let message = "the server rejected our request due to an error in our request";
            Status::new(422, "Invalid", message).with_empty_details()
        })?;
    }
    Ok(document)
}

/// Applies one operation. `None` if it fails.
fn apply(document: &mut Value, operation: &Value) -> Option<()> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => Location::find(document, path)?.add(value()),
        "remove" => Location::find(document, path)?.take().map(drop),
        "replace" if path.is_empty() => {
            *document = Some(value()).filter(|value| value.is_object() || value.is_array())?;
            Some(())
        }
        "replace" => Location::find(document, path)?.set(value()),
        "move" => {
            let moved = Location::find(document, text("from")?)?.take()?;
            Location::find(document, path)?.add(moved)
        }
        "copy" => {
            let copied = Location::find(document, text("from")?)?.get()?.clone();
            Location::find(document, path)?.add(copied)
        }
        "test" if path.is_empty() => (*document == value()).then_some(()),
        "test" => (*Location::find(document, path)?.get()? == value()).then_some(()),
        _ => None,
    }
}

/// The location that a path names, whether it exists or not.
struct Location<'a> {
    parent: &'a mut Value,
    key: String,
}

impl<'a> Location<'a> {
    fn find(document: &'a mut Value, path: &str) -> Option<Self> {
        let mut parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
        let mut key = parts.next()?;
        let mut parent = document;
        for next in parts {
            parent = Location { parent, key }.into_existing()?;
            key = next;
        }
        (parent.is_object() || parent.is_array()).then_some(Self { parent, key })
    }

    fn into_existing(self) -> Option<&'a mut Value> {
        match self.parent {
            Value::Object(members) => members.get_mut(&self.key),
            Value::Array(items) => {
                let index = index(&self.key, items.len())?;
                items.get_mut(index)
            }
            _ => None,
        }
    }

    /// Returns the value there, or null for a missing member.
    fn get(&self) -> Option<&Value> {
        match &*self.parent {
            Value::Object(members) => Some(members.get(&self.key).unwrap_or(&Value::Null)),
            Value::Array(items) => items.get(index(&self.key, items.len())?),
            _ => None,
        }
    }

    fn set(self, value: Value) -> Option<()> {
        match self.parent {
            Value::Object(members) => drop(members.insert(self.key, value)),
            Value::Array(items) => {
                let index = index(&self.key, items.len())?;
                *items.get_mut(index)? = value;
            }
            _ => return None,
        }
        Some(())
    }

    fn add(self, value: Value) -> Option<()> {
        match self.parent {
            Value::Array(items) => {
                let end = items.len();
                let at = if self.key == "-" { end } else { index(&self.key, end + 1)? };
                if at > end {
                    return None;
                }
                items.insert(at, value);
                Some(())
            }
            _ => self.set(value),
        }
    }

    fn take(self) -> Option<Value> {
        match self.parent {
            Value::Object(members) => members.remove(&self.key),
            Value::Array(items) => {
                let index = index(&self.key, items.len()).filter(|index| *index < items.len())?;
                Some(items.remove(index))
            }
            _ => None,
        }
    }
}

/// Parses an index into a list of `length` items; negative indices count from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    match key.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => key.parse().ok(),
    }
}
