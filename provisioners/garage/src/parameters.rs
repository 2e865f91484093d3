//! Parameters of classes, and `additionalConfig` of claims.

use std::str::FromStr;

use kube_provisioner::bucket::{Access, DeletionPolicy, Endpoint, EndpointError, Limit};
use kube_provisioner::parameters::unless_empty;
use serde::Deserialize;

use crate::lifecycle::Lifecycle;

/// The keys of `additionalConfig` that configure the bucket, not the claim's own access key.
pub(crate) const SETTINGS: [&str; 3] = ["maxObjects", "maxSize", LIFECYCLE];
pub(crate) const LIFECYCLE: &str = "bucketLifecycle";

/// The parameters of a class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    /// The URL of S3, for the provisioner and for pods.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) endpoint: Option<Endpoint>,
    /// The URL of the admin API.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) admin_endpoint: Option<AdminUrl>,
    /// `s3_region` of Garage's configuration.
    pub(crate) region: Option<String>,
    /// The access of keys to their buckets.
    pub(crate) access_mode: Access,
    /// The policy for deleting a bucket that contains objects.
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

/// The URL of the admin API, without a trailing slash. It may have a path, since only the provisioner uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminUrl(pub(crate) String);

impl FromStr for AdminUrl {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.parse::<Endpoint>() {
            Ok(_) | Err(EndpointError::Path) => Ok(Self(text.trim_end_matches('/').to_owned())),
            Err(malformed) => Err(malformed),
        }
    }
}

kube_provisioner::deserialize_from_str!(AdminUrl);

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    #[test]
    fn parses_addresses() {
        let class = |key: &str, value: &str| {
            let texts = [(key.to_owned(), value.to_owned())].into();
            from_map::<Parameters>(&texts).map_err(|error| error.to_string())
        };
        for (key, value, problem) in [
            ("endpoint", "garage:3900", "expected an endpoint"),
            ("endpoint", "http://garage/s3", "has no path"),
            ("adminEndpoint", "garage:3903", "expected an endpoint"),
            ("adminEndpoint", "http://me:secret@garage", "expected an endpoint"),
            ("adminEndpoint", "http://garage/admin?a=b", "expected an endpoint"),
        ] {
            let error = class(key, value).unwrap_err();
            assert!(error.starts_with(&format!("parameter {key:?}: ")) && error.contains(problem), "{error}");
            assert!(!error.contains("me:secret"), "{error}");
        }
        let joined = class("adminEndpoint", "https://garage.example.com/admin/").unwrap().admin_endpoint;
        assert_eq!(joined, Some(AdminUrl("https://garage.example.com/admin".to_owned())));
        assert_eq!(class("endpoint", "").unwrap().endpoint, None);
        assert_eq!(class("adminEndpoint", "").unwrap().admin_endpoint, None);
    }
}
