//! JSON merge patch, RFC 7386.

use serde_json::Value;

use super::no_json;
use crate::status::Status;

/// Merges the patch into the object.
pub(super) fn patch(current: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch: Value = serde_json::from_slice(patch).map_err(|_| no_json())?;
    let found = match patch {
        Value::Object(_) => {
            let mut merged = current.clone();
            merge(&mut merged, patch);
            return Ok(merged);
        }
        Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    let message = format!("error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
    Err(Status::bad_request(message))
}

/// `MergePatch` of RFC 7386, section 2.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(members) = target {
        for (name, value) in patch {
            match value {
                Value::Null => drop(members.remove(&name)),
                _ => merge(members.entry(name).or_insert(Value::Null), value),
            }
        }
    }
}
