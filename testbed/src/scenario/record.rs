//! Compares runs with the recorded answers.

use std::fs;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::file::read_yaml;
use super::normal::normalise;
use super::{Run, Scenario};

/// The treatment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Compare the run with the recording.
    Compare,
    /// Compare the run of a program other than the recorded one. Ignores event texts, our own annotations, and the
    /// event that announces an attempt, which differ between programs.
    CompareOther,
    /// Record the run.
    Record,
}

/// A scenario whose answers differ from the recorded ones, with a readable difference.
#[derive(Debug)]
pub struct Disagreement(pub String);

/// Compares or records the outcome of a scenario. `run` is the name of the run.
pub fn judge(scenario: &Scenario, outcome: &Run, run: &str, verdict: Verdict) -> Result<(), Disagreement> {
    let is_other = verdict == Verdict::CompareOther;
    let mut answers = outcome.answers.clone();
    if is_other {
        answers.iter_mut().for_each(leave_out_texts);
    }
    let actual = normalise(&answers, &outcome.versions, run, scenario.managed_fields);
    let mut problems = Vec::new();
    problems.extend(outcome.failure.as_ref().map(|error| format!("it could not be done to its end: {error:#}")));
    let result = match verdict {
        Verdict::Record if outcome.failure.is_none() => write(scenario, &actual),
        // The differences show what happened before the failure.
        _ => compare(scenario, &actual, is_other),
    };
    problems.extend(result.err().map(|error| format!("{error:#}")));
    if problems.is_empty() {
        Ok(())
    } else {
        let Scenario { name, title, .. } = scenario;
        Err(Disagreement(format!("== {name}: {title}\n{}", problems.join("\n"))))
    }
}

fn compare(scenario: &Scenario, actual: &[Value], is_other: bool) -> anyhow::Result<()> {
    let mut expected: Vec<Value> =
        read_yaml(&scenario.expected).context("nothing is recorded, see scenarios/README.md")?;
    if is_other {
        expected.iter_mut().for_each(leave_out_texts);
    }
    if expected == actual {
        return Ok(());
    }
    let (mut expected, mut actual) = (yaml(&expected)?, yaml(actual)?);
    if is_other {
        (expected, actual) = (renumbered(&expected), renumbered(&actual));
    }
    if expected == actual {
        return Ok(());
    }
    let diff = TextDiff::from_lines(&expected, &actual);
    anyhow::bail!("{}", diff.unified_diff().context_radius(6).header("recorded", "answered"))
}

/// Removes the parts that differ between programs.
fn leave_out_texts(answer: &mut Value) {
    match answer {
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with("kube-provisioner/"));
            if let Some(Value::Array(events)) = fields.get_mut("events") {
                events.retain(|event| event["reason"] != "Provisioning");
                for event in events.iter_mut().filter_map(Value::as_object_mut) {
                    event.retain(|key, _| key == "reason" || key == "type" || key == "about");
                }
                events.dedup();
            }
            fields.values_mut().for_each(leave_out_texts);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_texts),
        _ => {}
    }
}

/// Renumbers uids by their order in the remaining text.
fn renumbered(text: &str) -> String {
    const TOKEN: &str = "<uid ";
    let (mut known, mut parts) = (Vec::new(), text.split(TOKEN));
    let mut renumbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('>').unwrap_or((part, ""));
        let place = known.iter().position(|one| *one == number).unwrap_or(known.len());
        if place == known.len() {
            known.push(number);
        }
        renumbered.push_str(&format!("{TOKEN}{}>{rest}", place + 1));
    }
    renumbered
}

fn write(scenario: &Scenario, actual: &[Value]) -> anyhow::Result<()> {
    let text = format!("# Recorded from the real servers; never written by hand.\n{}", yaml(actual)?);
    fs::write(&scenario.expected, text)?;
    let back: Vec<Value> = read_yaml(&scenario.expected)?;
    ensure!(back == actual, "{} does not read back as it was written", scenario.expected.display());
    Ok(())
}

fn yaml(answers: &[Value]) -> anyhow::Result<String> {
    let entries: Vec<_> = answers
        .iter()
        .map(|answer| Entry {
            step: &answer["step"],
            status: answer.get("status"),
            refusal: answer.get("refusal"),
            body: answer.get("body"),
            events: answer.get("events"),
        })
        .collect();
    Ok(serde_saphyr::to_string(&entries)?)
}

/// The parts of an answer in a readable order.
#[derive(Serialize)]
struct Entry<'a> {
    step: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'a Value>,
}
