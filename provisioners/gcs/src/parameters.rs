//! Parameters of StorageClasses and settings of claims.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{Access, Authentication, DeletionPolicy, Versioning};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::account::label_value;
use crate::principal::Pool;

/// Keys of `additionalConfig` that are looked up in the applied configuration.
const BUCKET_LIFECYCLE: &str = "bucketLifecycle";
pub(crate) const BUCKET_TAGS: &str = "bucketTags";
/// The keys that configure the bucket rather than the claim's account.
pub(crate) const SETTINGS: [&str; 4] = [BUCKET_LIFECYCLE, "bucketStorageClass", BUCKET_TAGS, "bucketVersioning"];

/// The parameters of a StorageClass.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// The project of buckets and service accounts.
    pub(crate) project: Option<String>,
    /// The location of buckets: a region, a dual-region or a multi-region.
    #[serde(alias = "region")]
    pub(crate) location: String,
    /// The default storage class of objects.
    pub(crate) storage_class: Option<StorageClass>,
    /// The access that claims receive.
    pub(crate) access_mode: Access,
    /// Selects access with or without keys.
    pub(crate) authentication: Authentication,
    pub(crate) workload_identity_pool: Option<Pool>,
    /// Selects whether a bucket that contains objects is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
    /// An existing service account, instead of a generated one for each claim.
    pub(crate) service_account: Option<String>,
    pub(crate) uniform_bucket_level_access: bool,
    pub(crate) public_access_prevention: PublicAccessPrevention,
    pub(crate) versioning: Option<bool>,
    /// Days that deleted objects and buckets are kept; 0 disables soft delete.
    pub(crate) soft_delete_days: Option<Days>,
    pub(crate) lifecycle: Option<Lifecycle>,
    /// The Cloud KMS key that encrypts objects.
    pub(crate) kms_key_name: Option<String>,
    /// Labels of the bucket: `a=b,c=d`.
    pub(crate) labels: Labels,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            project: None,
            location: "US".to_owned(),
            storage_class: None,
            access_mode: Access::default(),
            authentication: Authentication::default(),
            workload_identity_pool: None,
            deletion_policy: DeletionPolicy::default(),
            service_account: None,
            uniform_bucket_level_access: true,
            public_access_prevention: PublicAccessPrevention::Enforced,
            versioning: None,
            soft_delete_days: None,
            lifecycle: None,
            kms_key_name: None,
            labels: Labels::default(),
        }
    }
}

/// A claim's `additionalConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Config {
    pub(crate) access_mode: Option<Access>,
    pub(crate) authentication: Option<Authentication>,
    /// The Kubernetes ServiceAccount in the claim's namespace.
    pub(crate) service_account: Option<String>,
    pub(crate) bucket_lifecycle: Option<Lifecycle>,
    /// The default storage class of objects.
    pub(crate) bucket_storage_class: Option<StorageClass>,
    /// Labels. Other stores call them tags.
    pub(crate) bucket_tags: Option<Labels>,
    pub(crate) bucket_versioning: Option<Versioning>,
}

impl Parameters {
    /// Returns the bucket settings to create and reconcile. `applied` contains the keys of `additionalConfig` that may
    /// have been applied.
    pub(crate) fn settings_for(&self, config: &Config, applied: &BTreeMap<String, String>) -> Value {
        let mut settings = self.settings();
        match &config.bucket_lifecycle {
            Some(Lifecycle(lifecycle)) => settings["lifecycle"] = lifecycle.clone(),
            None if self.lifecycle.is_none() && applied.contains_key(BUCKET_LIFECYCLE) => {
                settings["lifecycle"] = json!({"rule": []});
            }
            None => {}
        }
        if let Some(versioning) = config.bucket_versioning {
            settings["versioning"] = json!({"enabled": versioning == Versioning::Enabled});
        }
        if let Some(class) = config.bucket_storage_class {
            settings["storageClass"] = json!(class.name());
        } else if applied.contains_key("bucketStorageClass") {
            settings["storageClass"] = json!(self.storage_class.map_or("STANDARD", |class| class.name()));
        }
        settings
    }

    fn settings(&self) -> Value {
        let mut settings = json!({
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": self.uniform_bucket_level_access},
                "publicAccessPrevention": self.public_access_prevention.name(),
            },
        });
        if let Some(enabled) = self.versioning {
            settings["versioning"] = json!({"enabled": enabled});
        }
        if let Some(Days(days)) = self.soft_delete_days {
            settings["softDeletePolicy"] = json!({"retentionDurationSeconds": (days * 86_400).to_string()});
        }
        if let Some(Lifecycle(lifecycle)) = &self.lifecycle {
            settings["lifecycle"] = lifecycle.clone();
        }
        if let Some(key) = &self.kms_key_name {
            settings["encryption"] = json!({"defaultKmsKeyName": key});
        }
        settings
    }
}

/// Returns true if a bucket has these settings. Other settings are ignored.
pub(crate) fn is_set(live: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(wanted) => wanted.iter().all(|(key, value)| match live.get(key) {
            Some(live) => is_set(live, value),
            // Google omits settings that are off.
            None => is_off(value),
        }),
        _ => live == wanted,
    }
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(value) => value == "0",
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.values().all(is_off),
        _ => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PublicAccessPrevention {
    Enforced,
    Inherited,
}

impl PublicAccessPrevention {
    fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Inherited => "inherited",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum StorageClass {
    Standard,
    Nearline,
    Coldline,
    Archive,
}

impl StorageClass {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "STANDARD",
            Self::Nearline => "NEARLINE",
            Self::Coldline => "COLDLINE",
            Self::Archive => "ARCHIVE",
        }
    }
}

/// <https://cloud.google.com/storage/docs/soft-delete>
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Days(pub(crate) u32);

impl TryFrom<String> for Days {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            Ok(days @ (0 | 7..=90)) => Ok(Self(days)),
            _ => Err(format!("{text:?} is not valid: use 0 to disable soft delete, or 7 to 90 days")),
        }
    }
}

/// The lifecycle of a bucket, in the JSON format of Google's tools: `{"rule":[…]}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Lifecycle(Value);

impl TryFrom<String> for Lifecycle {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let malformed =
            || "a lifecycle is JSON such as {\"rule\":[{\"action\":{\"type\":\"Delete\"},\"condition\":{\"age\":30}}]}";
        let value: Value = serde_json::from_str(&text).map_err(|error| format!("{error}; {}", malformed()))?;
        // gsutil wraps the rules in the bucket's field `lifecycle`.
        let value = value.get("lifecycle").cloned().unwrap_or(value);
        let rules = value.get("rule").and_then(Value::as_array).ok_or_else(malformed)?;
        let whole = |rule: &Value| rule["action"]["type"].is_string() && rule["condition"].is_object();
        if rules.iter().all(whole) && value.as_object().is_some_and(|lifecycle| lifecycle.len() == 1) {
            Ok(Self(value))
        } else {
            Err(malformed().to_owned())
        }
    }
}

/// <https://cloud.google.com/storage/docs/tags-and-labels#bucket-labels>
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Labels(pub(crate) BTreeMap<String, String>);

impl TryFrom<String> for Labels {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not like key=value"))?;
            if !key.starts_with(|first: char| first.is_ascii_lowercase()) || label_value(key) != key {
                return Err(format!(
                    "{key:?} is not a valid label: lower case letters, digits, _ and - up to 63, a letter first"
                ));
            }
            if label_value(value) != value {
                return Err(format!(
                    "{value:?} is not a valid label value: lower case letters, digits, _ and - up to 63"
                ));
            }
            if key.starts_with("objectbucketclaim-") || key.starts_with("goog") {
                return Err(format!("the label {key:?} is reserved"));
            }
            labels.insert(key.to_owned(), value.to_owned());
        }
        match labels.len() {
            0..=56 => Ok(Self(labels)),
            _ => Err("a bucket has no room for that many labels: at most 56".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    fn class(pairs: &[(&str, &str)]) -> Result<Parameters, String> {
        let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        from_map(&map).map_err(|error| error.to_string())
    }

    #[test]
    fn restores_the_default_storage_class() {
        let applied = |key: &str| BTreeMap::from([(key.to_owned(), "COLDLINE".to_owned())]);
        let settings = |key| Parameters::default().settings_for(&Config::default(), &applied(key));
        assert_eq!(settings("bucketStorageClass")["storageClass"], "STANDARD");
        assert!(settings("bucketTags").get("storageClass").is_none());
    }

    #[test]
    fn converts_class_parameters_to_settings() {
        let parameters = class(&[
            ("region", "europe-west1"),
            ("storageClass", "NEARLINE"),
            ("versioning", "true"),
            ("softDeleteDays", "7"),
            ("publicAccessPrevention", "inherited"),
            ("lifecycle", r#"{"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":3}}]}}"#),
            ("labels", "team=shop, cost-center=1"),
            ("kmsKeyName", "projects/p/locations/l/keyRings/r/cryptoKeys/k"),
        ]);
        let parameters = parameters.unwrap();
        assert_eq!(parameters.location, "europe-west1");
        let settings = parameters.settings();
        assert_eq!(settings["softDeletePolicy"]["retentionDurationSeconds"], "604800");
        assert_eq!(settings["lifecycle"]["rule"][0]["condition"]["age"], 3);
        assert_eq!(settings["iamConfiguration"]["publicAccessPrevention"], "inherited");
        assert!(is_set(&settings, &settings));
        assert!(!is_set(&settings, &class(&[]).unwrap().settings()));
        let off = class(&[("versioning", "false"), ("softDeleteDays", "0")]).unwrap().settings();
        assert!(is_set(&class(&[]).unwrap().settings(), &off));
        assert!(!is_set(&settings, &off));
    }

    #[test]
    fn rejects_values_that_google_would_refuse() {
        for (key, value, part) in [
            ("softDeleteDays", "3", "7 to 90"),
            ("softDeleteDays", "-1", "7 to 90"),
            ("storageClass", "standard", "STANDARD"),
            ("lifecycle", "[]", "a lifecycle is JSON"),
            ("lifecycle", r#"{"rule":[{}]}"#, "a lifecycle is JSON"),
            ("lifecycle", r#"{"Rules":[]}"#, "a lifecycle is JSON"),
            ("labels", "Team=x", "is not a valid label:"),
            ("labels", "team=X", "not a valid label value"),
            ("labels", "team", "key=value"),
            ("labels", "objectbucketclaim-uid=1", "reserved"),
            ("accessMode", "all", "read-only"),
            ("loaction", "US", "location"),
        ] {
            let error = class(&[(key, value)]).unwrap_err();
            assert!(error.contains(part), "{key}={value}: {error}");
        }
    }
}
