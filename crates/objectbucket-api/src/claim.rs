//! ObjectBucketClaim: a user's request for a bucket.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::ClaimPhase;
use crate::{crd, lenient};

/// The requested bucket: its class, and an exact name or a prefix.
///
/// Users write the class, one of the two names, and additionalConfig. The provisioner writes the rest.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "objectbucket.io",
    version = "v1alpha1",
    kind = "ObjectBucketClaim",
    plural = "objectbucketclaims",
    singular = "objectbucketclaim",
    shortname = "obc",
    shortname = "obcs",
    namespaced,
    status = "ObjectBucketClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A request for a bucket and for access to it.",
    printcolumn = r#"{"name": "Storage-Class", "type": "string", "jsonPath": ".spec.storageClassName"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ObjectBucketClaimSpec {
    /// The StorageClass, which determines the provisioner and its parameters.
    #[serde(default, deserialize_with = "lenient::string")]
    pub storage_class_name: String,
    /// The exact name of the bucket. It may collide in the store: prefer generateBucketName. The provisioner writes the
    /// name that it chose here.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub bucket_name: Option<String>,
    /// The prefix of a generated bucket name. Ignored if bucketName is set.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub generate_bucket_name: Option<String>,
    /// Settings of the provisioner. The only field that users may change later.
    #[serde(default, deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_config: BTreeMap<String, String>,
    /// The ObjectBucket that is bound to this claim. The provisioner writes it.
    #[serde(default, deserialize_with = "lenient::optional_string", skip_serializing_if = "Option::is_none")]
    pub object_bucket_name: Option<String>,
}

lenient::absent_is_default!(ObjectBucketClaimSpec);

/// The state of a claim.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketClaimStatus {
    /// The state of the claim: Pending, Bound, Released or Failed.
    #[serde(default, deserialize_with = "lenient::word", skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The state of each part of the claim, with the problem and its remedy.
    #[serde(default, deserialize_with = "lenient::conditions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the claim that the conditions describe.
    #[serde(default, deserialize_with = "lenient::integer", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
