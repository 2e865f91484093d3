//! An answer, for users and for scripts.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Beginning of the reason for a claim that the controllers' rules do not block.
pub(crate) const NO_OBSTACLE: &str = "Kubernetes is not blocking this claim";

/// The prefix of remedies for which the claim's owner may lack permission.
const ADMINISTRATOR: &str = "administrator: ";

/// An answer about one object, or a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    /// The object that the answer is about.
    pub subject: String,
    /// The state of the object in a few words.
    pub state: String,
    /// The controller's decision, as named in its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The reasons for the state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// Remedies: for the claim's owner, or for an administrator if the text begins with `administrator: `.
    #[serde(rename = "do", skip_serializing_if = "Vec::is_empty")]
    pub remedy: Vec<String>,
    /// Other known facts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// The events about the object, the latest one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// A table as text.
    #[serde(skip)]
    pub table: String,
    /// The table as data.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub items: Value,
    /// Objects that could not be read, and the information missing as a result.
    pub unknown: Vec<String>,
}

/// A known fact.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// The topic.
    pub about: &'static str,
    /// The fact.
    pub text: String,
}

impl Answer {
    pub(crate) fn new(subject: impl Into<String>, state: impl Into<String>) -> Self {
        Self { subject: subject.into(), state: state.into(), ..Self::default() }
    }

    pub(crate) fn add_fact(&mut self, about: &'static str, text: impl Into<String>) {
        self.facts.push(Fact { about, text: text.into() });
    }

    /// Adds a reason why the provisioner cannot complete the request.
    pub(crate) fn add_obstacle(&mut self, why: impl Into<String>) {
        if self.why.first().is_some_and(|first| first.starts_with(NO_OBSTACLE)) {
            self.why.clear();
            self.state.push_str(", and is blocked");
        }
        self.why.push(why.into());
    }

    /// Formats the answer for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if !self.subject.is_empty() {
            line(&mut text, "", &format!("{}: {}", self.subject, self.state));
        } else if !self.state.is_empty() {
            line(&mut text, "", &self.state);
        }
        self.why.iter().for_each(|why| line(&mut text, "  ", why));
        for remedy in &self.remedy {
            match remedy.strip_prefix(ADMINISTRATOR) {
                Some(remedy) => line(&mut text, "  Do (administrator): ", remedy),
                None => line(&mut text, "  Do: ", remedy),
            }
        }
        self.table.lines().for_each(|row| line(&mut text, "", row));
        if !self.facts.is_empty() {
            text.push('\n');
        }
        let width = self.facts.iter().map(|fact| fact.about.len()).max().unwrap_or_default();
        for Fact { about, text: known } in &self.facts {
            line(&mut text, &format!("{about:width$}  "), known);
        }
        list(&mut text, "Events, the last one first:", &self.events);
        list(&mut text, "Not known:", &self.unknown);
        text
    }

    /// Formats the answer as one JSON object.
    pub(crate) fn json(&self) -> String {
        // Texts and JSON values can always be serialized.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        text.push('\n');
        line(text, "", title);
        lines.iter().for_each(|one| line(text, "  ", one));
    }
}

/// Writes one line without control characters, because text from objects must not move the terminal's cursor.
fn line(text: &mut String, before: &str, content: &str) {
    let clean: String = content.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(text, "{}", format!("{before}{clean}").trim_end());
}

/// Formats rows as columns.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let all = || [&head].into_iter().chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|at| all().map(|row| row[at].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for row in all() {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        line(&mut text, "", &cells.join("   "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_control_characters_in_text() {
        let answer = Answer { events: vec!["a\u{1b}[2Jb\nc".to_owned()], ..Answer::new("x", "y") };
        assert_eq!(answer.text(), "x: y\n\nEvents, the last one first:\n  a [2Jb c\n");
        assert!(answer.json().contains("\\u001b"));
    }
}
