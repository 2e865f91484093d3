//! What a run is held against: the recorded answers.

use std::fs;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::file::read_yaml;
use super::normal::normalise;
use super::{Run, Scenario};

/// What to do with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Compare it with what is recorded.
    Compare,
    /// Record it.
    Record,
}

/// A scenario whose answers are not the recorded ones, with the difference for a person.
#[derive(Debug)]
pub struct Disagreement(pub String);

/// Compares or records what came of a scenario. `run` is the name of the run.
pub fn judge(scenario: &Scenario, outcome: &Run, run: &str, verdict: Verdict) -> Result<(), Disagreement> {
    let actual = normalise(&outcome.answers, &outcome.versions, run, scenario.managed_fields);
    let mut problems = Vec::new();
    problems.extend(outcome.failure.as_ref().map(|error| format!("it could not be done to its end: {error:#}")));
    let result = match verdict {
        Verdict::Record if outcome.failure.is_none() => write(scenario, &actual),
        // The rest tells what had happened until then.
        _ => compare(scenario, &actual),
    };
    problems.extend(result.err().map(|error| format!("{error:#}")));
    match problems.is_empty() {
        true => Ok(()),
        false => {
            let Scenario { name, title, .. } = scenario;
            Err(Disagreement(format!("== {name}: {title}\n{}", problems.join("\n"))))
        }
    }
}

fn compare(scenario: &Scenario, actual: &[Value]) -> anyhow::Result<()> {
    let expected: Vec<Value> = read_yaml(&scenario.expected).context("nothing is recorded, see scenarios/README.md")?;
    if expected == actual {
        return Ok(());
    }
    let (expected, actual) = (yaml(&expected)?, yaml(actual)?);
    let diff = TextDiff::from_lines(&expected, &actual);
    anyhow::bail!("{}", diff.unified_diff().context_radius(6).header("recorded", "answered"))
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

/// The parts of an answer in the order in which a person reads them.
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
