//! Class parameters of both modes. They are compatible with other NFS provisioners.

use std::time::Duration;

use directory_volumes::PathPattern;
use directory_volumes::parameters::{OnDelete, TRASH_TTL};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The prefix of claim annotations that a pattern may name.
pub(crate) const ANNOTATIONS_OF_CLAIMS: &str = "nfs.io/";

/// The action on the data of a deleted volume.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// The data is removed.
    Delete,
    /// The data stays in its place.
    Retain,
    /// The data is moved to the trash, and removed after some time.
    Trash,
    /// The data is moved to the trash, and never removed automatically.
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

/// A path pattern that may name labels and annotations of claims.
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
