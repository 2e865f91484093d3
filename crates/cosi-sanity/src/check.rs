//! The definition of a check, and the list of all checks.

use std::pin::Pin;

use driver_rpc::{Code, Error, code_name};

use crate::Version;
use crate::bed::{TestBed, error_text};
use crate::checks::{create, delete, existing, grant, info, restart, revoke};

/// A check of a driver.
pub struct Check {
    /// Name of the check, such as `create/repeated`.
    pub name: &'static str,
    /// The sentence of the specification that the check tests, in each version that has it.
    pub rules: &'static [(Version, &'static str)],
    pub(crate) run: for<'a> fn(&'a TestBed) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>,
}

pub(crate) type Verdict = Result<(), Stop>;

/// Reason for the early end of a check.
pub(crate) enum Stop {
    Fail(String),
    Skip(String),
}

impl Check {
    /// Returns the sentence in this version.
    pub fn rule(&self, version: Version) -> Option<&'static str> {
        self.rules.iter().find(|(of, _)| *of == version).map(|(_, rule)| *rule)
    }
}

/// Ends the check with a failure.
pub(crate) fn fail<A>(reason: impl Into<String>) -> Result<A, Stop> {
    Err(Stop::Fail(reason.into()))
}

pub(crate) fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { fail(reason()) }
}

/// Returns the answer of a call that must succeed.
pub(crate) fn ok<A>(what: &str, result: Result<A, Error>) -> Result<A, Stop> {
    result.map_err(|error| Stop::Fail(format!("{what}: {}", error_text(&error))))
}

/// Checks that a call is refused with this code.
pub(crate) fn refused<A>(what: &str, code: Code, result: Result<A, Error>) -> Verdict {
    match result {
        Ok(_) => fail(format!("{what} is accepted instead of refused with {}", code_name(code))),
        Err(Error::Status(status)) if status.code() == code => Ok(()),
        Err(error) => fail(format!("{what} is refused with {} instead of {}", error_text(&error), code_name(code))),
    }
}

macro_rules! checks {
    ($($name:literal $module:ident::$function:ident { $($version:ident $rule:literal)* })*) => {
        /// Returns all checks in order.
        pub fn all() -> Vec<Check> {
            vec![$(Check {
                name: $name,
                rules: &[$((Version::$version, $rule)),*],
                run: |bed| Box::pin($module::$function(bed)),
            }),*]
        }
    };
}

checks! {
    "info/name" info::name {
        V1alpha1 "It MUST be 63 characters or less, beginning and ending with an alphanumeric character"
        V1alpha2 "It MUST be 63 characters or less, beginning and ending with an alphanumeric character"
    }
    "info/protocols" info::protocols {
        V1alpha2 "At least one protocol is REQUIRED."
    }

    "create/id" create::id {
        V1alpha1 "bucket_id returned here is expected to be the globally unique identifier for the bucket in the object storage provider."
        V1alpha2 "To prevent abuse, this must be at most 2048 characters long, consisting of alphanumeric characters"
    }
    "create/repeated" create::repeated {
        V1alpha1 "If a bucket that matches both name and parameters already exists, then OK (success) must be returned."
        V1alpha2 "MUST return OK if a backend bucket with matching identity and parameters already exists."
    }
    "create/other-parameters" create::other_parameters {
        V1alpha1 "If a bucket by same name, but different parameters is provided, then the appropriate error code ALREADY_EXISTS must be returned."
        V1alpha2 "MUST return ALREADY_EXISTS if a backend bucket with matching identity exists but with incompatible parameters."
    }
    "create/other-name" create::other_name {
        V1alpha1 "bucket_id returned here is expected to be the globally unique identifier for the bucket in the object storage provider."
        V1alpha2 "REQUIRED. The unique identifier for the backend bucket known to the Provisioner."
    }
    "create/concurrent" create::concurrent {
        V1alpha1 "This call is idempotent"
        V1alpha2 "ensure that multiple DriverCreateBucket calls for the same name do not result in more than one Bucket being provisioned"
    }
    "create/given-up" create::given_up {
        V1alpha1 "This call is idempotent"
        V1alpha2 "multiple unused buckets being created in the storage backend in the event of timing-related Driver/Sidecar failures or restarts."
    }
    "create/protocols" create::protocols {
        V1alpha2 "The Provisioner MUST indicate support for the protocols in the request."
    }
    "create/without-protocols" create::without_protocols {
        V1alpha2 "If none are given, the provisioner MAY provision with a set of default protocol(s) or return `InvalidArgument`"
    }
    "create/unsupported-protocol" create::unsupported_protocol {
        V1alpha2 "If any protocol cannot be supported, the Provisioner MUST return `InvalidArgument`."
    }
    "create/without-name" create::without_name {
        V1alpha1 "This field is REQUIRED name specifies the name of the bucket that should be created."
        V1alpha2 "REQUIRED. The suggested name for the backend bucket."
    }

    "existing/found" existing::found {
        V1alpha2 "MUST return OK if a backend bucket with matching identity and parameters already exists."
    }
    "existing/missing" existing::missing {
        V1alpha2 "MUST return NOT_FOUND if a bucket with matching identity does not exist."
    }
    "existing/unsupported-protocol" existing::unsupported_protocol {
        V1alpha2 "If any protocol cannot be supported, the Provisioner MUST return `InvalidArgument`."
    }
    "existing/without-id" existing::without_id {
        V1alpha2 "REQUIRED. The unique identifier for the existing backend bucket known to the Provisioner."
    }

    "delete/repeated" delete::repeated {
        V1alpha1 "If the bucket has already been deleted, then no error should be returned."
        V1alpha2 "MUST return OK if the bucket has already been deleted."
    }
    "delete/concurrent" delete::concurrent {
        V1alpha1 "If the bucket has already been deleted, then no error should be returned."
        V1alpha2 "MUST return OK if the bucket has already been deleted."
    }
    "delete/given-up" delete::given_up {
        V1alpha1 "If the bucket has already been deleted, then no error should be returned."
        V1alpha2 "MUST return OK if the bucket has already been deleted."
    }
    "delete/other-buckets" delete::other_buckets {
        V1alpha2 "Delete the bucket in the backend."
    }
    "delete/without-id" delete::without_id {
        V1alpha1 "This field is REQUIRED bucket_id is a globally unique identifier for the bucket in the object storage provider"
        V1alpha2 "REQUIRED. The unique identifier for the existing backend bucket known to the Provisioner."
    }

    "grant/id" grant::id {
        V1alpha1 "This is the account_id that is being provided access."
        V1alpha2 "To prevent abuse, this must be at most 2048 characters long, consisting of alphanumeric characters"
    }
    "grant/credentials" grant::credentials {
        V1alpha1 "This field is REQUIRED Credentials supplied for accessing the bucket"
        V1alpha2 "REQUIRED. The object storage protocol the provisioned access MUST support."
    }
    "grant/buckets" grant::buckets {
        V1alpha2 "The Provisioner MUST return info for all `buckets` in the request."
    }
    "grant/bucket-info" grant::bucket_info {
        V1alpha2 "REQUIRED: EXACTLY one protocol bucket info result MUST be non-nil. The Provisioner MUST fill in all required bucket info for the requested protocol."
    }
    "grant/several-buckets" grant::several_buckets {
        V1alpha2 "MUST return OUT_OF_RANGE - if (and only if) the driver/backend does not support multi-bucket access."
    }
    "grant/repeated" grant::repeated {
        V1alpha1 "The account_name in the request shall be used as a unique identifier to create credentials."
        V1alpha2 "MUST return OK if a principal with matching identity and parameters already exists."
    }
    "grant/other-parameters" grant::other_parameters {
        V1alpha2 "MUST return ALREADY_EXISTS if a principal with matching identity exists but with incompatible parameters."
    }
    "grant/other-name" grant::other_name {
        V1alpha1 "The account_name in the request shall be used as a unique identifier to create credentials."
        V1alpha2 "REQUIRED. The unique identifier for the backend access account known to the Provisioner."
    }
    "grant/concurrent" grant::concurrent {
        V1alpha1 "The account_name in the request shall be used as a unique identifier to create credentials."
        V1alpha2 "ensure that multiple DriverGrantBucketAccess calls for the same name do not result in more than one Bucket being provisioned"
    }
    "grant/given-up" grant::given_up {
        V1alpha1 "The account_name in the request shall be used as a unique identifier to create credentials."
        V1alpha2 "The COSI Sidecar WILL call DriverGrantBucketAccess, with the same name, periodically"
    }
    "grant/unsupported-protocol" grant::unsupported_protocol {
        V1alpha2 "If the protocol cannot be supported, the Provisioner MUST return `InvalidArgument`."
    }
    "grant/without-name" grant::without_name {
        V1alpha1 "This field is REQUIRED name field is used to define the name of the bucket access object."
        V1alpha2 "REQUIRED. The suggested name for the backend bucket access."
    }
    "grant/without-bucket" grant::without_bucket {
        V1alpha1 "This field is REQUIRED bucket_id is a globally unique identifier for the bucket in the object storage provider"
        V1alpha2 "REQUIRED. Access to at least one bucket MUST be requested."
    }
    "grant/without-protocol" grant::without_protocol {
        V1alpha2 "REQUIRED. The object storage protocol the provisioned access MUST support."
    }
    "grant/without-authentication-type" grant::without_authentication_type {
        V1alpha1 "This field is REQUIRED Requested authentication type for the bucket access."
        V1alpha2 "REQUIRED. The authentication type that the Provisioner MUST provision for this request."
    }
    "grant/without-service-account" grant::without_service_account {
        V1alpha2 "REQUIRED when `authentication_type` is `SERVICE_ACCOUNT`."
    }
    "grant/without-access-mode" grant::without_access_mode {
        V1alpha2 "REQUIRED. The read/write access mode that the Provisioner SHOULD provision for the bucket"
    }

    "revoke/repeated" revoke::repeated {
        V1alpha1 "This call revokes all access to a particular bucket from a principal."
        V1alpha2 "MUST return OK if access has already been removed from a principal."
    }
    "revoke/concurrent" revoke::concurrent {
        V1alpha1 "This call revokes all access to a particular bucket from a principal."
        V1alpha2 "MUST return OK if access has already been removed from a principal."
    }
    "revoke/given-up" revoke::given_up {
        V1alpha1 "This call revokes all access to a particular bucket from a principal."
        V1alpha2 "MUST return OK if access has already been removed from a principal."
    }
    "revoke/after-deletion" revoke::after_deletion {
        V1alpha1 "This call revokes all access to a particular bucket from a principal."
        V1alpha2 "MUST return OK if access has already been removed from a principal."
    }
    "revoke/without-account" revoke::without_account {
        V1alpha1 "This field is REQUIRED This is the account_id that is having its access revoked."
        V1alpha2 "REQUIRED. The unique identifier for the backend access account"
    }
    "revoke/without-bucket" revoke::without_bucket {
        V1alpha1 "This field is REQUIRED bucket_id is a globally unique identifier for the bucket in the object storage provider."
        V1alpha2 "REQUIRED. Buckets associated with the provisioned access."
    }

    "restart/bucket" restart::bucket {
        V1alpha1 "This call is idempotent"
        V1alpha2 "The COSI Sidecar WILL call DriverCreateBucket, with the same name, periodically to ensure the bucket exists."
    }
    "restart/access" restart::access {
        V1alpha1 "The account_name in the request shall be used as a unique identifier to create credentials."
        V1alpha2 "The COSI Sidecar WILL call DriverGrantBucketAccess, with the same name, periodically"
    }
}
