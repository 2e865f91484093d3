//! The subset of JSONPath for printer columns: fields, indices, wildcards and filters by equality.

use serde_json::Value;

/// A path such as `.status.conditions[?(@.type=="Ready")].status`.
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// Counts from the end if it is negative.
    Index(i64),
    All,
    Filter(Vec<String>, Value),
}

impl JsonPath {
    /// `None` for an unsupported path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.push(step);
            rest = after;
        }
        Some(Self(steps))
    }

    /// Returns the first value at the path.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut values = vec![object];
        for step in &self.0 {
            values = values.into_iter().flat_map(|value| step.of(value)).collect();
        }
        values.first().copied()
    }
}

/// Returns the first step of a path, and the rest of it.
fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        if let Some(filter) = rest.strip_prefix("?(") {
            let (condition, rest) = filter.split_once(")]")?;
            let (path, value) = condition.split_once("==")?;
            let path = path.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
            let value = value.trim();
            let value = match unquoted(value) {
                Some(text) => Value::from(text),
                None => serde_json::from_str(value).ok()?,
            };
            return Some((Step::Filter(path, value), rest));
        }
        let (inner, rest) = rest.split_once(']')?;
        let step = match (inner, unquoted(inner)) {
            ("*", _) => Step::All,
            (_, Some(name)) => Step::Field(name.replace("\\.", ".")),
            (index, None) => Step::Index(index.parse().ok()?),
        };
        return Some((step, rest));
    }
    let text = text.strip_prefix('.')?;
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return Some((named(name), &text[position..])),
            other => name.push(other),
        }
    }
    Some((named(name), ""))
}

fn named(name: String) -> Step {
    if name == "*" { Step::All } else { Step::Field(name) }
}

fn unquoted(text: &str) -> Option<&str> {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"'))
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), value) => value.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let position = match index {
                    ..0 => items.len().checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
                    _ => usize::try_from(*index).ok(),
                };
                position.and_then(|position| items.get(position)).into_iter().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(members)) => members.values().collect(),
            (Self::Filter(path, wanted), Value::Array(items)) => {
                let of = |item: &'a Value| path.iter().try_fold(item, |value, name| value.get(name));
                items.iter().filter(|item| of(item) == Some(wanted)).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"list": [1, 2, 3]},
            "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "yes"}]},
        });
        let cases = [
            (".spec.list[0]", Some(json!(1))),
            (".spec.list[-1]", Some(json!(3))),
            (".spec.list[*]", Some(json!(1))),
            (".spec.list[7]", None),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("yes"))),
            (".status.conditions[?(@.type=='None')].status", None),
            (".metadata.annotations['a\\.b/c']", Some(json!("x"))),
            (".metadata.annotations.a\\.b/c", Some(json!("x"))),
            (".nothing.here", None),
        ];
        for (path, expected) in cases {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), expected.as_ref(), "{path}");
        }
        assert!(JsonPath::parse("spec").is_none());
    }
}
