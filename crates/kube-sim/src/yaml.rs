//! Parsing of YAML in requests.

use serde_json::Value;

/// Parses YAML to a JSON value.
pub(crate) fn read_yaml(yaml: &[u8]) -> Result<Value, String> {
    let text = str::from_utf8(yaml).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The most common error has Go's text. Others have the text of the YAML library.
        const NESTED: &str = "mapping values are not allowed in this context";
        let text = error.to_string();
        let why = if text.contains(NESTED) { NESTED } else { &text };
        format!("yaml: {why}")
    })
}
