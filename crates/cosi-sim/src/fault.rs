//! The ways in which a driver breaks the contract.

use std::fmt::{self, Display};
use std::str::FromStr;

/// The faults, each with its name and what the driver does.
macro_rules! faults {
    ($($(#[doc = $doc:literal])* $fault:ident $name:literal)*) => {
        /// A way in which a driver breaks the contract. Those that concern only one version do nothing in the other one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])* $fault,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$fault),*];

            /// What the driver does.
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
    /// The driver's name is no domain name.
    InvalidName "invalid-name"
    /// No protocols are supported (`v1alpha2`).
    NoProtocols "no-protocols"
    /// A name gets another bucket at each call.
    CreateTwice "create-twice"
    /// Two calls at a time for one name make two buckets.
    CreateRaces "create-races"
    /// A bucket of the name is returned though its parameters differ.
    CreateIgnoresParameters "create-ignores-parameters"
    /// All names get one bucket.
    SharedBucket "shared-bucket"
    /// Ids are longer than 2048 characters.
    LongIds "long-ids"
    /// Requests without required fields are accepted.
    AcceptsMissingFields "accepts-missing-fields"
    /// Protocols that are not supported are accepted (`v1alpha2`).
    AcceptsUnsupportedProtocols "accepts-unsupported-protocols"
    /// A new bucket has no info for the protocol that was asked for, but for one that is not supported (`v1alpha2`).
    OtherInfo "other-info"
    /// A bucket that does not exist is found (`v1alpha2`).
    FindsMissing "finds-missing"
    /// An existing bucket is not found (`v1alpha2`).
    LosesExisting "loses-existing"
    /// The deletion of a missing bucket fails.
    DeleteMissingFails "delete-missing-fails"
    /// A deletion deletes all buckets.
    DeletesAll "deletes-all"
    /// An account name gets another account at each call.
    GrantTwice "grant-twice"
    /// Two calls at a time for one account name make two accounts.
    GrantRaces "grant-races"
    /// An account of the name is returned though its parameters differ.
    GrantIgnoresParameters "grant-ignores-parameters"
    /// All account names get one account.
    SharedAccount "shared-account"
    /// The credentials are of another protocol.
    OtherCredentials "other-credentials"
    /// The credentials have no secret.
    EmptyCredentials "empty-credentials"
    /// The info of a granted bucket has no endpoint, account or name (`v1alpha2`).
    EmptyInfo "empty-info"
    /// The answer of a grant leaves out one bucket (`v1alpha2`).
    OmitsBucket "omits-bucket"
    /// The answer of a grant has a bucket that was not asked for (`v1alpha2`).
    ExtraBucket "extra-bucket"
    /// Several buckets are refused with another code than `OutOfRange` (`v1alpha2`).
    RefusesSeveral "refuses-several"
    /// Revoking access that is gone fails.
    RevokeMissingFails "revoke-missing-fails"
    /// A name is locked for ever if a caller gives up.
    Stuck "stuck"
    /// The file of state is not read.
    Forgets "forgets"
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.to_string() == text).ok_or_else(|| {
            format!("there is no fault {text:?}, only {}", Self::ALL.map(|fault| fault.to_string()).join(", "))
        })
    }
}
