//! What classes and claims say.

use std::str::FromStr;

use kube_provisioner::bucket::{Access, DeletionPolicy, Endpoint, EndpointError, Versioning};
use kube_provisioner::parameters::unless_empty;
use kube_provisioner::quantity::Quantity;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::tags::Tags;
use serde::Deserialize;

pub(crate) const BUCKET_POLICY: &str = "bucketPolicy";
pub(crate) const BUCKET_LIFECYCLE: &str = "bucketLifecycle";
pub(crate) const BUCKET_TAGS: &str = "bucketTags";

/// The parameters of a class: Rook's, and `accessMode`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// The object store.
    pub(crate) object_store_name: Option<String>,
    /// The namespace of the object store.
    pub(crate) object_store_namespace: Option<String>,
    /// Where the gateway is.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) endpoint: Option<Gateway>,
    /// The region that requests are signed for. The gateway takes any.
    pub(crate) region: Option<String>,
    /// What users may do in buckets that classes name.
    pub(crate) access_mode: Access,
    /// Whether a bucket with objects is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
}

/// A claim's `additionalConfig`: Rook's, and `accessMode`.
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

impl Config {
    /// The keys that are about the bucket and not about the user, and whether they are set.
    pub(crate) fn bucket_settings(&self) -> [(&'static str, bool); 8] {
        [
            ("bucketMaxObjects", self.bucket_max_objects.is_some()),
            ("bucketMaxSize", self.bucket_max_size.is_some()),
            (BUCKET_POLICY, self.bucket_policy.is_some()),
            (BUCKET_LIFECYCLE, self.bucket_lifecycle.is_some()),
            ("bucketPlacement", self.bucket_placement.is_some()),
            ("bucketStorageClass", self.bucket_storage_class.is_some()),
            (BUCKET_TAGS, self.bucket_tags.is_some()),
            ("bucketVersioning", self.bucket_versioning.is_some()),
        ]
    }
}

/// The address of a gateway: a URL, or `host:port` as Rook writes it, with TLS on 443 and 8443 only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
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

impl TryFrom<String> for Gateway {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

/// The name of a placement target or of a storage class.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Placement(pub(crate) String);

impl TryFrom<String> for Placement {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        match !text.is_empty() && text.len() <= 255 && text.chars().all(is_plain) {
            true => Ok(Self(text)),
            false => Err(format!("{text:?} is no name: letters, digits, - _ and . are possible")),
        }
    }
}

/// A limit that a quota can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Limit(pub(crate) i64);

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let limit = text.parse::<Quantity>().and_then(|quantity| quantity.bytes());
        match limit.map_err(|error| error.to_string())? {
            0 => Err("a limit of 0 would refuse every object: leave it out for no limit".to_owned()),
            // The gateway counts in kibibytes too, and rounds up.
            large if large > i64::MAX as u64 - 1023 => Err(format!("{text:?} is more than any store holds")),
            limit => Ok(Self(limit as i64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
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

    #[test]
    fn limits() {
        let limit = |text: &str| Limit::try_from(text.to_owned());
        assert_eq!(limit("2"), Ok(Limit(2)));
        assert_eq!(limit("2G"), Ok(Limit(2_000_000_000)));
        assert_eq!(limit("4Ki"), Ok(Limit(4096)));
        for (text, part) in [
            ("abc", "not a quantity"),
            ("-1", "negative"),
            ("0", "leave it out"),
            ("1e30", "more than any store holds"),
            ("8Ei", "more than any store holds"),
            ("", "not a quantity"),
        ] {
            let error = limit(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
