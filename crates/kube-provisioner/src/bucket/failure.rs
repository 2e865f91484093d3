//! Errors of bucket calls, in terms that most backends share.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{DeleteError, ProvisionError};

/// A backend that cannot be used because a value is missing in the StorageClass, its Secret, the ObjectBucket, or the
/// provisioner's arguments. The message says how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendConfigError(String);

impl BackendConfigError {
    /// Creates the error from a message or another error.
    pub fn new(text: impl Display) -> Self {
        Self(text.to_string())
    }

    /// Reads a file named by an argument.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(file: &Path) -> Result<Vec<u8>, Self> {
        std::fs::read(file).map_err(|error| Self(format!("cannot read {}: {error}", file.display())))
    }
}

/// The reason why [`create_bucket`](super::BucketProvisioner::create_bucket) or
/// [`grant`](super::BucketProvisioner::grant) failed.
///
/// ```
/// # use kube_provisioner::ProvisionVerdict;
/// # use kube_provisioner::bucket::{BackendConfigError, RequestFailure};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let nothing_left = async { Ok::<_, BackendConfigError>(true) };
/// let error = RequestFailure::Refused("the name is taken".to_owned()).into_error(nothing_left).await;
/// assert_eq!(error.verdict(), ProvisionVerdict::Invalid);
/// # });
/// ```
#[derive(Debug)]
pub enum RequestFailure {
    /// The backend cannot do what the claim requests.
    Refused(String),
    /// A step failed.
    Failed(ProvisionError),
}

impl RequestFailure {
    /// Returns the error of the call. A refusal is final if `undone` returns true, which means that nothing is left of
    /// earlier attempts. For a failure, `undone` is not awaited.
    pub async fn into_error<E>(self, undone: impl Future<Output = Result<bool, E>>) -> ProvisionError
    where
        ProvisionError: From<E>,
    {
        match self {
            Self::Failed(error) => error,
            Self::Refused(text) => match undone.await {
                Ok(true) => ProvisionError::invalid(text),
                Ok(false) => ProvisionError::retry(text),
                Err(error) => error.into(),
            },
        }
    }
}

impl From<ProvisionError> for RequestFailure {
    fn from(error: ProvisionError) -> Self {
        Self::Failed(error)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for RequestFailure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A limit on the time in which one call deletes the objects of a bucket. The next call continues.
#[derive(Debug)]
pub struct EmptyingTimeLimit<'a> {
    bucket: &'a str,
    start: Instant,
    deleted: usize,
}

impl<'a> EmptyingTimeLimit<'a> {
    const SLICE: Duration = Duration::from_secs(20);

    /// Starts the time limit for this bucket.
    pub fn new(bucket: &'a str) -> Self {
        Self { bucket, start: Instant::now(), deleted: 0 }
    }

    /// Returns true if the call should end.
    pub fn is_over(&self) -> bool {
        self.start.elapsed() >= Self::SLICE
    }

    /// Returns the number of objects deleted in this call.
    pub fn deleted(&self) -> usize {
        self.deleted
    }

    /// Adds to the number of deleted objects.
    ///
    /// # Errors
    /// If the call should end: the error reports the progress.
    pub fn add(&mut self, deleted: usize) -> Result<(), DeleteError> {
        self.deleted += deleted;
        if !self.is_over() {
            return Ok(());
        }
        let (count, bucket) = (self.deleted, self.bucket);
        let objects = if count == 1 { "object" } else { "objects" };
        let text = format!("deleted {count} more {objects} of the bucket {bucket}; others remain");
        Err(DeleteError::in_progress(text).after(Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_the_number_of_deleted_objects_when_time_is_over() {
        for (count, text) in [(1, "deleted 1 more object of"), (2, "deleted 2 more objects of")] {
            let mut emptying = EmptyingTimeLimit::new("photos");
            emptying.add(0).unwrap();
            tokio::time::advance(EmptyingTimeLimit::SLICE).await;
            let error = emptying.add(count).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
