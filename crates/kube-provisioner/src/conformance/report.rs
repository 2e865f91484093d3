//! What a check found.

use std::fmt;
use std::time::Duration;

use super::verdict::Judgement;

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

    /// All that was judged, in the order of the rules.
    pub fn results(&self) -> &[RuleResult] {
        &self.results
    }

    /// Whether no rule is broken.
    pub fn is_kept(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The names of the rules that are broken.
    pub fn broken(&self) -> impl Iterator<Item = &'static str> {
        self.results.iter().filter(|result| matches!(result.judgement, Judgement::Broken(_))).map(RuleResult::rule)
    }

    /// The message of a failed test: every broken rule.
    pub(super) fn broken_text(&self) -> String {
        let broken = self.results.iter().filter(|result| matches!(result.judgement, Judgement::Broken(_)));
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

/// What was found of one rule.
#[derive(Clone, Debug)]
pub struct RuleResult {
    rule: &'static str,
    says: &'static str,
    judgement: Judgement,
    took: Duration,
}

impl RuleResult {
    pub(super) fn new(rule: &'static str, says: &'static str, judgement: Judgement, took: Duration) -> Self {
        Self { rule, says, judgement, took }
    }

    /// The rule's name, which is also its section in `docs/book/pages/reference/conformance.md`.
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// What the rule says, in a line.
    pub fn says(&self) -> &'static str {
        self.says
    }

    /// Whether it is kept.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// The real time that it took to check it.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl fmt::Display for RuleResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, says, judgement, took } = self;
        match judgement {
            Judgement::Kept => write!(f, "ok    {rule}: {says} ({:.1} s)", took.as_secs_f64()),
            Judgement::NotApplicable(why) => write!(f, "-     {rule}: not applicable, {why}"),
            Judgement::Broken(seen) => {
                write!(f, "FAIL  {rule}: {says}")?;
                seen.lines().try_for_each(|line| write!(f, "\n      {line}"))?;
                write!(f, "\n      see docs/book/pages/reference/conformance.md#{rule}")
            }
        }
    }
}
