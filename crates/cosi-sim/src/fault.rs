//! Faults that break the driver's contract.

use std::fmt::{self, Display};
use std::str::FromStr;

/// The faults, each with its name and description.
macro_rules! faults {
    ($($(#[doc = $doc:literal])* $fault:ident $name:literal)*) => {
        /// A way in which a driver breaks the contract. Faults that concern only one version have no effect in the
        /// other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])* $fault,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$fault),*];

            /// Returns a description of the driver's behavior.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$fault => concat!($($doc),*).trim_ascii(),)*
                }
            }
        }

        impl Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$fault => $name,)* })
            }
        }
    };
}

faults! {
    /// The driver's name is not a domain name.
    InvalidName "invalid-name"
    /// No protocols are supported (`v1alpha2`).
    NoProtocols "no-protocols"
    /// Each call for a name creates another bucket.
    CreateTwice "create-twice"
    /// Two concurrent calls for one name create two buckets.
    CreateRaces "create-races"
    /// A bucket with the name is returned although its parameters differ.
    CreateIgnoresParameters "create-ignores-parameters"
    /// All names share one bucket.
    SharedBucket "shared-bucket"
    /// IDs are longer than 2048 characters.
    LongIds "long-ids"
    /// Requests without required fields are accepted.
    AcceptsMissingFields "accepts-missing-fields"
    /// Unsupported protocols are accepted (`v1alpha2`).
    AcceptsUnsupportedProtocols "accepts-unsupported-protocols"
    /// A new bucket has info for an unsupported protocol instead of the requested one (`v1alpha2`).
    OtherInfo "other-info"
    /// A bucket that does not exist is found (`v1alpha2`).
    FindsMissing "finds-missing"
    /// An existing bucket is not found (`v1alpha2`).
    LosesExisting "loses-existing"
    /// The deletion of a missing bucket fails.
    DeleteMissingFails "delete-missing-fails"
    /// A deletion deletes all buckets.
    DeletesAll "deletes-all"
    /// Each call for an account name creates another account.
    GrantTwice "grant-twice"
    /// Two concurrent calls for one account name create two accounts.
    GrantRaces "grant-races"
    /// An account with the name is returned although its parameters differ.
    GrantIgnoresParameters "grant-ignores-parameters"
    /// All account names share one account.
    SharedAccount "shared-account"
    /// The credentials are for another protocol.
    OtherCredentials "other-credentials"
    /// The credentials have no secret.
    EmptyCredentials "empty-credentials"
    /// The info of a granted bucket has no endpoint, account or name (`v1alpha2`).
    EmptyInfo "empty-info"
    /// The answer to a grant omits one bucket (`v1alpha2`).
    OmitsBucket "omits-bucket"
    /// The answer to a grant contains a bucket that was not requested (`v1alpha2`).
    ExtraBucket "extra-bucket"
    /// Several buckets are refused with a code other than `OutOfRange` (`v1alpha2`).
    RefusesSeveral "refuses-several"
    /// Revoking access that does not exist fails.
    RevokeMissingFails "revoke-missing-fails"
    /// A name stays locked forever if a caller cancels its call.
    Stuck "stuck"
    /// The state file is not read.
    Forgets "forgets"
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.to_string() == text).ok_or_else(|| {
            format!("unknown fault {text:?}; use one of {}", Self::ALL.map(|fault| fault.to_string()).join(", "))
        })
    }
}
