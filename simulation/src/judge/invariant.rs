//! What must always hold, and what must hold in the end.

use std::fmt;
use std::time::Duration;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// At every moment every asset, half-made ones included, has a volume or an entry in a journal.
    Covered,
    /// A claim never has two assets.
    Once,
    /// What was deleted is never made again, unless its claim lives and has nothing else.
    NotAgain,
    /// Every call of an attempt gets what was prepared for its first one.
    Again,
    /// The driver is told where the selected node is, and a volume is saved with the places that the driver has said.
    Placed,
    /// No two processes call the backend for one name at the same time, unless one of them is dead or stood still.
    Exclusive,
    /// Nothing is removed of a claim that lives, of a volume that is to be kept, of somebody else.
    Untouched,
    /// A volume is saved only when its asset is whole.
    Whole,
    /// A volume and its claim say no more than the asset has, and nothing shrinks. In the end every claim has what it asks
    /// for.
    Sized,
    /// In the end every claim that can be bound is bound, and no other has anything.
    Bound,
    /// In the end every volume that is to go is gone, object and asset.
    Gone,
    /// In the end the journals are empty.
    Forgotten,
    /// In the end nothing else lies around.
    Tidy,
    /// Claims of one class are bound although calls about another one hang.
    Unhindered,
    /// The author is asked first: `start` before everything else, and `should_delete` before a deletion.
    Asked,
    /// A process neither panics nor ends by itself nor asks in a circle, and ends when it is asked to.
    Alive,
}

impl Invariant {
    /// All there are.
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

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When, since the start of the run.
    pub at: Duration,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s: {}", self.invariant.name(), self.at.as_secs_f64(), self.seen)
    }
}
