//! The fields of claims and ObjectBuckets that decisions read, and how they become facts.

use std::collections::BTreeMap;

use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use provisioner_runtime::stable_hash;
use serde::Deserialize;

use super::facts::{BucketFacts, ClaimFacts, ConditionFacts, EndpointFacts, ReclaimPolicy, Recorded, StatusFacts};
use crate::bucket::ClaimName;
use crate::controller::watched::{Fields, Meta, Watched, null_as_default};

pub(crate) type WatchedClaim = Watched<ObjectBucketClaim, ClaimFields>;
pub(crate) type WatchedBucket = Watched<ObjectBucket, BucketFields>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    #[serde(rename = "bucket-provisioner")]
    provisioner: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimAnnotations {
    #[serde(rename = "kube-provisioner/rotate-credentials")]
    rotation: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ClaimFields {
    metadata: Meta<ClaimAnnotations, Labels>,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: ClaimSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: ClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    storage_class_name: Option<Box<str>>,
    bucket_name: Option<Box<str>>,
    generate_bucket_name: Option<Box<str>>,
    object_bucket_name: Option<Box<str>>,
    #[serde(deserialize_with = "null_as_default")]
    additional_config: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    phase: Option<Box<str>>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    reason: Box<str>,
    message: Box<str>,
    last_transition_time: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BucketAnnotations {
    #[serde(rename = "kube-provisioner/bucket")]
    record: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/provisioned-by")]
    provisioner: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/identity")]
    identity: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/abandon")]
    abandon: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BucketFields {
    metadata: Meta<BucketAnnotations, Labels>,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: BucketSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: BucketStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BucketSpec {
    storage_class_name: Option<Box<str>>,
    reclaim_policy: Option<Box<str>>,
    claim_ref: Option<ClaimReference>,
    #[serde(deserialize_with = "null_as_default")]
    endpoint: Endpoint,
    #[serde(deserialize_with = "null_as_default")]
    additional_state: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimReference {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    #[serde(deserialize_with = "null_as_default")]
    bucket_name: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    bucket_host: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    bucket_port: i32,
    #[serde(deserialize_with = "null_as_default")]
    region: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    sub_region: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct BucketStatus {
    phase: Option<Box<str>>,
}

impl Fields for ClaimFields {
    type Annotations = ClaimAnnotations;
    type Labels = Labels;

    fn metadata(&self) -> &Meta<ClaimAnnotations, Labels> {
        &self.metadata
    }

    fn wanted_whole(&self) -> bool {
        false
    }
}

impl Fields for BucketFields {
    type Annotations = BucketAnnotations;
    type Labels = Labels;

    fn metadata(&self) -> &Meta<BucketAnnotations, Labels> {
        &self.metadata
    }

    fn wanted_whole(&self) -> bool {
        false
    }
}

/// `None` for what is no object of an API server, or cannot be read.
pub(crate) fn claim_facts(watched: &WatchedClaim) -> Option<ClaimFacts> {
    let ClaimFields { metadata, spec, status } = match &watched.fields {
        Ok(fields) => fields.clone(),
        Err(unreadable) => {
            let (namespace, name, problem) = (watched.namespace(), watched.name(), &unreadable.problem);
            tracing::warn!(obc.namespace = namespace, obc.name = name, problem, "unreadable ObjectBucketClaim");
            return None;
        }
    };
    Some(ClaimFacts {
        namespace: metadata.namespace?.into(),
        name: metadata.name?.into(),
        uid: metadata.uid?.into(),
        resource_version: number(metadata.resource_version.as_deref()),
        created: metadata.creation_timestamp.and_then(|time| time.parse().ok()),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers,
        label: metadata.labels.provisioner,
        class: given(spec.storage_class_name),
        bucket_name: given(spec.bucket_name),
        prefix: given(spec.generate_bucket_name),
        object_bucket: given(spec.object_bucket_name),
        config: spec.additional_config,
        rotation: given(metadata.annotations.rotation),
        status: StatusFacts {
            phase: given(status.phase),
            conditions: status.conditions.into_iter().map(Condition::facts).collect(),
        },
    })
}

/// As [`claim_facts`].
pub(crate) fn bucket_facts(watched: &WatchedBucket) -> Option<BucketFacts> {
    let BucketFields { metadata, spec, status } = match &watched.fields {
        Ok(fields) => fields.clone(),
        Err(unreadable) => {
            tracing::warn!(ob = watched.name(), problem = unreadable.problem, "unreadable ObjectBucket");
            return None;
        }
    };
    let annotations = metadata.annotations;
    Some(BucketFacts {
        name: metadata.name?.into(),
        uid: metadata.uid?.into(),
        resource_version: number(metadata.resource_version.as_deref()),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers,
        provisioner: annotations.provisioner,
        label: metadata.labels.provisioner,
        identity: annotations.identity,
        claim: spec.claim_ref.and_then(|claim| {
            let (namespace, name) = (claim.namespace?, claim.name?);
            Some(ClaimName { namespace, name, uid: claim.uid.unwrap_or_default() })
        }),
        class: given(spec.storage_class_name),
        policy: match spec.reclaim_policy.as_deref() {
            Some("Delete") => Some(ReclaimPolicy::Delete),
            Some("Retain" | "Recycle") => Some(ReclaimPolicy::Retain),
            _ => None,
        },
        endpoint: EndpointFacts {
            bucket: spec.endpoint.bucket_name,
            host: spec.endpoint.bucket_host,
            port: spec.endpoint.bucket_port,
            region: spec.endpoint.region,
            sub_region: spec.endpoint.sub_region,
        },
        state: spec.additional_state,
        phase: given(status.phase),
        record: match annotations.record {
            None => Recorded::Nothing,
            Some(text) => match serde_json::from_str(&text) {
                Ok(record) => Recorded::As(std::sync::Arc::new(record)),
                Err(error) => Recorded::Unreadable(error.to_string()),
            },
        },
        abandoned: annotations.abandon.as_deref() == Some("true"),
    })
}

impl Condition {
    fn facts(self) -> ConditionFacts {
        ConditionFacts {
            kind: self.kind,
            is_true: &*self.status == "True",
            reason: self.reason,
            since: self.last_transition_time,
            message: stable_hash(&self.message),
        }
    }
}

fn given(text: Option<Box<str>>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty())
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}
