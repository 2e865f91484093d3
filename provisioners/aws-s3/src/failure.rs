//! Failed calls, with advice on how to resolve them.

use s3_client::Error;

/// A call with the administrator's credentials that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot {doing}: {cause}{advice}")]
    Call {
        doing: String,
        /// The message above contains it; as a `source`, it would appear twice in a printed error chain.
        cause: Box<Error>,
        advice: String,
    },
    /// A read does not reflect an earlier write yet.
    #[error("the store does not show the newly created {0} yet; the next attempt checks again")]
    NotShownYet(String),
    #[error(
        "the store ignores the tags of new IAM users, so the provisioner could not recognize its own users: if it is \
         SeaweedFS, set store: seaweedfs in the StorageClass; otherwise use another store"
    )]
    IgnoresTags,
    #[error(
        "the IAM user {user} has no room for another bucket: its policies can have at most {room} characters, and a \
         bucket with a name as long as this one needs {size}; use a separate BucketAccess for the other buckets"
    )]
    PolicySizeExceeded { user: String, room: usize, size: usize },
}

impl Failure {
    /// Returns the error code with which the service refused the call; empty for all other errors.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Call { cause, .. } => cause.code(),
            Self::NotShownYet(_) | Self::IgnoresTags | Self::PolicySizeExceeded { .. } => "",
        }
    }

    /// Returns true if the call certainly had no effect, and the service was not just busy.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Call { cause, .. } if cause.is_refusal() && !cause.is_busy())
    }

    /// For `map_err`: `doing` describes the call, and `right` names the permission that it needs.
    pub(crate) fn of(doing: String, right: &'static str) -> impl FnOnce(Error) -> Self {
        move |cause| {
            let advice = advice(&cause, right);
            Self::Call { doing, cause: Box::new(cause), advice }
        }
    }
}

/// Like [`Failure::of`], for a feature that a class parameter requests and some stores do not support.
pub(crate) fn of_parameter(
    doing: String,
    right: &'static str,
    parameter: &'static str,
) -> impl FnOnce(Error) -> Failure {
    move |cause| match cause.status() {
        Some(501) => {
            let advice = format!(
                "; the store does not support it: remove {parameter} from the StorageClass, or use another store"
            );
            Failure::Call { doing, cause: Box::new(cause), advice }
        }
        _ => Failure::of(doing, right)(cause),
    }
}

fn advice(cause: &Error, right: &str) -> String {
    if let Error::Credentials { .. } = cause {
        return "; set adminSecretName and adminSecretNamespace in the StorageClass to the administrator's Secret, or give the \
                provisioner a role (EKS Pod Identity, IRSA, an instance profile) or AWS_ACCESS_KEY_ID and \
                AWS_SECRET_ACCESS_KEY; a role in adminRoleArn must trust these credentials"
            .to_owned();
    }
    match cause.code() {
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidClientTokenId" | "AuthFailure" => {
            "; the store does not accept the administrator's key: check the Secret that the class names in adminSecretName, or the \
             provisioner's own credentials"
                .to_owned()
        }
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
            "; the administrator's credentials have expired: renew them".to_owned()
        }
        "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation"
            if cause.to_string().contains("explicit deny") =>
        {
            "; a policy forbids it, and no permission overrides that: an administrator of the account can check the kind of \
             policy that the answer names; some policies require tags, which the class sets with tags"
                .to_owned()
        }
        "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" => {
            format!("; the administrator needs the permission {right}")
        }
        "LimitExceeded" => "; a quota of the account is reached: raise it, or remove unused resources".to_owned(),
        "TooManyBuckets" => {
            "; the bucket quota of the account is reached: raise it, or delete unused buckets".to_owned()
        }
        "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "; the bucket is in another region: set region in the StorageClass, or choose another bucketName".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use s3_client::ErrorResponse;

    use super::*;

    #[test]
    fn does_not_suggest_permissions_after_an_explicit_deny() {
        let failure = |message: &str| {
            let error = Error::refusal("IAM", ErrorResponse::new(403, "AccessDenied", message, ""));
            Failure::of("create the IAM user x".to_owned(), "iam:CreateUser")(error).to_string()
        };
        let denied = failure(
            "User: x is not authorized to perform: iam:CreateUser with an explicit deny in a service control policy",
        );
        assert!(denied.contains("a policy forbids it") && !denied.contains("needs the permission"), "{denied}");
        assert!(failure("no identity-based policy allows it").contains("needs the permission iam:CreateUser"));
    }
}
