//! Values as Go prints them in error texts, and the diffs of `util/diff`. The server's internal types have no JSON
//! names: their JSON has all fields with their Go names, in Go's order.

use std::fmt::{self, Write as _};

use serde_json::Value;

use crate::defaults::schema::{Field, Kind, Struct, Type};

/// JSON whose objects keep the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GoValue {
    Plain(Value),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl GoValue {
    /// Converts a value of a type.
    pub(crate) fn of(value: &Value, ty: &Type) -> Self {
        if value.is_null() && ty.pointer {
            return Self::Plain(Value::Null);
        }
        match (&ty.kind, value) {
            (Kind::Struct(reference), _) => Self::structure(value, reference.structure()),
            (Kind::List(element), Value::Array(items)) => {
                Self::List(items.iter().map(|item| Self::of(item, element)).collect())
            }
            (Kind::Map(element), Value::Object(map)) => {
                Self::Object(map.iter().map(|(key, value)| (key.clone(), Self::of(value, element))).collect())
            }
            (Kind::Text, Value::Null) => Self::Plain("".into()),
            (Kind::Bool, Value::Null) => Self::Plain(false.into()),
            (Kind::Int32 | Kind::Int64, Value::Null) => Self::Plain(0.into()),
            (_, plain) => Self::Plain(plain.clone()),
        }
    }

    /// Converts a struct's value.
    pub(crate) fn structure(value: &Value, structure: &Struct) -> Self {
        Self::fields(value, structure, |_| true)
    }

    /// Converts the selected fields of a struct.
    pub(crate) fn fields(value: &Value, structure: &Struct, wanted: impl Fn(&Field) -> bool) -> Self {
        let fields = structure.fields_in_order().into_iter().filter(|field| wanted(field));
        // The server also uses the types of `meta` internally, so they have JSON names.
        if structure.is_meta() {
            let present =
                fields.filter_map(|field| Some((field.name.to_owned(), Self::of(value.get(field.name)?, &field.ty))));
            return Self::Object(present.collect());
        }
        let all = fields.map(|field| {
            (field.go_name.to_owned(), Self::of(value.get(field.name).unwrap_or(&Value::Null), &field.ty))
        });
        Self::Object(all.collect())
    }

    /// Formats like `json.MarshalIndent` with an indent of one space. The last line has no newline.
    fn pretty(&self, depth: usize, text: &mut String) {
        let (open, close, count) = match self {
            Self::List(items) => ('[', ']', items.len()),
            Self::Object(fields) => ('{', '}', fields.len()),
            Self::Plain(plain) => {
                text.push_str(&plain.to_string());
                return;
            }
        };
        text.push(open);
        for index in 0..count {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', depth + 1));
            match self {
                Self::Object(fields) => {
                    let (name, value) = &fields[index];
                    text.push_str(&format!("{}: ", Value::from(name.as_str())));
                    value.pretty(depth + 1, text);
                }
                Self::List(items) => items[index].pretty(depth + 1, text),
                Self::Plain(_) => {}
            }
            if index + 1 < count {
                text.push(',');
            }
        }
        if count > 0 {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', depth));
        }
        text.push(close);
    }
}

impl fmt::Display for GoValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(plain) => write!(formatter, "{plain}"),
            Self::List(items) => {
                formatter.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(formatter, "{}{item}", if index == 0 { "" } else { "," })?;
                }
                formatter.write_char(']')
            }
            Self::Object(fields) => {
                formatter.write_char('{')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(formatter, "{comma}{}:{value}", Value::from(name.as_str()))?;
                }
                formatter.write_char('}')
            }
        }
    }
}

/// Returns the unified diff of two values' JSON with three lines of context, like `diff.Diff` of apimachinery.
pub(crate) fn diff(old: &GoValue, new: &GoValue) -> String {
    let (mut old_text, mut new_text) = (String::new(), String::new());
    old.pretty(0, &mut old_text);
    new.pretty(0, &mut new_text);
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) =
        (old_text.split('\n').collect(), new_text.split('\n').collect());
    let mut matches = Vec::new();
    find_matches(&old_lines, &new_lines, (0, 0), &mut matches);
    write_hunks(&hunks(&matches, old_lines.len(), new_lines.len()), &old_lines, &new_lines)
}

/// A run of equal lines: its start in the old text, its start in the new one, its length.
type Match = (usize, usize, usize);

/// `difflib`: finds the longest run of equal lines (the first of several), then continues at both sides of it.
fn find_matches(old: &[&str], new: &[&str], start: (usize, usize), matches: &mut Vec<Match>) {
    let mut best = (0, 0, 0);
    for i in 0..old.len() {
        for j in 0..new.len() {
            let length = old[i..].iter().zip(&new[j..]).take_while(|(left, right)| left == right).count();
            if length > best.2 {
                best = (i, j, length);
            }
        }
    }
    let (i, j, length) = best;
    if length == 0 {
        return;
    }
    find_matches(&old[..i], &new[..j], start, matches);
    matches.push((start.0 + i, start.1 + j, length));
    find_matches(&old[i + length..], &new[j + length..], (start.0 + i + length, start.1 + j + length), matches);
}

/// One line of a diff: from the old text, the new text, or both.
enum Line {
    Same(usize, usize),
    Old(usize),
    New(usize),
}

const CONTEXT: usize = 3;

fn hunks(matches: &[Match], old: usize, new: usize) -> Vec<Vec<Line>> {
    let mut hunks: Vec<Vec<Line>> = vec![Vec::new()];
    let (mut at_old, mut at_new) = (0, 0);
    for (index, (i, j, length)) in matches.iter().copied().chain([(old, new, 0)]).enumerate() {
        let changed = at_old < i || at_new < j;
        let hunk = hunks.last_mut().expect("there is always one");
        hunk.extend((at_old..i).map(Line::Old));
        hunk.extend((at_new..j).map(Line::New));
        let same = |range: std::ops::Range<usize>| range.map(move |offset| Line::Same(i + offset, j + offset));
        let (first, last) = (index == 0 && !changed, i + length == old && j + length == new);
        if first {
            hunk.extend(same(length.saturating_sub(CONTEXT)..length));
        } else if last {
            hunk.extend(same(0..length.min(CONTEXT)));
        } else if length > 2 * CONTEXT {
            hunk.extend(same(0..CONTEXT));
            hunks.push(same(length - CONTEXT..length).collect());
        } else {
            hunk.extend(same(0..length));
        }
        (at_old, at_new) = (i + length, j + length);
    }
    hunks.retain(|hunk| hunk.iter().any(|line| !matches!(line, Line::Same(..))));
    hunks
}

fn write_hunks(hunks: &[Vec<Line>], old: &[&str], new: &[&str]) -> String {
    let mut text = String::new();
    let range = |indices: Vec<usize>| match indices.as_slice() {
        [] => "0,0".to_owned(),
        [one] => (one + 1).to_string(),
        [first, ..] => format!("{},{}", first + 1, indices.len()),
    };
    for hunk in hunks {
        let from_old = hunk.iter().filter_map(|line| match line {
            Line::Same(i, _) | Line::Old(i) => Some(*i),
            Line::New(_) => None,
        });
        let from_new = hunk.iter().filter_map(|line| match line {
            Line::Same(_, j) | Line::New(j) => Some(*j),
            Line::Old(_) => None,
        });
        text.push_str(&format!("@@ -{} +{} @@\n", range(from_old.collect()), range(from_new.collect())));
        for line in hunk {
            let (mark, line) = match line {
                Line::Same(i, _) => (' ', old[*i]),
                Line::Old(i) => ('-', old[*i]),
                Line::New(j) => ('+', new[*j]),
            };
            text.push(mark);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: &Value) -> GoValue {
        let structure = Struct::named("core/v1.PersistentVolumeSpec");
        GoValue::fields(value, structure, |field| field.embedded == "PersistentVolumeSource.")
    }

    #[test]
    fn diffs_a_changed_source_like_the_server() {
        let old = spec(&json!({"hostPath": {"path": "/x", "type": ""}}));
        let new = spec(&json!({"hostPath": {"path": "/y", "type": ""}}));
        let shown = "@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n-  \
                     \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n";
        assert_eq!(diff(&old, &new), shown);
        assert_eq!(diff(&old, &old), "");
    }

    #[test]
    fn prints_internal_types_with_go_names_and_all_fields() {
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "c", "operator": "In", "values": ["b"]}]}]}});
        let shown = GoValue::structure(&affinity, Struct::named("core/v1.VolumeNodeAffinity")).to_string();
        assert_eq!(
            shown,
            r#"{"Required":{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"c","Operator":"In","Values":["b"]}],"MatchFields":null}]}}"#
        );
    }
}
