//! Parameters of classes, and `additionalConfig` of claims.

use std::str::FromStr;

use kube_provisioner::bucket::{Access, DeletionPolicy, Endpoint, EndpointError, Limit, Versioning};
use kube_provisioner::parameters::unless_empty;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::tags::Tags;
use serde::Deserialize;

pub(crate) const BUCKET_POLICY: &str = "bucketPolicy";
pub(crate) const BUCKET_LIFECYCLE: &str = "bucketLifecycle";
pub(crate) const BUCKET_TAGS: &str = "bucketTags";

/// The keys of `additionalConfig` that configure the bucket, not the user.
pub(crate) const SETTINGS: [&str; 8] = [
    "bucketMaxObjects",
    "bucketMaxSize",
    BUCKET_POLICY,
    BUCKET_LIFECYCLE,
    "bucketPlacement",
    "bucketStorageClass",
    BUCKET_TAGS,
    "bucketVersioning",
];

/// The parameters of a class: Rook's parameters, and `accessMode`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// The object store.
    pub(crate) object_store_name: Option<String>,
    /// The namespace of the object store.
    pub(crate) object_store_namespace: Option<String>,
    /// The address of the gateway.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) endpoint: Option<Gateway>,
    /// The region that requests are signed for. The gateway accepts any region.
    pub(crate) region: Option<String>,
    /// The access of users to buckets that classes name.
    pub(crate) access_mode: Access,
    /// The policy for deleting a bucket that contains objects.
    pub(crate) deletion_policy: DeletionPolicy,
}

/// A claim's `additionalConfig`: Rook's keys, and `accessMode`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Config {
    pub(crate) max_objects: Option<Limit>,
    pub(crate) max_size: Option<Limit>,
    pub(crate) bucket_max_objects: Option<Limit>,
    pub(crate) bucket_max_size: Option<Limit>,
    pub(crate) bucket_policy: Option<Policy>,
    pub(crate) bucket_lifecycle: Option<Lifecycle>,
    pub(crate) bucket_owner: Option<String>,
    pub(crate) bucket_placement: Option<Placement>,
    pub(crate) bucket_storage_class: Option<Placement>,
    pub(crate) bucket_tags: Option<Tags>,
    pub(crate) bucket_versioning: Option<Versioning>,
    pub(crate) access_mode: Option<Access>,
}

/// The address of a gateway: a URL, or `host:port` as Rook writes it, with TLS on 443 and 8443 only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway(pub(crate) Endpoint);

impl FromStr for Gateway {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let endpoint: Result<Endpoint, _> = match text.contains("://") {
            true => text.parse(),
            false if text.ends_with(":443") || text.ends_with(":8443") => format!("https://{text}").parse(),
            false => format!("http://{text}").parse(),
        };
        endpoint.map(Self)
    }
}

kube_provisioner::deserialize_from_str!(Gateway);

/// The name of a placement target or of a storage class.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Placement(pub(crate) String);

impl TryFrom<String> for Placement {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !text.is_empty() && text.len() <= 255 && text.chars().all(is_plain) {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is not a valid name: use letters, digits, -, _ and ."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_gateway_addresses() {
        for (text, host, port, tls) in [
            ("rgw:80", "rgw", 80, false),
            ("rgw.example.com", "rgw.example.com", 80, false),
            ("rgw:443", "rgw", 443, true),
            ("10.0.0.1:8443", "10.0.0.1", 8443, true),
            ("https://rgw", "rgw", 443, true),
            ("http://[fd00::1]:7480", "[fd00::1]", 7480, false),
        ] {
            let Gateway(endpoint) = text.parse().unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port, endpoint.tls), (host, port, tls), "{text}");
        }
        for (text, problem) in [
            ("ftp://rgw", "expected an endpoint"),
            ("http://", "expected an endpoint"),
            ("a b", "expected an endpoint"),
            ("http://rgw/s3/", "has no path"),
            ("rgw:80/s3", "has no path"),
        ] {
            let class = [("endpoint".to_owned(), text.to_owned())].into();
            let error = kube_provisioner::parameters::from_map::<Parameters>(&class).unwrap_err().to_string();
            assert!(error.starts_with("parameter \"endpoint\": ") && error.contains(problem), "{text}: {error}");
        }
        let empty = [("endpoint".to_owned(), String::new())].into();
        assert_eq!(kube_provisioner::parameters::from_map::<Parameters>(&empty).unwrap().endpoint, None);
    }
}
