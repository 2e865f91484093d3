//! Plain explanations of the controllers' decisions. Every idle state and every refusal has its own explanation.

mod bucket;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use self::bucket::{action as bucket_action, refusal as bucket_refusal, rest as bucket_rest};
pub(crate) use self::volume::{action as volume_action, refusal as volume_refusal, rest as volume_rest};

/// The explanation of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The state of the object.
    pub(crate) state: &'static str,
    /// The reason; empty if the controller's message contains it.
    pub(crate) why: &'static str,
    /// The remedy; empty if there is none.
    pub(crate) remedy: &'static str,
}

/// Explains a decision without a remedy, or whose remedy is in the controller's message.
const fn words(state: &'static str, why: &'static str) -> Words {
    Words { state, why, remedy: "" }
}

/// Explains a refusal: the controller's message contains the reason and the remedy.
const fn title(state: &'static str) -> Words {
    words(state, "")
}

/// Explains a decision with a remedy.
const fn with_remedy(state: &'static str, why: &'static str, remedy: &'static str) -> Words {
    Words { state, why, remedy }
}
