//! Why a journal cannot be written or taken over.

use std::sync::Arc;

use crate::call::CallError;

/// Why something was not recorded. It must not begin then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no room, or others would have none.
    #[error(
        "it has no room for more of this class and namespace: {entries} entries take {bytes} bytes; \
         other attempts of this class have to end first"
    )]
    Full {
        /// How many entries there are.
        entries: usize,
        /// How large they are together.
        bytes: usize,
    },
    /// The entry is too large.
    #[error("an entry of {bytes} bytes is too large for it; it takes {most}")]
    TooLarge {
        /// How large the entry would be.
        bytes: usize,
        /// How large it may be at most.
        most: usize,
    },
    /// A person has dropped the entry meanwhile.
    #[error("a person has dropped the entry")]
    Dropped,
    /// Another process has taken the journal over, or this one has closed it.
    #[error("it was taken over by {0}")]
    Lost(String),
    /// The API server did not take it.
    #[error(transparent)]
    Call(#[from] Arc<CallError>),
}

/// Why a journal could not be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The API server did not answer as it should.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another version of the program wrote it, in a format that this one does not know.
    #[error("its format {0:?} is not known to this version; run the version that wrote it")]
    Version(String),
}
