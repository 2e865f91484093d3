//! Errors of writing a journal or taking it over.

use std::sync::Arc;

use crate::call::CallError;

/// The reason why an attempt was not recorded. The attempt must then not begin.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no room, or the entry would leave none for others.
    #[error(
        "the journal is full for this class and namespace: {entries} entries take {bytes} bytes; other attempts of \
         this class must end first"
    )]
    Full {
        /// The number of entries.
        entries: usize,
        /// Their total size.
        bytes: usize,
    },
    /// The entry is too large.
    #[error("an entry of {bytes} bytes exceeds the limit of {most} bytes")]
    TooLarge {
        /// The size of the entry.
        bytes: usize,
        /// The maximum size.
        most: usize,
    },
    /// An administrator has dropped the entry in the meantime.
    #[error("an administrator dropped the entry")]
    Dropped,
    /// Another process has taken over the journal, or this one has closed it.
    #[error("it was taken over by {0}")]
    Lost(String),
    /// The API server did not accept the write.
    #[error(transparent)]
    Call(#[from] Arc<CallError>),
}

/// The reason why a journal could not be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The API server did not respond as expected.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another version of the binary wrote the journal, in a format that this one does not support.
    #[error("its format {0:?} is not known to this version; run the version that wrote it")]
    Version(String),
}
