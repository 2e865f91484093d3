//! Failed calls, with what to do about them.

use s3_client::Error;

/// A failed call of the administrator's.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {cause}{advice}")]
pub(crate) struct Failure {
    doing: String,
    /// Told above, so it is no `source`: whoever prints the chain would tell it twice.
    cause: Box<Error>,
    advice: String,
}

impl Failure {
    pub(crate) fn code(&self) -> &str {
        self.cause.code()
    }

    /// For `map_err`: what was being done, and the right that it needs.
    pub(crate) fn of(doing: String, right: &'static str) -> impl FnOnce(Error) -> Self {
        move |cause| {
            let advice = advice(&cause, right);
            Self { doing, cause: Box::new(cause), advice }
        }
    }
}

fn advice(cause: &Error, right: &str) -> String {
    match cause.code() {
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidClientTokenId" | "AuthFailure" => {
            "; AWS does not accept the administrator's key: check the Secret that the class names in adminSecretName, or the \
             provisioner's own credentials"
                .to_owned()
        }
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
            "; the administrator's credentials have ended: renew them".to_owned()
        }
        "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" => {
            format!("; the administrator needs the right {right}")
        }
        "LimitExceeded" => "; a quota of the account is reached: raise it, or remove what nobody uses".to_owned(),
        "TooManyBuckets" => {
            "; the account has as many buckets as it may: raise the quota, or delete buckets that nobody uses".to_owned()
        }
        "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "; the bucket is in another region: set region in the StorageClass".to_owned()
        }
        _ => String::new(),
    }
}
