//! ObjectBucket: the bucket provisioned for a claim.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::{BucketPhase, ReclaimPolicy};
use crate::{crd, lenient};

/// The bucket that was created for a claim: where it is, its owner, and what its provisioner needs to remove it.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "objectbucket.io",
    version = "v1alpha1",
    kind = "ObjectBucket",
    plural = "objectbuckets",
    singular = "objectbucket",
    shortname = "ob",
    shortname = "obs",
    status = "ObjectBucketStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A bucket that was created for a claim, or that a claim has access to.",
    printcolumn = r#"{"name": "Storage-Class", "type": "string", "jsonPath": ".spec.storageClassName"}"#,
    printcolumn = r#"{"name": "Claim-Namespace", "type": "string", "jsonPath": ".spec.claimRef.namespace"}"#,
    printcolumn = r#"{"name": "Claim-Name", "type": "string", "jsonPath": ".spec.claimRef.name"}"#,
    printcolumn = r#"{"name": "Reclaim-Policy", "type": "string", "jsonPath": ".spec.reclaimPolicy"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ObjectBucketSpec {
    /// The StorageClass of the bucket.
    #[serde(default, deserialize_with = "lenient::string")]
    pub storage_class_name: String,
    /// The treatment of the bucket after its claim is deleted: Delete, Retain or Recycle.
    #[serde(default, deserialize_with = "lenient::word", skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// The claim that the bucket is bound to.
    #[serde(default, deserialize_with = "lenient::claim_reference", skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimReference>,
    /// The location of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// State that the provisioner needs to remove the bucket and its user.
    #[serde(default, deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_state: BTreeMap<String, String>,
}

lenient::absent_is_default!(ObjectBucketSpec);

/// The claim that a bucket is bound to. Every field can be missing.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// `objectbucket.io/v1alpha1`.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `ObjectBucketClaim`.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The claim's namespace.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The claim's name.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The claim's uid.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The claim's version when the reference was written.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The referenced part of the claim; unused.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}

/// The location of a bucket.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The host that serves the bucket.
    #[serde(default, deserialize_with = "lenient::string")]
    pub bucket_host: String,
    /// The port that serves the bucket; 0 if unknown.
    #[serde(default, deserialize_with = "lenient::port")]
    pub bucket_port: i32,
    /// The name of the bucket in the store.
    #[serde(default, deserialize_with = "lenient::string")]
    pub bucket_name: String,
    /// The region of the bucket.
    #[serde(default, deserialize_with = "lenient::string")]
    pub region: String,
    /// The subregion of the bucket.
    #[serde(default, deserialize_with = "lenient::string")]
    pub sub_region: String,
    /// Settings that the provisioner has applied.
    #[serde(default, deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_config: BTreeMap<String, String>,
}

/// The state of a bucket.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketStatus {
    /// The state of the bucket: Bound, Released or Failed.
    #[serde(default, deserialize_with = "lenient::word", skip_serializing_if = "Option::is_none")]
    pub phase: Option<BucketPhase>,
    /// The state of each part of the bucket.
    #[serde(default, deserialize_with = "lenient::conditions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}
