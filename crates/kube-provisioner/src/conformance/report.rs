//! The results of a check.

use std::fmt;
use std::time::Duration;

use super::verdict::RuleVerdict;

/// The results of a check, rule by rule.
#[derive(Clone, Debug)]
pub struct Report {
    provisioner: &'static str,
    results: Vec<RuleResult>,
}

impl Report {
    pub(super) fn new(provisioner: &'static str, results: Vec<RuleResult>) -> Self {
        Self { provisioner, results }
    }

    /// Returns the results in the order of the rules.
    pub fn results(&self) -> &[RuleResult] {
        &self.results
    }

    /// Returns true if no rule is broken.
    pub fn is_kept(&self) -> bool {
        self.broken().next().is_none()
    }

    /// Returns the names of the broken rules.
    pub fn broken(&self) -> impl Iterator<Item = &'static str> {
        self.results.iter().filter(|result| matches!(result.verdict, RuleVerdict::Broken(_))).map(RuleResult::rule)
    }

    /// Returns the message of a failed test, with every broken rule.
    pub(super) fn broken_text(&self) -> String {
        let broken = self.results.iter().filter(|result| matches!(result.verdict, RuleVerdict::Broken(_)));
        let texts: Vec<String> = broken.map(ToString::to_string).collect();
        format!("{} breaks the contract\n{}", self.provisioner, texts.join("\n"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.provisioner)?;
        self.results.iter().try_for_each(|result| write!(f, "\n{result}"))
    }
}

/// The result of one rule.
#[derive(Clone, Debug)]
pub struct RuleResult {
    rule: &'static str,
    description: &'static str,
    verdict: RuleVerdict,
    took: Duration,
}

impl RuleResult {
    pub(super) fn new(rule: &'static str, description: &'static str, verdict: RuleVerdict, took: Duration) -> Self {
        Self { rule, description, verdict, took }
    }

    /// Returns the rule's name, which is also its section in `docs/book/pages/reference/conformance.md`.
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// Returns the rule's text, in one line.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Returns the verdict of the rule.
    pub fn verdict(&self) -> &RuleVerdict {
        &self.verdict
    }

    /// Returns the real time that the check took.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl fmt::Display for RuleResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, description, verdict, took } = self;
        match verdict {
            RuleVerdict::Kept => write!(f, "ok    {rule}: {description} ({:.1} s)", took.as_secs_f64()),
            RuleVerdict::NotApplicable(why) => write!(f, "-     {rule}: not applicable, {why}"),
            RuleVerdict::Broken(seen) => {
                write!(f, "FAIL  {rule}: {description}")?;
                seen.lines().try_for_each(|line| write!(f, "\n      {line}"))?;
                write!(f, "\n      see docs/book/pages/reference/conformance.md#{rule}")
            }
        }
    }
}
