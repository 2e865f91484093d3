//! Bucket policies: adds and removes a provisioner's own statements, and leaves others unchanged.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A bucket policy in JSON. It is deserialized from a string, like parameters.
///
/// ```
/// use s3_client::policy::{Policy, allow};
///
/// let mut policy = Policy::parse(r#"{"Version":"2012-10-17","Statement":{"Sid":"theirs","Effect":"Deny"}}"#)?;
/// policy.upsert(allow("mine", "arn:aws:iam:::user/me", &["s3:GetObject"], &["arn:aws:s3:::photos/*"]));
/// assert!(policy.to_string().contains("theirs"));
/// assert!(policy.remove("mine"));
/// # Ok::<(), s3_client::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Policy {
    document: Map<String, Value>,
    statements: Vec<Value>,
}

/// The error for a text that is not a valid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a bucket policy: {0}")]
pub struct PolicyError(String);

impl TryFrom<String> for Policy {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        Self::parse(&text)
    }
}

impl Policy {
    /// Parses a policy. Its statements are left for the service to check.
    ///
    /// # Errors
    /// Fails if the text is not a JSON object with statements.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let wrong = |what: String| Err(PolicyError(what));
        let mut document = match serde_json::from_str(text) {
            Ok(Value::Object(document)) => document,
            Ok(_) => return wrong("expected a JSON object with Version and Statement".to_owned()),
            Err(error) => return wrong(format!("it is not valid JSON: {error}")),
        };
        let statements = match document.remove("Statement") {
            Some(Value::Array(statements)) => statements,
            Some(statement @ Value::Object(_)) => vec![statement],
            Some(_) => return wrong("its Statement is not a list of objects".to_owned()),
            None => return wrong("it has no Statement".to_owned()),
        };
        if statements.iter().any(|statement| !statement.is_object()) {
            return wrong("its Statement is not a list of objects".to_owned());
        }
        Ok(Self { document, statements })
    }

    /// Returns true if there are no statements.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Returns the statements.
    pub fn statements(&self) -> impl Iterator<Item = &Value> {
        self.statements.iter()
    }

    /// Returns the statement with this Sid.
    pub fn statement(&self, sid: &str) -> Option<&Value> {
        self.statements.iter().find(|statement| has_sid(statement, sid))
    }

    /// Replaces the statements with the same Sid, or appends the statement.
    pub fn upsert(&mut self, statement: Value) {
        let sid = statement.get("Sid").and_then(Value::as_str).unwrap_or_default().to_owned();
        match self.statements.iter().position(|other| has_sid(other, &sid)) {
            Some(place) => {
                self.statements[place] = statement;
                let mut index = 0;
                self.statements.retain(|other| {
                    index += 1;
                    index <= place + 1 || !has_sid(other, &sid)
                });
            }
            None => self.statements.push(statement),
        }
    }

    /// Removes the statements with this Sid. Returns true if there were any.
    pub fn remove(&mut self, sid: &str) -> bool {
        let before = self.statements.len();
        self.statements.retain(|statement| !has_sid(statement, sid));
        self.statements.len() < before
    }

    /// Returns true if both are equivalent: the order of statements and lists does not matter, and a list of one
    /// element equals the element.
    pub fn is_equivalent_to(&self, other: &Self) -> bool {
        let meaning = |policy: &Self| {
            let statements: BTreeSet<String> = policy.statements.iter().map(|each| normal(each).to_string()).collect();
            (policy.document.get("Version").cloned(), policy.document.get("Id").cloned(), statements)
        };
        meaning(self) == meaning(other)
    }
}

impl Default for Policy {
    /// Creates a policy without statements.
    fn default() -> Self {
        let document = Map::from_iter([("Version".to_owned(), Value::from("2012-10-17"))]);
        Self { document, statements: Vec::new() }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut document = self.document.clone();
        document.insert("Statement".to_owned(), Value::Array(self.statements.clone()));
        Value::Object(document).fmt(f)
    }
}

/// Returns a statement that allows a user these actions on these resources.
pub fn allow(sid: &str, principal: &str, actions: &[&str], resources: &[&str]) -> Value {
    json!({
        "Sid": sid,
        "Effect": "Allow",
        "Principal": { "AWS": [principal] },
        "Action": actions,
        "Resource": resources,
    })
}

fn has_sid(statement: &Value, sid: &str) -> bool {
    !sid.is_empty() && statement.get("Sid").and_then(Value::as_str) == Some(sid)
}

/// Normalizes a statement: every text becomes a list, and every list is sorted.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let entry = |(key, value): (&String, &Value)| {
                let value = match key.as_str() {
                    "Action" | "NotAction" => normal(&lower(value.clone())),
                    "Principal" if value == "*" => normal(&json!({ "AWS": "*" })),
                    _ => normal(value),
                };
                (key.clone(), value)
            };
            Value::Object(object.iter().map(entry).collect())
        }
        Value::Array(values) => {
            let mut values: Vec<Value> = values.iter().map(scalar).collect();
            values.sort_by_key(Value::to_string);
            values.dedup();
            Value::Array(values)
        }
        single => Value::Array(vec![scalar(single)]),
    }
}

/// Converts actions to lower case, because they are case-insensitive.
fn lower(value: Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.to_ascii_lowercase()),
        Value::Array(values) => Value::Array(values.into_iter().map(lower).collect()),
        other => other,
    }
}

/// Converts a value in a condition to text: `true` and `"true"` are equivalent there, as are numbers and their texts.
fn scalar(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Null => value.clone(),
        Value::Bool(_) | Value::Number(_) => Value::from(value.to_string()),
        Value::Array(_) | Value::Object(_) => normal(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(statements: Value) -> Policy {
        Policy::parse(&json!({ "Version": "2012-10-17", "Statement": statements }).to_string()).unwrap()
    }

    #[test]
    fn keeps_foreign_statements() {
        let theirs = json!({ "Sid": "theirs", "Effect": "Deny", "Unknown": [1] });
        let mine = |action: &str| json!({ "Sid": "mine", "Action": action });
        let nameless = json!({ "Effect": "Allow" });
        let mut changed = policy(json!([theirs, mine("a"), nameless, mine("b")]));
        changed.upsert(mine("c"));
        assert_eq!(changed, policy(json!([theirs, mine("c"), nameless])));
        assert_eq!(changed.statement("mine"), Some(&mine("c")));
        assert!(changed.remove("mine"));
        assert!(!changed.remove("mine"));
        assert!(!changed.remove(""));
        assert_eq!(changed, policy(json!([theirs, nameless])));
        assert!(changed.remove("theirs") && !changed.is_empty());
    }

    #[test]
    fn recognizes_equivalent_policies() {
        let one = json!({ "Sid": "s", "Principal": "*", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": "r",
            "Condition": { "Bool": { "aws:SecureTransport": true } } });
        let other = json!({ "Resource": ["r"], "Action": ["S3:getobject", "s3:PutObject"], "Sid": "s",
            "Principal": { "AWS": ["*"] }, "Condition": { "Bool": { "aws:SecureTransport": "true" } } });
        let more = json!({ "Sid": "t" });
        assert!(policy(one.clone()).is_equivalent_to(&policy(json!([other]))));
        assert!(policy(json!([one, more])).is_equivalent_to(&policy(json!([more, other]))));
        assert!(!policy(json!([one, more])).is_equivalent_to(&policy(json!([other]))));
        let another = json!({ "Sid": "s", "Resource": "R" });
        assert!(!policy(json!({ "Sid": "s", "Resource": "r" })).is_equivalent_to(&policy(another)));
    }

    #[test]
    fn rejects_invalid_policies() {
        let error = |text| Policy::parse(text).unwrap_err().to_string();
        assert!(error("{oops").starts_with("not a bucket policy: it is not valid JSON: "), "{}", error("{oops"));
        for text in ["[]", "1", "{}", "{\"Statement\":1}", "{\"Statement\":[1]}"] {
            assert!(error(text).starts_with("not a bucket policy: "), "{text}");
        }
    }
}
