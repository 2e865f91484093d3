//! Why a call for a bucket does not succeed, in terms that most backends share.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{DeleteError, ProvisionError};

/// The backend cannot be used: something is missing in the StorageClass, its Secret, the ObjectBucket, or the provisioner's
/// arguments. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misconfigured(String);

impl Misconfigured {
    /// From a text or an error.
    pub fn new(text: impl Display) -> Self {
        Self(text.to_string())
    }

    /// Reads a file that an argument names.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(file: &Path) -> Result<Vec<u8>, Self> {
        std::fs::read(file).map_err(|error| Self(format!("cannot read {}: {error}", file.display())))
    }
}

/// Why [`create_bucket`](super::BucketProvisioner::create_bucket) or [`grant`](super::BucketProvisioner::grant) does not succeed.
///
/// ```
/// # use kube_provisioner::ProvisionVerdict;
/// # use kube_provisioner::bucket::{Misconfigured, Objection};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let nothing_left = async { Ok::<_, Misconfigured>(true) };
/// let error = Objection::Refused("the name is taken".to_owned()).into_error(nothing_left).await;
/// assert_eq!(error.verdict(), ProvisionVerdict::Invalid);
/// # });
/// ```
#[derive(Debug)]
pub enum Objection {
    /// The backend cannot do what the claim asks for.
    Refused(String),
    /// Something failed.
    Failed(ProvisionError),
}

impl Objection {
    /// The error of the call. A refusal is final if `undone` says that nothing is left of earlier attempts. It is not awaited for
    /// a failure.
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

impl From<ProvisionError> for Objection {
    fn from(error: ProvisionError) -> Self {
        Self::Failed(error)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Objection {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Bounds the time in which one call deletes the objects of a bucket. The next call continues.
#[derive(Debug)]
pub struct Emptying<'a> {
    bucket: &'a str,
    start: Instant,
    deleted: usize,
}

impl<'a> Emptying<'a> {
    const SLICE: Duration = Duration::from_secs(20);

    /// Begins with this bucket.
    pub fn new(bucket: &'a str) -> Self {
        Self { bucket, start: Instant::now(), deleted: 0 }
    }

    /// Whether the call should end.
    pub fn is_over(&self) -> bool {
        self.start.elapsed() >= Self::SLICE
    }

    /// The objects that were deleted in this call.
    pub fn deleted(&self) -> usize {
        self.deleted
    }

    /// Counts objects that were deleted.
    ///
    /// # Errors
    /// When the call should end: it reports the progress.
    pub fn add(&mut self, deleted: usize) -> Result<(), DeleteError> {
        self.deleted += deleted;
        if !self.is_over() {
            return Ok(());
        }
        let (count, bucket) = (self.deleted, self.bucket);
        let text = format!("{count} more objects of the bucket {bucket} are deleted, and others are left");
        Err(DeleteError::in_progress(text).after(Duration::from_secs(1)))
    }
}
