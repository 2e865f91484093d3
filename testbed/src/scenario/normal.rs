//! Replaces values that differ between runs, so that two runs can be compared.
//!
//! Identity and order stay visible: equal uids become equal tokens, and the tokens of resource versions are numbered in
//! their order.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Longer strings are compared by their beginning and their length.
const LONG: usize = 1000;

/// The field of an answer that contains the `generateName` of its request.
pub(super) const GENERATE_NAME: &str = "generateName";

/// Normalizes the answers of one run. `versions` are the versions of its objects, and begin with the run's namespace.
pub(super) fn normalise(answers: &[Value], versions: &BTreeSet<u64>, run: &str, managed_fields: bool) -> Vec<Value> {
    let generated = answers.iter().filter_map(generated_name).collect();
    let mut normal = Normaliser { versions, generated, run, managed_fields, uids: Vec::new() };
    answers.iter().map(|answer| normal.value(answer, "")).collect()
}

/// The resource versions of all objects in an answer. Excludes the versions of lists, which depend on other clients'
/// writes.
pub(super) fn versions(value: &Value) -> Vec<u64> {
    match value {
        Value::Array(items) => items.iter().flat_map(versions).collect(),
        Value::Object(fields) => {
            let metadata = fields.get("metadata").filter(|_| !of_no_object(fields));
            let version = metadata.and_then(|metadata| metadata["resourceVersion"].as_str()?.parse().ok());
            version.into_iter().chain(fields.values().flat_map(versions)).collect()
        }
        _ => Vec::new(),
    }
}

/// A name that the server generated, and its prefix.
fn generated_name(answer: &Value) -> Option<(String, String)> {
    answer[GENERATE_NAME].as_str()?;
    let body = &answer["body"];
    let name = body["metadata"]["name"].as_str().or(body["details"]["name"].as_str())?;
    // The suffix has five letters.
    let base = name.get(..name.len().checked_sub(5)?)?;
    Some((name.to_owned(), base.to_owned()))
}

/// True for the fields of a list or a bookmark.
fn of_no_object(fields: &Map<String, Value>) -> bool {
    let metadata = fields.get("metadata");
    fields.contains_key("items") || metadata.is_some_and(|metadata| metadata.get("name").is_none())
}

/// Marks the resource version of a list or a bookmark, which must not be compared exactly.
pub(super) fn mark(body: &mut Value) {
    if body.as_object().is_some_and(of_no_object)
        && let Some(Value::String(version)) = body["metadata"].get_mut("resourceVersion")
    {
        version.insert_str(0, INEXACT);
    }
}

const INEXACT: &str = "about ";

struct Normaliser<'a> {
    versions: &'a BTreeSet<u64>,
    generated: Vec<(String, String)>,
    run: &'a str,
    managed_fields: bool,
    uids: Vec<String>,
}

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(20[0-9]{2})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z"));
/// The attribute with which a CSI sidecar marks the volumes that it has created since its start.
const PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
static IDENTITY: LazyLock<Regex> = LazyLock::new(|| pattern("^[0-9]{13}-[0-9]{1,4}-"));
static EVENT_NAME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\.[0-9a-f]{16}$"));
/// An error text that contains a patched object with all its managed fields.
static WHOLE_OBJECT: LazyLock<Regex> = LazyLock::new(|| pattern(r#"Invalid value: "\{.*\}": "#));
/// The oldest version that the server still has.
static OLDEST: LazyLock<Regex> = LazyLock::new(|| pattern(r"(too old resource version: [0-9]+) \([0-9]+\)"));
/// The resource versions in texts of refusals.
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(resource version: |ResourceVersion in precondition: |ResourceVersion in object meta: |current: |\()([0-9]+)\b",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern that the tests use")
}

impl Normaliser<'_> {
    fn value(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(text) => self.text(text, key).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item, key)).collect(),
            Value::Object(fields) => self.fields(fields, key),
            other => other.clone(),
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>, key: &str) -> Value {
        if let Some(refusal) = refusal(fields) {
            return self.value(&refusal, key);
        }
        let managed_fields = self.managed_fields;
        let normal = fields.iter().filter(|(name, _)| {
            // Only the answer has this field, not an object.
            let own = *name == GENERATE_NAME && key.is_empty();
            !own && (managed_fields || *name != "managedFields")
        });
        let normal = normal.map(|(name, value)| {
            let value = match (name.as_str(), value) {
                ("resourceVersion", Value::String(text)) => match text.strip_prefix(INEXACT) {
                    Some(text) => self.version(text, true).into(),
                    None => self.version(text, key != "metadata").into(),
                },
                ("continue", Value::String(text)) if !text.is_empty() => "<continue>".into(),
                _ => self.value(value, name),
            };
            (self.text(name, ""), value)
        });
        Value::Object(normal.collect())
    }

    fn version(&self, text: &str, inexact: bool) -> String {
        let Ok(version) = text.parse::<u64>() else { return text.to_owned() };
        match self.versions.range(..=version).count().checked_sub(1) {
            // A number that the scenario itself contains.
            None => text.to_owned(),
            Some(rank) if !inexact && self.versions.contains(&version) => format!("<rv {rank}>"),
            Some(rank) => format!("<rv {rank} or later>"),
        }
    }

    fn text(&mut self, text: &str, key: &str) -> String {
        let mut text = text.to_owned();
        for (index, (name, base)) in self.generated.iter().enumerate() {
            text = text.replace(name.as_str(), &format!("{base}<suffix {}>", index + 1));
        }
        text = text.replace(self.run, "$(run)");
        if key == PROVISIONER_IDENTITY {
            text = IDENTITY.replace(&text, "<time>-<number>-").into_owned();
        }
        if key == "name" {
            text = EVENT_NAME.replace(&text, ".<suffix>").into_owned();
        }
        text = UID.replace_all(&text, |found: &Captures<'_>| self.uid(&found[0])).into_owned();
        text = TIME.replace_all(&text, time).into_owned();
        if key == "message" || key == "reason" {
            text = WHOLE_OBJECT.replace(&text, "Invalid value: \"<object>\": ").into_owned();
            text = OLDEST.replace(&text, "$1 (<oldest>)").into_owned();
            // The newest version depends on other clients' writes.
            let replace =
                |found: &Captures<'_>| format!("{}{}", &found[1], self.version(&found[2], &found[1] == "current: "));
            text = VERSION.replace_all(&text, replace).into_owned();
        }
        match text.chars().count() {
            length if length > LONG => format!("{}… ({length} characters)", text.chars().take(40).collect::<String>()),
            _ => text,
        }
    }

    fn uid(&mut self, uid: &str) -> String {
        // A uid that the scenario itself contains.
        if uid.starts_with("00000000-") {
            return uid.to_owned();
        }
        let known = self.uids.iter().position(|known| known == uid);
        let index = known.unwrap_or_else(|| {
            self.uids.push(uid.to_owned());
            self.uids.len() - 1
        });
        format!("<uid {}>", index + 1)
    }
}

/// Times before 2020 come from the scenario itself.
fn time(found: &Captures<'_>) -> String {
    let token = if found.get(2).is_some() { "<time with microseconds>" } else { "<time>" };
    if &found[1] < "2020" { found[0].to_owned() } else { token.to_owned() }
}

/// A refusal, without the fields that are equal in all refusals.
fn refusal(fields: &Map<String, Value>) -> Option<Value> {
    let status = fields.get("status")?.as_u64()?;
    let mut body = fields.get("body")?.as_object()?.clone();
    let constant = [
        ("kind", json!("Status")),
        ("apiVersion", json!("v1")),
        ("metadata", json!({})),
        ("status", json!("Failure")),
        ("code", json!(status)),
    ];
    for (name, value) in constant {
        if body.remove(name)? != value {
            return None;
        }
    }
    let mut short = fields.clone();
    short.remove("body");
    short.insert("refusal".to_owned(), body.into());
    Some(short.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID_A: &str = "0b4e6d2a-6a4c-4b3e-9f70-1f2e3d4c5b6a";

    #[test]
    fn replaces_values_that_differ_between_runs() {
        let mut list = json!({"kind": "List", "items": [], "metadata": {"resourceVersion": "31", "continue": "abc"}});
        mark(&mut list);
        let answers = [
            json!({"step": "create", "generateName": "a-", "status": 201, "body": {"metadata": {
                "name": "a-x7b2c", "generateName": "a-", "uid": UID_A, "resourceVersion": "31",
                "creationTimestamp": "2026-11-20T12:00:00Z", "managedFields": [1], "labels": {"r-1": "r-1"}}}}),
            json!({"body": {"metadata": {"name": "b", "resourceVersion": "7"}, "volume": format!("pvc-{UID_A}")}}),
            json!({"body": list}),
            json!({"status": 409, "body": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": 409, "reason": "Conflict", "message": "current: 31, a-x7b2c, of 31"}}),
            json!({"renewTime": "2001-01-01T00:00:00.000000Z", "microTime": "2026-01-01T00:00:00.000001Z"}),
        ];
        let versions: BTreeSet<_> = answers.iter().flat_map(versions).chain([3]).collect();
        assert_eq!(versions, BTreeSet::from([3, 7, 31]));
        let expected = [
            json!({"step": "create", "status": 201, "body": {"metadata": {
                "name": "a-<suffix 1>", "generateName": "a-", "uid": "<uid 1>", "resourceVersion": "<rv 2>",
                "creationTimestamp": "<time>", "labels": {"$(run)": "$(run)"}}}}),
            json!({"body": {"metadata": {"name": "b", "resourceVersion": "<rv 1>"}, "volume": "pvc-<uid 1>"}}),
            json!({"body": {"kind": "List", "items": [],
                "metadata": {"resourceVersion": "<rv 2 or later>", "continue": "<continue>"}}}),
            json!({"status": 409, "refusal": {"reason": "Conflict", "message": "current: <rv 2 or later>, a-<suffix 1>, of 31"}}),
            json!({"renewTime": "2001-01-01T00:00:00.000000Z", "microTime": "<time with microseconds>"}),
        ];
        assert_eq!(normalise(&answers, &BTreeSet::from([3, 7, 31]), "r-1", false), expected);
    }

    #[test]
    fn keeps_a_refusal_whose_code_differs_from_the_status() {
        let odd = json!({"status": 200, "body": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": 410,
            "status": "Failure"}});
        assert_eq!(normalise(std::slice::from_ref(&odd), &BTreeSet::new(), "r-1", false), [odd]);
    }

    #[test]
    fn long_texts_are_cut() {
        let answers = [json!({"data": "a".repeat(5000)})];
        let data = format!("{}… (5000 characters)", "a".repeat(40));
        assert_eq!(normalise(&answers, &BTreeSet::from([3, 7, 31]), "r-1", false), [json!({"data": data})]);
    }
}
