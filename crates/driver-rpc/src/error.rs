//! Errors of calls, classified by meaning.

use std::time::Duration;

use tonic::{Code, Status};

/// The reason why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver refused the call. Only this error is a response of the driver; after all others except
    /// [`Error::Unreachable`] the work may be done, or still be under way.
    #[error("{}: {}", code_name(.0.code()), .0.message())]
    Status(Status),
    /// There was no response in time.
    #[error("the driver did not answer within {0:?}")]
    TimedOut(Duration),
    /// There is no connection: the driver was not called.
    #[error("the driver at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The driver's address.
        address: String,
        /// The system's error message.
        reason: String,
    },
    /// The connection broke during the call, or delivered an invalid response.
    #[error("the driver's answer was lost: {0}")]
    Interrupted(String),
    /// The response exceeds the client's limit.
    #[error("the driver answered with more than {limit} bytes")]
    TooLarge {
        /// The client's limit in bytes.
        limit: usize,
    },
}

impl Error {
    /// Returns the code that a grpc-go client would see.
    pub fn code(&self) -> Code {
        match self {
            Self::Status(status) => status.code(),
            Self::TimedOut(_) => Code::DeadlineExceeded,
            Self::Unreachable { .. } | Self::Interrupted(_) => Code::Unavailable,
            Self::TooLarge { .. } => Code::ResourceExhausted,
        }
    }
}

/// Not derived with `#[from]`: as the error's source, the status would repeat the code.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Status(status) => status,
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

/// Returns the Go name of a code, as used in metrics and events.
pub fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_named_as_in_go() {
        let names: Vec<_> = (0..=17).map(|number| code_name(Code::from_i32(number))).collect();
        let go = "OK Canceled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied ResourceExhausted \
                  FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss Unauthenticated Unknown";
        assert_eq!(names.join(" "), go);
    }
}
