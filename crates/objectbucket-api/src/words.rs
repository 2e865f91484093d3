//! Phases and policies: words of a closed set, which readers must not stumble over when one is new.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
            /// A word that this version does not know. It is written back as it was read.
            Unknown(String),
        }

        impl $name {
            /// The word as it is on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$word => stringify!($word),)*
                    Self::Unknown(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $(stringify!($word) => Self::$word,)*
                    _ => Self::Unknown(word.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(&*String::deserialize(deserializer)?))
            }
        }

        // No `enum` in the schema: what older writers left must stay writable.
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                String::json_schema(generator)
            }
        }
    };
}

words! {
    /// How far a claim is.
    ClaimPhase {
        /// It waits for its bucket.
        Pending,
        /// It has its bucket, its Secret and its ConfigMap.
        Bound,
        /// It has lost its bucket.
        Released,
        /// It cannot get a bucket as it is.
        Failed,
    }
}

words! {
    /// How far a bucket is.
    BucketPhase {
        /// A claim has it.
        Bound,
        /// Its claim is being deleted.
        Released,
        /// It cannot be used.
        Failed,
    }
}

words! {
    /// What becomes of a bucket with its claim.
    ReclaimPolicy {
        /// The bucket is removed with all that is in it.
        Delete,
        /// The bucket stays, and the claim's rights to it go.
        Retain,
        /// As `Retain`. Written by nobody today.
        Recycle,
    }
}
