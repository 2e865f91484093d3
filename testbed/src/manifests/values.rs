//! The values of a chart: their defaults, their JSON schema and their table, all from `schema.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A value, or a group of values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: String,
    #[serde(default)]
    about: Option<String>,
    #[serde(default)]
    default: Option<Value>,
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    values: Vec<Entry>,
    /// The replacement of a value that only an earlier version or another chart has.
    #[serde(default)]
    renamed: Option<String>,
}

const BEGIN: &str = "<!-- values: written by `cargo xtask manifests` -->\n";
const END: &str = "<!-- end of values -->";

/// Merges the texts: later texts add values, or replace parts of a value with the same name. `image.repository` names a
/// value in a group.
fn merged(texts: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for text in texts {
        for entry in serde_saphyr::from_str::<Vec<Entry>>(text)? {
            merge(&mut entries, entry)?;
        }
    }
    Ok(entries)
}

fn merge(entries: &mut Vec<Entry>, entry: Entry) -> anyhow::Result<()> {
    let Some(known) = find(entries, &entry.name) else {
        ensure!(!entry.name.contains('.'), "no value {} to change", entry.name);
        entries.push(entry);
        return Ok(());
    };
    known.about = entry.about.or_else(|| known.about.take());
    known.default = entry.default.or_else(|| known.default.take());
    known.schema = entry.schema.or_else(|| known.schema.take());
    known.renamed = entry.renamed.or_else(|| known.renamed.take());
    entry.values.into_iter().try_for_each(|value| merge(&mut known.values, value))
}

/// The values in these files of `deploy/charts` and in the chart's own file.
pub(super) fn read(shared: &[&str], chart: &Path) -> anyhow::Result<Vec<Entry>> {
    let own = chart.join("schema.yaml");
    let files = shared.iter().map(|file| Path::new("deploy/charts").join(file)).chain([own.clone()]);
    let texts: Vec<String> = files.map(|file| super::read(&file)).collect::<Result<_, _>>()?;
    merged(&texts).with_context(|| own.display().to_string())
}

/// The content of `values.yaml`.
pub(super) fn defaults(entries: &[Entry]) -> String {
    let mut text = "# Written by `cargo xtask manifests` from schema.yaml, which is the file to change.\n".to_owned();
    for entry in current(entries) {
        text.push('\n');
        if entry.values.is_empty() {
            text.push_str(&line(entry, ""));
            continue;
        }
        text.push_str(&format!("{}:\n", entry.name));
        current(&entry.values).for_each(|value| text.push_str(&line(value, "  ")));
    }
    text
}

/// The content of `values.schema.json`.
///
/// It accepts renamed values, because the template `common.checks` refuses them with a better message.
pub(super) fn schema(chart: &str, entries: &[Entry]) -> Value {
    let mut all = properties(entries);
    // Helm passes these values to every chart.
    all.insert("global".into(), json!({"type": "object"}));
    all.insert("common".into(), json!({"type": "object"}));
    let mut schema = object(all);
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema["title"] = format!("Values of {chart}").into();
    schema
}

/// The content of `files/renamed.yaml`: values that the chart does not have, with their replacements.
pub(super) fn renamed(entries: &[Entry]) -> anyhow::Result<String> {
    let mut texts = BTreeMap::new();
    for entry in entries {
        let group = entry.values.iter().map(|value| (format!("{}.{}", entry.name, value.name), value));
        for (name, value) in group.chain([(entry.name.clone(), entry)]) {
            texts.extend(value.renamed.clone().map(|text| (name, text)));
        }
    }
    let text = serde_saphyr::to_string(&texts)?;
    Ok(format!(
        "# Values of earlier versions and of other charts. Written by `cargo xtask manifests` from schema.yaml.\n{text}"
    ))
}

/// A README with the table of values between its two marks.
pub(super) fn with_table(readme: &str, entries: &[Entry]) -> anyhow::Result<String> {
    let (before, rest) = readme.split_once(BEGIN).context("README.md has no mark where the values begin")?;
    let (_, after) = rest.split_once(END).context("README.md has no mark where the values end")?;
    let mut table = "| value | default | |\n|---|---|---|\n".to_owned();
    for entry in current(entries) {
        if entry.values.is_empty() {
            table.push_str(&row(entry, ""));
        }
        let group = format!("{}.", entry.name);
        current(&entry.values).for_each(|value| table.push_str(&row(value, &group)));
    }
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn current(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.renamed.is_none())
}

fn find<'a>(entries: &'a mut [Entry], name: &str) -> Option<&'a mut Entry> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let entry = entries.iter_mut().find(|entry| entry.name == first)?;
    match rest {
        Some(rest) => find(&mut entry.values, rest),
        None => Some(entry),
    }
}

fn line(entry: &Entry, indent: &str) -> String {
    let about = entry.about.as_deref().unwrap_or_default();
    format!("{indent}# {about}\n{indent}{}: {}\n", entry.name, default_of(entry))
}

fn row(entry: &Entry, group: &str) -> String {
    let about = entry.about.as_deref().unwrap_or_default().replace('|', "\\|");
    format!("| `{group}{}` | `{}` | {about} |\n", entry.name, default_of(entry))
}

/// Returns the default as JSON, which is valid YAML.
fn default_of(entry: &Entry) -> &Value {
    entry.default.as_ref().unwrap_or(&Value::Null)
}

fn properties(entries: &[Entry]) -> Map<String, Value> {
    let property = |entry: &Entry| {
        let mut schema = match entry.values.as_slice() {
            [] => entry.schema.clone().unwrap_or_else(|| json!({})),
            values => object(properties(values)),
        };
        if let Some(about) = &entry.about {
            schema["description"] = about.as_str().into();
        }
        (entry.name.clone(), schema)
    };
    entries.iter().map(property).collect()
}

fn object(properties: Map<String, Value>) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "- name: image\n  values:\n    - {name: tag, about: Its tag, default: '', schema: {type: string}}\n\
                          - {name: options, renamed: use `extraEnv`}\n";

    #[test]
    fn charts_override_add_and_rename_shared_values() -> anyhow::Result<()> {
        let own = "- {name: image.tag, default: '1'}\n- {name: root, about: Where, default: /a, schema: {type: string}}\n\
                   - name: image\n  values:\n    - {name: id, renamed: use `image.digest`}\n";
        let entries = merged(&[COMMON.to_owned(), own.to_owned()])?;
        let values = defaults(&entries);
        assert!(values.ends_with("\nimage:\n  # Its tag\n  tag: \"1\"\n\n# Where\nroot: \"/a\"\n"), "{values}");
        let schema = schema("a", &entries);
        assert_eq!(schema["properties"]["image"]["properties"]["tag"]["type"], "string");
        assert_eq!(schema["properties"]["options"], json!({}));
        assert!(
            renamed(&entries)?.ends_with("image.id: use `image.digest`\noptions: use `extraEnv`\n"),
            "{}",
            renamed(&entries)?
        );
        let readme = with_table(&format!("a\n{BEGIN}old{END}\nb\n"), &entries)?;
        assert!(
            readme.contains("| `image.tag` | `\"1\"` | Its tag |\n") && readme.ends_with(&format!("|\n{END}\nb\n")),
            "{readme}"
        );
        assert!(!readme.contains("options") && !readme.contains("image.id"), "{readme}");
        assert!(merged(&[COMMON.to_owned(), "- {name: image.unknown, default: 1}".to_owned()]).is_err());
        Ok(())
    }
}
