//! A bucket's lifecycle, in the JSON of AWS's tools and in the XML of S3.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::xml::Element;

/// The rules of a bucket's lifecycle. It is deserialized from a text, as parameters are.
///
/// ```
/// use s3_client::lifecycle::Lifecycle;
///
/// let text = r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
/// assert!(!Lifecycle::parse(text)?.is_empty());
/// # Ok::<(), s3_client::lifecycle::LifecycleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Lifecycle {
    rules: Vec<Map<String, Value>>,
}

/// Why a text is no lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a lifecycle: {0}")]
pub struct LifecycleError(String);

impl TryFrom<String> for Lifecycle {
    type Error = LifecycleError;

    fn try_from(text: String) -> Result<Self, LifecycleError> {
        Self::parse(&text)
    }
}

impl Lifecycle {
    /// Reads the JSON of AWS's tools: `{"Rules":[...]}`.
    ///
    /// # Errors
    /// When the text is no JSON, or has other names or values than a lifecycle.
    pub fn parse(text: &str) -> Result<Self, LifecycleError> {
        let document: Value =
            serde_json::from_str(text).map_err(|error| LifecycleError(format!("it is no JSON: {error}")))?;
        let document = document.as_object().filter(|document| document.keys().all(|key| key == "Rules"));
        let rules = document.and_then(|document| document.get("Rules")?.as_array());
        let rules = rules.ok_or_else(|| LifecycleError("expected a JSON object with Rules, a list".to_owned()))?;
        let rule = |rule: &Value| {
            check("Rules", rule)?;
            rule.as_object().cloned().ok_or_else(|| LifecycleError("a rule is no object".to_owned()))
        };
        Ok(Self { rules: rules.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether both say the same: the order does not matter, and a rule without an ID is the same under any, since services
    /// invent one.
    pub fn same_as(&self, stored: &Self) -> bool {
        let mut left: Vec<Value> = stored.rules.iter().map(normal).collect();
        let found = |rule: &Map<String, Value>| {
            let rule = normal(rule);
            let place = left.iter().position(|other| same_rule(&rule, other));
            place.map(|place| left.remove(place)).is_some()
        };
        self.rules.len() == stored.rules.len() && self.rules.iter().all(found)
    }

    pub(crate) fn from_xml(root: &Element) -> Self {
        let rules = root.all("Rule").map(|rule| match read("Rules", rule) {
            Some(Value::Object(rule)) => rule,
            _ => Map::new(),
        });
        Self { rules: rules.collect() }
    }

    pub(crate) fn to_xml(&self) -> Element {
        let rules = self.rules.iter().map(|rule| write("Rule", &Value::Object(rule.clone())));
        Element::new("LifecycleConfiguration", rules.collect())
    }
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Truth,
    Object,
    /// A list, whose items are elements of this name.
    List(&'static str),
}

/// All names of a lifecycle, in the order of S3's schema. A name means the same everywhere.
const NAMES: &[(&str, Kind)] = &[
    ("ID", Kind::Text),
    ("Prefix", Kind::Text),
    ("Filter", Kind::Object),
    ("And", Kind::Object),
    ("Tag", Kind::Object),
    ("Tags", Kind::List("Tag")),
    ("Key", Kind::Text),
    ("Value", Kind::Text),
    ("ObjectSizeGreaterThan", Kind::Number),
    ("ObjectSizeLessThan", Kind::Number),
    ("Status", Kind::Text),
    ("Transitions", Kind::List("Transition")),
    ("NoncurrentVersionTransitions", Kind::List("NoncurrentVersionTransition")),
    ("Expiration", Kind::Object),
    ("NoncurrentVersionExpiration", Kind::Object),
    ("AbortIncompleteMultipartUpload", Kind::Object),
    ("Days", Kind::Number),
    ("Date", Kind::Text),
    ("ExpiredObjectDeleteMarker", Kind::Truth),
    ("NoncurrentDays", Kind::Number),
    ("NewerNoncurrentVersions", Kind::Number),
    ("StorageClass", Kind::Text),
    ("DaysAfterInitiation", Kind::Number),
];

fn kind(name: &str) -> Option<Kind> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// The name in JSON of an element. Tags are a list inside of `And` only.
fn json_name(parent: &str, element: &str) -> Option<(&'static str, Kind)> {
    let list = NAMES.iter().find(|(_, kind)| *kind == Kind::List(static_name(element)));
    let list = list.filter(|(name, _)| *name != "Tags" || parent == "And");
    list.or_else(|| NAMES.iter().find(|(name, _)| *name == element)).copied()
}

/// The static text of an item's name, for comparison.
fn static_name(element: &str) -> &'static str {
    ["Tag", "Transition", "NoncurrentVersionTransition"].into_iter().find(|name| *name == element).unwrap_or("-")
}

fn check(name: &str, value: &Value) -> Result<(), LifecycleError> {
    let Some(object) = value.as_object() else {
        return Err(LifecycleError(format!("{name} must be an object")));
    };
    for (key, value) in object {
        let Some(kind) = kind(key) else {
            return Err(LifecycleError(format!("{name} has {key:?}, which no lifecycle has")));
        };
        let fits = match kind {
            Kind::Text => value.is_string(),
            Kind::Number => value.is_u64(),
            Kind::Truth => value.is_boolean(),
            Kind::Object => value.is_object(),
            Kind::List(_) => value.is_array(),
        };
        if !fits {
            let expected = match kind {
                Kind::Text => "a text",
                Kind::Number => "a whole number",
                Kind::Truth => "true or false",
                Kind::Object => "an object",
                Kind::List(_) => "a list",
            };
            return Err(LifecycleError(format!("{key} of {name} must be {expected}")));
        }
        match kind {
            Kind::Object => check(key, value)?,
            Kind::List(_) => value.as_array().into_iter().flatten().try_for_each(|item| check(key, item))?,
            Kind::Text | Kind::Number | Kind::Truth => {}
        }
    }
    Ok(())
}

fn write(name: &str, value: &Value) -> Element {
    let Some(object) = value.as_object() else {
        return Element::with_text(name, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    };
    let mut children = Vec::new();
    for (name, kind) in NAMES {
        match (object.get(*name), kind) {
            (Some(Value::Array(items)), Kind::List(item)) => {
                children.extend(items.iter().map(|value| write(item, value)));
            }
            (Some(value), _) => children.push(write(name, value)),
            (None, _) => {}
        }
    }
    Element::new(name, children)
}

/// `None` for what a lifecycle of ours cannot say.
fn read(name: &str, element: &Element) -> Option<Value> {
    let mut object = Map::new();
    for child in &element.children {
        let Some((key, kind)) = json_name(name, &child.name) else { continue };
        let value = match kind {
            Kind::Text => Value::from(child.text.as_str()),
            Kind::Number => Value::from(child.text.trim().parse::<u64>().ok()?),
            Kind::Truth => Value::from(child.text.trim() == "true"),
            Kind::Object | Kind::List(_) => read(&child.name, child)?,
        };
        match kind {
            Kind::List(_) => {
                let list = object.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(value);
            }
            _ => drop(object.insert(key.to_owned(), value)),
        }
    }
    Some(Value::Object(object))
}

/// A rule with its lists in order and its filter flat. The prefix may stand beside the filter, in it or in its `And`, and the
/// empty one says nothing; services move it.
fn normal(rule: &Map<String, Value>) -> Value {
    let mut rule = rule.clone();
    let mut filter = match rule.remove("Filter") {
        Some(Value::Object(filter)) => filter,
        _ => Map::new(),
    };
    if let Some(Value::Object(and)) = filter.remove("And") {
        filter.extend(and);
    }
    if let Some(tag) = filter.remove("Tag") {
        filter.insert("Tags".to_owned(), Value::Array(vec![tag]));
    }
    if let Some(prefix) = rule.remove("Prefix") {
        filter.insert("Prefix".to_owned(), prefix);
    }
    filter.retain(|name, value| name != "Prefix" || *value != "");
    rule.insert("Filter".to_owned(), Value::Object(filter));
    sorted(Value::Object(rule))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(object.into_iter().map(|(key, value)| (key, sorted(value))).collect()),
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(sorted).collect();
            values.sort_by_key(Value::to_string);
            Value::Array(values)
        }
        single => single,
    }
}

fn same_rule(wanted: &Value, stored: &Value) -> bool {
    let mut stored = stored.clone();
    if let (None, Some(rule)) = (wanted.get("ID"), stored.as_object_mut()) {
        rule.remove("ID");
    }
    *wanted == stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    const RULES: &str = r#"{"Rules":[
        {"ID":"a","Status":"Enabled","Filter":{"And":{"Prefix":"logs/","Tags":[{"Key":"k","Value":"v"},{"Key":"l","Value":"w"}],
            "ObjectSizeGreaterThan":5}},"Expiration":{"Days":1},
            "Transitions":[{"Days":3,"StorageClass":"COLD"},{"Days":9,"StorageClass":"ICE"}]},
        {"ID":"b","Status":"Disabled","Filter":{"Tag":{"Key":"k","Value":"<v>"}},"Expiration":{"ExpiredObjectDeleteMarker":true},
            "NoncurrentVersionExpiration":{"NoncurrentDays":2,"NewerNoncurrentVersions":4},
            "AbortIncompleteMultipartUpload":{"DaysAfterInitiation":7}}]}"#;

    #[test]
    fn json_becomes_xml_and_back() {
        let lifecycle = Lifecycle::parse(RULES).unwrap();
        let written = lifecycle.to_xml().write();
        assert!(
            written.contains("<And><Prefix>logs/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><Tag>"),
            "{written}"
        );
        assert!(written.contains("<Tag><Key>k</Key><Value>&lt;v&gt;</Value></Tag>"), "{written}");
        assert_eq!(Lifecycle::from_xml(&xml::parse(&written).unwrap()), lifecycle);
    }

    #[test]
    fn the_same_in_other_words() {
        let one = |rules: &str| Lifecycle::parse(&format!("{{\"Rules\":{rules}}}")).unwrap();
        let wanted =
            one(r#"[{"Status":"Enabled","Prefix":"","Expiration":{"Days":1}},{"ID":"b","Status":"Disabled"}]"#);
        let stored = one(r#"[{"ID":"b","Status":"Disabled","Filter":{"Prefix":""}},
            {"ID":"x","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":1}}]"#);
        assert!(wanted.same_as(&stored));
        assert!(!stored.same_as(&wanted));
        // What the gateway of Ceph answers to a rule with `And`.
        let with = |filter: &str| one(&format!(r#"[{{"ID":"a","Status":"Enabled","Filter":{filter}}}]"#));
        let tagged = with(r#"{"And":{"Prefix":"c/","Tags":[{"Key":"k","Value":"v"}]}}"#);
        assert!(tagged.same_as(&with(r#"{"Prefix":"c/","Tag":{"Key":"k","Value":"v"}}"#)));
        assert!(!tagged.same_as(&with(r#"{"Prefix":"d/","Tag":{"Key":"k","Value":"v"}}"#)));
        assert!(!wanted.same_as(&one(r#"[{"ID":"b","Status":"Disabled"}]"#)));
    }

    #[test]
    fn what_is_no_lifecycle() {
        for (text, part) in [
            ("{", "it is no JSON"),
            ("[]", "expected a JSON object with Rules"),
            (r#"{"Rules":[1]}"#, "Rules must be an object"),
            (r#"{"Rules":[{"Statsu":"Enabled"}]}"#, "Rules has \"Statsu\", which no lifecycle has"),
            (r#"{"Rules":[{"Expiration":{"Days":"7"}}]}"#, "Days of Expiration must be a whole number"),
        ] {
            let error = Lifecycle::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
