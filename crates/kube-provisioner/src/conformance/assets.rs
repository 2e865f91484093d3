//! The assets in the backend, and their changes.

use std::collections::BTreeSet;

use super::verdict::Violation;

/// The assets at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assets(pub(super) BTreeSet<String>);

impl Assets {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the assets that `other` does not contain.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    pub(super) fn contains_all(&self, other: &Self) -> bool {
        other.0.is_subset(&self.0)
    }

    /// Checks that the backend contains the assets in `before` and `added` more.
    pub(super) fn expect(&self, before: &Self, added: usize, when: &str) -> Result<(), Violation> {
        let (new, gone) = (self.without(before), before.without(self));
        if gone.count() > 0 {
            return Err(Violation(format!("{when}, assets that existed before are missing: {gone}")));
        }
        if new.count() != added {
            let text = match new.count() {
                0 => "no new asset".to_owned(),
                count => format!("{count} new assets ({new})"),
            };
            return Err(Violation(format!("{when}, the backend holds {text}, expected {added}")));
        }
        Ok(())
    }
}

impl std::fmt::Display for Assets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 5;
        let names: Vec<&str> = self.0.iter().take(SHOWN).map(String::as_str).collect();
        f.write_str(&names.join(", "))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
