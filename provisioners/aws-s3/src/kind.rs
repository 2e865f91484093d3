//! What stores with the API of AWS do otherwise than AWS.

use serde::Deserialize;

/// A store. A class may name it; otherwise its address or its first answer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// AWS itself.
    Aws,
    /// The Versity S3 Gateway.
    Versity,
    /// Any other store.
    Other,
}

impl Kind {
    /// The store whose answers name this software in the header `Server`.
    pub(crate) fn of_software(software: &str) -> Self {
        match software {
            "VERSITYGW" => Self::Versity,
            _ => Self::Other,
        }
    }

    /// Whether a new bucket has its tags from the first moment. Other stores leave them out of the creation.
    pub(crate) fn tags_new_buckets(self) -> bool {
        matches!(self, Self::Aws | Self::Versity)
    }
}
