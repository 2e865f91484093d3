//! Field selectors: apimachinery's `fields.ParseSelector` and each resource's selectable fields.

use std::borrow::Cow;

use serde_json::Value;

use crate::object;
use crate::resource::{Resource, Special};
use crate::status::Status;

/// A parsed field selector. All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses the query parameter `fieldSelector`, e.g. `metadata.name=a,spec.nodeName!=b`. Errors are the server's
    /// 400.
    ///
    /// `selectable` are the fields a CustomResourceDefinition declares (`selectableFields`, as `spec.color`); empty for
    /// built-in resources.
    pub fn parse(text: &str, resource: &Resource, selectable: &[String]) -> Result<Self, Status> {
        let mut terms = Vec::new();
        let mut parts = split_terms(text);
        parts.sort_unstable();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(Status::bad_request(message));
            };
            let value = unescape(value).map_err(Status::bad_request)?;
            terms.push((field, equal, value));
        }
        let known = |(field, equal, value): (&str, bool, String)| {
            let field = stored_field(field, resource, selectable).map_err(Status::bad_request)?.to_owned();
            Ok(Term { field, equal, value })
        };
        Ok(Self { terms: terms.into_iter().map(known).collect::<Result<_, Status>>()? })
    }

    /// Returns whether the object, in its stored form, matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }

    /// Returns whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the only name that can match, if the selector has one.
    pub fn name(&self) -> Option<&str> {
        self.required("metadata.name")
    }

    /// Returns the only namespace that can match, if the selector has one.
    pub fn namespace(&self) -> Option<&str> {
        self.required("metadata.namespace")
    }

    /// Returns whether the selector uses only name and namespace, so that the object need not be parsed.
    pub fn uses_only_names(&self) -> bool {
        self.terms.iter().all(|term| is_name(&term.field))
    }

    /// [`Self::matches`] for a selector that [uses names only](Self::uses_only_names).
    pub fn matches_name(&self, namespace: &str, name: &str) -> bool {
        self.terms.iter().all(|term| {
            let actual = if term.field == "metadata.name" { name } else { namespace };
            !is_name(&term.field) || (actual == term.value) == term.equal
        })
    }

    fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }
}

fn is_name(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}

/// Returns the field of the stored object for a field label of a request.
fn stored_field<'a>(field: &'a str, resource: &Resource, selectable: &[String]) -> Result<&'a str, String> {
    let fields: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        _ if resource.custom => {
            return if is_name(field) || selectable.iter().any(|known| known == field) {
                Ok(field)
            } else {
                Err(format!("field label not supported: {field}"))
            };
        }
        ("", "pods") => &[
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["metadata.namespace", "type"],
        ("", "services") => &["metadata.namespace", "spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["metadata.namespace", "status.replicas"],
        ("", "events") => &[
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => return stored_event_field(field),
        _ => {
            return if is_name(field) {
                Ok(field)
            } else {
                Err(format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
            };
        }
    };
    match field {
        "spec.host" if resource.special == Special::Pod => Ok("spec.nodeName"),
        _ if field == "metadata.name" || fields.contains(&field) => Ok(field),
        _ => Err(format!("field label not supported: {field}")),
    }
}

/// Events are stored in the core form, regardless of the group of the request.
fn stored_event_field(field: &str) -> Result<&str, String> {
    Ok(match field {
        "metadata.name" | "metadata.namespace" | "reason" | "type" => field,
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        _ => return Err(format!("field label not supported: {field}")),
    })
}

/// Returns the text that a field selector is compared with, `""` for a missing field.
fn field_text<'a>(object: &'a Value, field: &str) -> Cow<'a, str> {
    match field {
        // An event's source is its component, or the newer reporting controller.
        "source" => match object::text_at(object, &["source", "component"]) {
            "" => object::text_at(object, &["reportingComponent"]).into(),
            component => component.into(),
        },
        "status.podIP" => object.pointer("/status/podIPs/0/ip").and_then(Value::as_str).unwrap_or_default().into(),
        _ => match field.split('.').try_fold(object, |value, key| value.get(key)) {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Bool(truth)) => truth.to_string().into(),
            Some(Value::Number(number)) => number.to_string().into(),
            Some(_) => "".into(),
            // Go's zero values of fields that are not strings.
            None => match field {
                "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
                "status.replicas" => "0".into(),
                _ => "".into(),
            },
        },
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| {
        let splits = !escaped && character == ',';
        escaped = !escaped && character == '\\';
        splits
    })
    .collect()
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let (field, rest) = term.split_at(index);
        let operators = [("!=", false), ("==", true), ("=", true)];
        operators.iter().find_map(|(operator, equal)| Some((field, *equal, rest.strip_prefix(operator)?)))
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                let code = u32::from(character);
                return Err(format!("invalid field selector: unescaped character in value: {code}"));
            }
            _ => plain.push(character),
        }
    }
    Ok(plain)
}
