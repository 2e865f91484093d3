//! What the classes of both modes can say, in the words of the provisioners that people come from.

use std::time::Duration;

use directory_volumes::PathPattern;
use directory_volumes::parameters::{OnDelete, TRASH_TTL};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// Annotations of claims that a pattern may name: all with this prefix.
pub(crate) const ANNOTATIONS_OF_CLAIMS: &str = "nfs.io/";

/// What becomes of the data of a deleted volume.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// They are removed.
    Delete,
    /// They stay where they are.
    Retain,
    /// They are moved to the trash, and removed after some time.
    Trash,
    /// They are moved to the trash, and nothing removes them.
    Archive,
}

impl Policy {
    pub(crate) fn on_delete(self, ttl: Option<Duration>) -> (OnDelete, Option<Duration>) {
        match self {
            Self::Delete => (OnDelete::Delete, None),
            Self::Retain => (OnDelete::Retain, None),
            Self::Trash => (OnDelete::Trash, Some(ttl.unwrap_or(TRASH_TTL))),
            Self::Archive => (OnDelete::Trash, None),
        }
    }
}

/// A pattern that may name labels and annotations of claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pattern(pub(crate) PathPattern);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pattern =
            PathPattern::with_texts_of_claims(&String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        let other = pattern.annotations().find(|key| !key.starts_with(ANNOTATIONS_OF_CLAIMS)).map(str::to_owned);
        match other {
            Some(key) => Err(D::Error::custom(format!(
                "the annotation {key} is not read: annotations in a pattern begin with {ANNOTATIONS_OF_CLAIMS}"
            ))),
            None => Ok(Self(pattern)),
        }
    }
}
