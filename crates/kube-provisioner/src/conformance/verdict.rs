//! The result of checking one rule.

/// The verdict of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleVerdict {
    /// The check found no violation of the rule.
    Kept,
    /// The rule is broken. The text describes the observation.
    Broken(String),
    /// The rule could not be applied. The text gives the reason.
    NotApplicable(String),
}

/// The observation that shows that a rule is broken.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

impl Violation {
    /// Returns a function that adds the circumstances to an observation.
    pub(super) fn with_context(when: &str) -> impl Fn(Self) -> Self {
        move |Self(seen)| Self(format!("{when}: {seen}"))
    }
}

/// The answer of a check: the rule is kept, it does not apply, or it is broken.
pub(super) type CheckResult = Result<RuleVerdict, Violation>;
