//! Plain explanations of the controllers' decisions. Every idle state and every refusal has its own explanation.

mod bucket;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use self::bucket::{action as bucket_action, no_action as bucket_no_action, refusal as bucket_refusal};
pub(crate) use self::volume::{action as volume_action, no_action as volume_no_action, refusal as volume_refusal};

/// The explanation of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The state of the object.
    pub(crate) state: &'static str,
    /// The reason; empty if the controller's message contains it.
    pub(crate) why: &'static str,
    /// The remedy; empty if there is none.
    pub(crate) remedy: &'static str,
}

/// Explains a decision without a remedy, or whose remedy is in the controller's message.
const fn without_remedy(state: &'static str, why: &'static str) -> Explanation {
    Explanation { state, why, remedy: "" }
}

/// Explains a refusal: the controller's message contains the reason and the remedy.
const fn state_only(state: &'static str) -> Explanation {
    without_remedy(state, "")
}

/// Explains a decision with a remedy.
const fn with_remedy(state: &'static str, why: &'static str, remedy: &'static str) -> Explanation {
    Explanation { state, why, remedy }
}
