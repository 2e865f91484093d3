//! What each decision of the controllers means, in plain words. Every rest and every refusal has its own.

mod bucket;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use self::bucket::{action as bucket_action, refusal as bucket_refusal, rest as bucket_rest};
pub(crate) use self::volume::{action as volume_action, refusal as volume_refusal, rest as volume_rest};

/// What is said of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// How the object is.
    pub(crate) state: &'static str,
    /// Why that is so; empty where the controller's message says it.
    pub(crate) why: &'static str,
    /// What a person can do; empty where there is nothing.
    pub(crate) remedy: &'static str,
}

/// Where a person can do nothing, or the controller's message says what.
const fn words(state: &'static str, why: &'static str) -> Words {
    Words { state, why, remedy: "" }
}

/// A refusal: the controller's message says why, and what a person can do.
const fn title(state: &'static str) -> Words {
    words(state, "")
}

/// With what a person can do.
const fn mendable(state: &'static str, why: &'static str, remedy: &'static str) -> Words {
    Words { state, why, remedy }
}
