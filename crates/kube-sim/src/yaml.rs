//! YAML in requests.

use serde_json::Value;

/// Reads YAML as if it were JSON.
pub(crate) fn read_yaml(yaml: &[u8]) -> Result<Value, String> {
    let text = str::from_utf8(yaml).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The one complaint that people meet; others are worded by the library that reads it.
        const NESTED: &str = "mapping values are not allowed in this context";
        let text = error.to_string();
        let why = if text.contains(NESTED) { NESTED } else { &text };
        format!("yaml: {why}")
    })
}
