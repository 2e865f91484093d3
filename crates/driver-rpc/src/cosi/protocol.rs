//! The protocols of object stores.

use std::fmt::{self, Display};
use std::str::FromStr;

/// A protocol, with its number in `v1alpha2`. Its text is the one used in `v1alpha1` credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Protocol {
    /// S3.
    S3 = 1,
    /// Azure Blob.
    Azure = 2,
    /// Google Cloud Storage.
    Gcs = 3,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::S3, Self::Azure, Self::Gcs];

    /// Returns the protocol with this number.
    pub fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| *protocol as i32 == number)
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S3 => "s3",
            Self::Azure => "azure",
            Self::Gcs => "gcs",
        })
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|protocol| protocol.to_string() == text);
        known.ok_or_else(|| format!("{text:?} is not a protocol; use s3, azure or gcs"))
    }
}

#[cfg(test)]
mod tests {
    use super::Protocol;
    use crate::cosi::v1alpha2::object_protocol::Type;

    #[test]
    fn numbers_match_v1alpha2() {
        for (protocol, number) in Protocol::ALL.into_iter().zip([Type::S3, Type::Azure, Type::Gcs]) {
            assert_eq!(Protocol::of(number.into()), Some(protocol));
            assert_eq!(protocol.to_string().parse(), Ok(protocol));
        }
        assert_eq!(Protocol::of(Type::Unknown.into()), None);
    }
}
