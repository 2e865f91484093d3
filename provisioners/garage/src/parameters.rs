//! What classes and claims say.

use kube_provisioner::bucket::{Access, DeletionPolicy};
use kube_provisioner::quantity::Quantity;
use serde::Deserialize;

use crate::lifecycle::Lifecycle;

/// The parameters of a class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    /// The URL of S3, for the provisioner and for pods.
    pub(crate) endpoint: Option<String>,
    /// The URL of the admin API.
    pub(crate) admin_endpoint: Option<String>,
    /// `s3_region` of Garage's configuration.
    pub(crate) region: Option<String>,
    /// What keys may do.
    pub(crate) access_mode: Access,
    /// Whether a bucket with objects is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
}

/// A claim's `additionalConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    pub(crate) max_objects: Option<Limit>,
    pub(crate) max_size: Option<Limit>,
    pub(crate) bucket_lifecycle: Option<Lifecycle>,
    pub(crate) access_mode: Option<Access>,
}

impl Config {
    /// The keys that are about the bucket and not about the claim's own access key, and whether they are set.
    pub(crate) fn bucket_settings(&self) -> [(&'static str, bool); 3] {
        [
            ("maxObjects", self.max_objects.is_some()),
            ("maxSize", self.max_size.is_some()),
            ("bucketLifecycle", self.bucket_lifecycle.is_some()),
        ]
    }
}

/// A limit that a quota can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Limit(pub(crate) u64);

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let limit = text.parse::<Quantity>().and_then(|quantity| quantity.bytes());
        match limit.map_err(|error| error.to_string())? {
            0 => Err("a limit of 0 would refuse every object: leave it out for no limit".to_owned()),
            limit => Ok(Self(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let limit = |text: &str| Limit::try_from(text.to_owned());
        assert_eq!(limit("2G"), Ok(Limit(2_000_000_000)));
        assert_eq!(limit("4Ki"), Ok(Limit(4096)));
        assert!(limit("0").unwrap_err().contains("leave it out"));
        assert!(limit("many").is_err());
    }
}
