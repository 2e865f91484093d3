//! Access to fields of JSON objects from the API server, including timestamps.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Returns the text at this path; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// Returns the text at this path, unless it is empty.
pub(crate) fn optional_text<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    Some(text(object, path)).filter(|text| !text.is_empty())
}

pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

/// Returns the elements of a list; empty if there is no list.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the elements of a list of texts.
pub(crate) fn texts<'a>(object: &'a Value, path: &[&str]) -> Vec<&'a str> {
    items(object, path).iter().filter_map(Value::as_str).collect()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    optional_text(object, &["metadata", "annotations", key])
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    optional_text(object, &["metadata", "labels", key])
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    optional_text(object, &["metadata", "deletionTimestamp"]).is_some()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(object, &["metadata", "finalizers"])
}

pub(crate) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Formats how long ago a time was, in a single unit, similar to kubectl.
pub(crate) fn ago(now: Timestamp, time: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(time.as_second()).max(0);
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7199 => format!("{} min ago", seconds / 60),
        7200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_ages_in_a_single_unit() {
        let now = time("2030-01-03T00:00:00Z").unwrap();
        let recorded = |text: &str| ago(now, time(text).unwrap());
        assert_eq!(recorded("2030-01-02T23:59:30Z"), "30 s ago");
        assert_eq!(recorded("2030-01-02T23:30:00Z"), "30 min ago");
        assert_eq!(recorded("2030-01-02T12:00:00Z"), "12 h ago");
        assert_eq!(recorded("2030-01-01T00:00:00Z"), "2 days ago");
        assert_eq!(recorded("2031-01-01T00:00:00Z"), "0 s ago", "the clocks differ");
    }
}
