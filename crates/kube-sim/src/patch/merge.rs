//! JSON merge patch, RFC 7386.

use serde_json::Value;

use crate::go_json::kind_of;
use crate::status::Status;

/// Merges the patch into the object.
pub(super) fn patch(current: &Value, patch: Value) -> Result<Value, Status> {
    match patch {
        Value::Object(_) => {
            let mut merged = current.clone();
            merge_patch(&mut merged, patch);
            Ok(merged)
        }
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            kind_of(&other)
        ))),
    }
}

/// Applies a JSON merge patch to `target`: `MergePatch` of RFC 7386, section 2.
pub fn merge_patch(target: &mut Value, patch: Value) {
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
                _ => merge_patch(members.entry(name).or_insert(Value::Null), value),
            }
        }
    }
}
