//! Phases and policies: words of a closed set, with readers that accept new words.

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
            /// Returns the word as it is on the wire.
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

        // Omit `enum` from the schema: values of older writers must stay writable.
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
    /// The phase of a claim.
    ClaimPhase {
        /// The claim waits for its bucket.
        Pending,
        /// The claim has its bucket, Secret and ConfigMap.
        Bound,
        /// The claim has lost its bucket.
        Released,
        /// The claim cannot receive a bucket in its current form.
        Failed,
    }
}

words! {
    /// The phase of a bucket.
    BucketPhase {
        /// The bucket is bound to a claim.
        Bound,
        /// The bucket's claim is being deleted.
        Released,
        /// The bucket cannot be used.
        Failed,
    }
}

words! {
    /// The treatment of a bucket when its claim is deleted.
    ReclaimPolicy {
        /// The bucket is deleted with all its contents.
        Delete,
        /// The bucket is retained, and the claim's access to it is revoked.
        Retain,
        /// Same as `Retain`. No current writer uses it.
        Recycle,
    }
}
