//! What stores with the API of AWS do otherwise than AWS.

use serde::Deserialize;

use crate::failure::Failure;
use crate::store::Store;

/// A store. A class may name it; otherwise its address or its first answer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// AWS itself.
    Aws,
    /// The Versity S3 Gateway.
    Versity,
    /// SeaweedFS with its embedded IAM.
    SeaweedFs,
    /// Any other store.
    Other,
}

impl Kind {
    /// The store whose answers name this software in the header `Server`.
    pub(crate) fn of_software(software: &str) -> Self {
        match software {
            "VERSITYGW" => Self::Versity,
            _ if software.starts_with("SeaweedFS") => Self::SeaweedFs,
            _ => Self::Other,
        }
    }

    /// Whether a new bucket has its tags from the first moment. Other stores leave them out of the creation.
    pub(crate) fn tags_new_buckets(self) -> bool {
        matches!(self, Self::Aws | Self::Versity)
    }
}

/// Asks a store that nobody has named, before anything is made there: its kind decides how users are named.
///
/// # Errors
/// Unless the store itself has answered, whatever it has said.
pub(crate) async fn learn(store: &Store, bucket: &str) -> Result<(), Failure> {
    if store.kind() != Kind::Other || !store.s3.software().is_empty() {
        return Ok(());
    }
    match store.s3.bucket_tagging(bucket).await {
        Err(error) if error.status().is_none_or(|status| status == 429 || status >= 500) => {
            Err(Failure::of(format!("read the tags of the bucket {bucket}"), "s3:GetBucketTagging")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_known_by_their_software() {
        let software = ["VERSITYGW", "SeaweedFS 30GB 4.53", "nginx", ""];
        let kinds = [Kind::Versity, Kind::SeaweedFs, Kind::Other, Kind::Other];
        assert_eq!(software.map(Kind::of_software), kinds);
        assert_eq!(serde_json::from_str::<Kind>("\"seaweedfs\"").unwrap(), Kind::SeaweedFs);
    }
}
