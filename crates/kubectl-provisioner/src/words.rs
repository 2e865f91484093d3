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
    /// Why that is so.
    pub(crate) why: &'static str,
    /// What a person can do; empty where there is nothing.
    pub(crate) remedy: &'static str,
}

/// What helps where a class is wrong: its parameters cannot be changed.
const CLASS: &str = "administrator: delete the class and create it with correct parameters; the provisioner's command `check-class` checks them before";

/// Where a person can do nothing, or the controller's message says what.
const fn words(state: &'static str, why: &'static str) -> Words {
    Words { state, why, remedy: "" }
}

/// With what a person can do.
const fn mendable(state: &'static str, why: &'static str, remedy: &'static str) -> Words {
    Words { state, why, remedy }
}
