//! Conversion between YAML and JSON.

use bytes::Bytes;
use serde_json::Value;

use crate::status::Status;

/// Converts a body to JSON. A body that is already JSON is returned unchanged.
pub(super) fn to_json(body: &Bytes) -> Result<Bytes, Status> {
    let start = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if start == Some(&b'{') && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return Ok(body.clone());
    }
    let refuse = |error: &dyn std::fmt::Display| Status::bad_request(format!("error converting YAML to JSON: {error}"));
    let text = std::str::from_utf8(body).map_err(|error| refuse(&error))?;
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| refuse(&error))?;
    Ok(Bytes::from(value.to_string()))
}

/// Converts a document to YAML.
pub(super) fn from_json(value: &Value) -> Result<Bytes, Status> {
    let text = serde_saphyr::to_string(value).map_err(|error| Status::internal(error.to_string()))?;
    Ok(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        let yaml = "kind: ConfigMap\ndata:\n  a: \"1\"\n  on: 'true'\n  text: |\n    two\n    lines\n";
        let json = to_json(&Bytes::from_static(yaml.as_bytes())).unwrap();
        let expected = serde_json::json!({
            "kind": "ConfigMap", "data": {"a": "1", "on": "true", "text": "two\nlines\n"},
        });
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), expected);
        let json = Bytes::from_static(br#" {"a": 1}"#);
        assert_eq!(to_json(&json).unwrap(), json);
        assert_eq!(to_json(&Bytes::from_static(b"a: [")).unwrap_err().code, 400);
    }
}
