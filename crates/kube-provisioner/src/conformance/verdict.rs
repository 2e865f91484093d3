//! What the check of one rule finds.

/// Whether a rule is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// The rule is kept, as far as the check can see.
    Kept,
    /// The rule is broken. The text says what was seen.
    Broken(String),
    /// There was nothing to check. The text says why.
    NotApplicable(String),
}

/// What was seen when a rule was found to be broken.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

/// The answer of a check: the rule is kept, it does not apply, or it is broken.
pub(super) type CheckResult = Result<Judgement, Broken>;
