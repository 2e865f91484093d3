//! The invariants, during the run and at the end.

use std::fmt;
use std::time::Duration;

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// At every moment, every asset, including an incomplete one, has a volume or an entry in a journal.
    Covered,
    /// A claim never has two assets.
    Once,
    /// A deleted asset is never recreated, unless its claim lives and has no other asset.
    NotAgain,
    /// Every call of an attempt receives the value prepared for its first call.
    Again,
    /// The driver receives the topology of the selected node, and a volume is saved with the topology that the driver
    /// returned.
    Placed,
    /// No two processes call the backend for one name at the same time, unless one of them is dead or was paused.
    Exclusive,
    /// Assets of living claims, of retained volumes and of other owners are never removed.
    Untouched,
    /// A volume is saved only when its asset is complete.
    Whole,
    /// A volume and its claim report at most the size of the asset, and assets never shrink. In the end every claim has
    /// the size that it requests.
    Sized,
    /// In the end every claim that can be bound is bound, and no other claim has an asset.
    Bound,
    /// In the end, the objects and the assets of volumes that must be removed no longer exist.
    Gone,
    /// In the end the journals are empty.
    Forgotten,
    /// In the end there are no other leftovers.
    Tidy,
    /// Claims of one class are bound although calls about another one hang.
    Unhindered,
    /// The author is asked first: `start` before all other calls, and `should_delete` before a deletion.
    Asked,
    /// A process neither panics nor exits on its own nor sends requests in a loop, and it ends when it is asked to.
    Alive,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Self; 16] = [
        Self::Covered,
        Self::Once,
        Self::NotAgain,
        Self::Again,
        Self::Placed,
        Self::Exclusive,
        Self::Untouched,
        Self::Whole,
        Self::Sized,
        Self::Bound,
        Self::Gone,
        Self::Forgotten,
        Self::Tidy,
        Self::Unhindered,
        Self::Asked,
        Self::Alive,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Once => "once",
            Self::NotAgain => "not-again",
            Self::Again => "again",
            Self::Placed => "placed",
            Self::Exclusive => "exclusive",
            Self::Untouched => "untouched",
            Self::Whole => "whole",
            Self::Sized => "sized",
            Self::Bound => "bound",
            Self::Gone => "gone",
            Self::Forgotten => "forgotten",
            Self::Tidy => "tidy",
            Self::Unhindered => "unhindered",
            Self::Asked => "asked",
            Self::Alive => "alive",
        }
    }
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Time since the start of the run.
    pub at: Duration,
    /// Description of the violation.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s: {}", self.invariant.name(), self.at.as_secs_f64(), self.seen)
    }
}
