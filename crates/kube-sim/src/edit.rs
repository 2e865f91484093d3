//! Objects that are edited on their way to a client.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// Changes an object of an answer.
pub(crate) type Edit = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// Edits the objects in a piece of an answer: a document, or whole lines of a watch.
pub(crate) fn edited(piece: &Bytes, edit: &Edit) -> Bytes {
    let mut edited = Vec::with_capacity(piece.len());
    for line in piece.split_inclusive(|byte| *byte == b'\n') {
        let Ok(mut value) = serde_json::from_slice::<Value>(line) else {
            edited.extend_from_slice(line);
            continue;
        };
        if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
            items.iter_mut().for_each(|item| edit(item));
        } else if value.get("type").is_some() && value.get("object").is_some() {
            edit(&mut value["object"]);
        } else {
            edit(&mut value);
        }
        // A value that was read as JSON can be written as JSON.
        let _ = serde_json::to_writer(&mut edited, &value);
        edited.push(b'\n');
    }
    edited.into()
}
