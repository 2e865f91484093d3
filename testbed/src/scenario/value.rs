//! Variables, templates and long strings in the values of a scenario.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kube_sim::merge_patch;
use serde_json::{Map, Value};

/// The values of `$(…)` and `like:`.
pub(super) struct Variables<'a> {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) objects: &'a BTreeMap<String, Value>,
}

impl Variables<'_> {
    /// Returns the value with all variables replaced.
    pub(super) fn fill(&self, value: &Value) -> anyhow::Result<Value> {
        Ok(match value {
            Value::String(text) => self.fill_text(text)?,
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect::<anyhow::Result<_>>()?,
            Value::Object(fields) => match (fields.get("repeat"), fields.get("times"), fields.get("like")) {
                (Some(Value::String(text)), Some(times), None) if fields.len() == 2 => {
                    text.repeat(times.as_u64().context("`times` is a number")? as usize).into()
                }
                (_, _, Some(like)) => self.fill_like(like, fields)?,
                _ => self.fill_fields(fields)?,
            },
            other => other.clone(),
        })
    }

    pub(super) fn text(&self, text: &str) -> anyhow::Result<String> {
        Ok(match self.fill_text(text)? {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    fn fill_fields(&self, fields: &Map<String, Value>) -> anyhow::Result<Value> {
        let present = fields.iter().filter(|(_, value)| !self.is_left_out(value));
        let filled = present.map(|(key, value)| Ok((self.text(key)?, self.fill(value)?)));
        Ok(Value::Object(filled.collect::<anyhow::Result<_>>()?))
    }

    /// True if a field consists of one optional variable, such as `$(item.spec?)`, that is not set.
    fn is_left_out(&self, value: &Value) -> bool {
        let path = value.as_str().and_then(|text| text.strip_prefix("$(")?.strip_suffix("?)"));
        path.is_some_and(|path| self.find(path).is_none())
    }

    /// A shared object or an earlier answer, changed by a merge patch.
    fn fill_like(&self, like: &Value, fields: &Map<String, Value>) -> anyhow::Result<Value> {
        let name = like.as_str().context("`like` is a name")?;
        let mut object = match self.objects.get(name) {
            Some(object) => self.fill(object)?,
            None => self.values.get(name).with_context(|| format!("nothing is called {name}"))?.clone(),
        };
        let changes = fields.iter().filter(|(key, _)| *key != "like");
        let changes: Map<_, _> = changes.map(|(key, value)| (key.clone(), value.clone())).collect();
        merge_patch(&mut object, self.fill_fields(&changes)?);
        Ok(object)
    }

    /// Replaces variables. A string that consists of one variable takes the variable's type.
    fn fill_text(&self, text: &str) -> anyhow::Result<Value> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("$(") {
            let end = start + rest[start..].find(')').with_context(|| format!("a `)` is missing in {text}"))?;
            let value = self.look_up(&rest[start + 2..end])?;
            if start == 0 && end + 1 == text.len() {
                return Ok(value);
            }
            filled.push_str(&rest[..start]);
            match value {
                Value::String(value) => filled.push_str(&value),
                other => filled.push_str(&other.to_string()),
            }
            rest = &rest[end + 1..];
        }
        filled.push_str(rest);
        Ok(filled.into())
    }

    fn look_up(&self, path: &str) -> anyhow::Result<Value> {
        match (self.find(path.trim_end_matches('?')), path.ends_with('?')) {
            (Some(value), _) => Ok(value.clone()),
            (None, true) => Ok(Value::Null),
            (None, false) => bail!("there is no $({path})"),
        }
    }

    fn find(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('.');
        let mut value = parts.next().and_then(|name| self.values.get(name));
        for part in parts {
            value = match value {
                Some(Value::Array(items)) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                Some(value) => value.get(part),
                None => None,
            };
        }
        value
    }
}

/// True if `actual` contains everything in `wanted`: all fields of an object, a match for each item of a list, and no
/// value where `wanted` has null.
pub(super) fn holds(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (_, Value::Object(fields)) => {
            fields.iter().all(|(key, wanted)| holds(actual.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(items), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| items.iter().any(|item| holds(item, wanted)))
        }
        _ => actual == wanted,
    }
}

/// The parts of a value at some paths, such as `spec.capacity`. A path applies to all items of a list.
pub(super) fn pick(value: &Value, paths: &[&str]) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| pick(item, paths)).collect(),
        Value::Object(fields) => {
            let mut picked = Map::new();
            for (key, value) in fields {
                let below: Option<Vec<_>> = paths
                    .iter()
                    .filter_map(|path| path.strip_prefix(key.as_str()))
                    .filter(|rest| rest.is_empty() || rest.starts_with('.'))
                    .map(|rest| rest.strip_prefix('.'))
                    .collect();
                match below {
                    Some(paths) if paths.is_empty() => {}
                    Some(paths) => drop(picked.insert(key.clone(), pick(value, &paths))),
                    // A path ends here.
                    None => drop(picked.insert(key.clone(), value.clone())),
                }
            }
            Value::Object(picked)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_string_variables_keep_their_type() {
        let objects = BTreeMap::from([("map".to_owned(), json!({"kind": "ConfigMap", "data": {"a": "$(run)"}}))]);
        let values = BTreeMap::from([("run".to_owned(), json!("r")), ("x".to_owned(), json!({"n": [7]}))]);
        let variables = Variables { values, objects: &objects };
        assert_eq!(variables.fill(&json!("$(x.n.0)")).unwrap(), json!(7));
        assert_eq!(variables.fill(&json!("v$(x.n.0)-$(run)")).unwrap(), json!("v7-r"));
        assert_eq!(variables.fill(&json!({"repeat": "ab", "times": 2})).unwrap(), json!("abab"));
        let like = json!({"like": "map", "data": {"a": null, "b": "1"}});
        assert_eq!(variables.fill(&like).unwrap(), json!({"kind": "ConfigMap", "data": {"b": "1"}}));
        assert!(variables.fill(&json!("$(y)")).is_err());
        let optional = json!({"a": "$(y?)", "b": "$(x.n.0?)", "like": "map"});
        assert_eq!(variables.fill(&optional).unwrap(), json!({"kind": "ConfigMap", "data": {"a": "r"}, "b": 7}));
    }

    #[test]
    fn holds_accepts_partial_values() {
        let actual = json!({"status": {"phase": "Bound", "conditions": [{"type": "A"}, {"type": "B", "n": 1}]}});
        assert!(holds(&actual, &json!({"status": {"phase": "Bound", "conditions": [{"type": "B"}]}, "spec": null})));
        assert!(!holds(&actual, &json!({"status": {"conditions": [{"type": "C"}]}})));
        assert!(!holds(&actual, &json!({"status": null})));
    }

    #[test]
    fn pick_applies_to_all_list_items() {
        let value = json!({"items": [{"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}], "kind": "L", "kinds": 1});
        assert_eq!(
            pick(&value, &["items.a.b", "kind"]),
            json!({"items": [{"a": {"b": 1}}, {"a": {"b": 3}}], "kind": "L"})
        );
    }
}
