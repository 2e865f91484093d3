//! Errors and their remedies.

use std::error::Error;
use std::{fmt, io};

use rustix::io::Errno;

/// The reason why project quotas could not be queried or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum QuotaError {
    /// The process lacks a permission.
    NotAllowed {
        /// The operation that failed.
        doing: &'static str,
    },
    /// The file system no longer enforces project quotas.
    NotEnforced {
        /// The operation that failed.
        doing: &'static str,
    },
    /// Any other error.
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The system's own error.
        source: io::Error,
    },
}

impl QuotaError {
    pub(crate) fn of(doing: &'static str, error: Errno) -> Self {
        match error {
            Errno::PERM | Errno::ACCESS => Self::NotAllowed { doing },
            Errno::SRCH | Errno::NOSYS | Errno::OPNOTSUPP => Self::NotEnforced { doing },
            error => Self::Io { doing, source: error.into() },
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed { doing } => write!(
                formatter,
                "{doing}: not allowed; run outside of user namespaces, with CAP_SYS_ADMIN, with CAP_FOWNER for directories \
                 of others, and with a seccomp profile that allows quotactl_fd"
            ),
            Self::NotEnforced { doing } => write!(
                formatter,
                "{doing}: the file system enforces no project quotas; mount it with the option prjquota"
            ),
            Self::Io { doing, source } => write!(formatter, "{doing}: {source}"),
        }
    }
}

impl Error for QuotaError {}
