//! The fields of claims and ObjectBuckets that decisions read, and their conversion to facts.
//!
//! Specs and status are read by the lenient readers of [`objectbucket_api`]: an unusual field of another writer is
//! lost, but the object is not. An object that cannot be read at all counts as present, with its metadata and the
//! reason.

use std::sync::Arc;

use objectbucket_api::{
    ClaimReference, ObjectBucket, ObjectBucketClaim, ObjectBucketClaimSpec, ObjectBucketClaimStatus, ObjectBucketSpec,
    ObjectBucketStatus, ReclaimPolicy as Policy,
};
use provisioner_runtime::stable_hash;
use serde::Deserialize;

use super::facts::{BucketFacts, ClaimFacts, ConditionFacts, EndpointFacts, ReclaimPolicy, RecordState, StatusFacts};
use crate::bucket::ClaimName;
use crate::controller::shared::watched::{Fields, Meta, Watched, null_as_default};

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
    #[serde(default)]
    spec: ObjectBucketClaimSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: ObjectBucketClaimStatus,
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
    #[serde(rename = "kube-provisioner/cluster-id")]
    cluster_id: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/abandon")]
    abandon: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/adopt-for")]
    adopt_for: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/shared")]
    shared: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BucketFields {
    metadata: Meta<BucketAnnotations, Labels>,
    #[serde(default)]
    spec: ObjectBucketSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: ObjectBucketStatus,
}

impl Fields for ClaimFields {
    type Annotations = ClaimAnnotations;
    type Labels = Labels;

    fn metadata(&self) -> &Meta<ClaimAnnotations, Labels> {
        &self.metadata
    }
}

impl Fields for BucketFields {
    type Annotations = BucketAnnotations;
    type Labels = Labels;

    fn metadata(&self) -> &Meta<BucketAnnotations, Labels> {
        &self.metadata
    }
}

/// Returns `None` if the value is not an API object.
pub(crate) fn claim_facts(watched: &WatchedClaim) -> Option<ClaimFacts> {
    let metadata = watched.metadata().clone();
    let (spec, status, unreadable) = match &watched.fields {
        Ok(fields) => (fields.spec.clone(), fields.status.clone(), None),
        Err(unreadable) => {
            let (namespace, name, problem) = (watched.namespace(), watched.name(), &unreadable.problem);
            tracing::warn!(obc.namespace = namespace, obc.name = name, problem, "unreadable ObjectBucketClaim");
            (Default::default(), Default::default(), Some(problem.as_str().into()))
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
        class: given(Some(spec.storage_class_name)),
        bucket_name: given(spec.bucket_name),
        prefix: given(spec.generate_bucket_name),
        object_bucket: given(spec.object_bucket_name),
        config: spec.additional_config,
        rotation: metadata.annotations.rotation.filter(|text| !text.is_empty()),
        status: StatusFacts {
            phase: status.phase.map(|phase| phase.as_str().into()),
            conditions: status.conditions.into_iter().map(condition).collect(),
        },
        unreadable,
    })
}

/// Reads an ObjectBucket like [`claim_facts`].
pub(crate) fn bucket_facts(watched: &WatchedBucket) -> Option<BucketFacts> {
    let metadata = watched.metadata().clone();
    let (spec, status, unreadable) = match &watched.fields {
        Ok(fields) => (fields.spec.clone(), fields.status.clone(), None),
        Err(unreadable) => {
            tracing::warn!(ob = watched.name(), problem = unreadable.problem, "unreadable ObjectBucket");
            (Default::default(), Default::default(), Some(unreadable.problem.as_str().into()))
        }
    };
    let annotations = metadata.annotations;
    let endpoint = spec.endpoint.unwrap_or_default();
    let phase: Option<Box<str>> = status.phase.map(|phase| phase.as_str().into());
    // We name it before anything else, and others name it before they bind it. Removing a bucket without a name would
    // find none.
    let is_named = !endpoint.bucket_name.is_empty();
    let must_be_named = annotations.record.is_some() || phase.as_deref() == Some("Bound");
    let unreadable: Option<Box<str>> = match unreadable {
        None if must_be_named && !is_named => Some("spec.endpoint.bucketName is missing".into()),
        unreadable => unreadable,
    };
    Some(BucketFacts {
        name: metadata.name?.into(),
        uid: metadata.uid?.into(),
        resource_version: number(metadata.resource_version.as_deref()),
        created: metadata.creation_timestamp.and_then(|time| time.parse().ok()),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers,
        provisioner: annotations.provisioner,
        label: metadata.labels.provisioner,
        identity: annotations.identity,
        cluster_id: annotations.cluster_id,
        reference: spec.claim_ref.and_then(claim_name),
        class: given(Some(spec.storage_class_name)),
        policy: match spec.reclaim_policy {
            Some(Policy::Delete) => Some(ReclaimPolicy::Delete),
            Some(Policy::Retain | Policy::Recycle) => Some(ReclaimPolicy::Retain),
            _ => None,
        },
        endpoint: EndpointFacts {
            bucket: endpoint.bucket_name.into(),
            host: endpoint.bucket_host.into(),
            port: endpoint.bucket_port,
            region: endpoint.region.into(),
            sub_region: endpoint.sub_region.into(),
        },
        state: spec.additional_state,
        phase,
        record: match annotations.record {
            None => RecordState::Missing,
            Some(text) => match serde_json::from_str(&text) {
                Ok(record) => RecordState::Present(Arc::new(record)),
                Err(error) => RecordState::Unreadable(error.to_string()),
            },
        },
        abandoned: annotations.abandon.as_deref() == Some("true"),
        adopt_for: annotations.adopt_for,
        shared: annotations.shared.as_deref() == Some("true"),
        unreadable,
    })
}

/// Returns the claim that a reference names; the uid is empty if the reference has none.
fn claim_name(reference: ClaimReference) -> Option<ClaimName> {
    let (namespace, name) = (reference.namespace?, reference.name?);
    Some(ClaimName { namespace, name, uid: reference.uid.unwrap_or_default() })
}

fn condition(condition: k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> ConditionFacts {
    ConditionFacts {
        kind: condition.type_.into(),
        is_true: condition.status == "True",
        reason: condition.reason.into(),
        since: condition.last_transition_time.0.to_string().into(),
        message: stable_hash(&condition.message),
    }
}

fn given(text: Option<String>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty()).map(Into::into)
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use provisioner_runtime::watch::FromJson as _;
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> ClaimFacts {
        let metadata = json!({"namespace": "shop", "name": "photos", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["objectbucket.io/finalizer"]});
        let text = json!({"metadata": metadata, "spec": spec}).to_string();
        claim_facts(&WatchedClaim::from_json(&text).unwrap()).unwrap()
    }

    #[test]
    fn reads_unquoted_settings_as_strings() {
        let claim = claim(json!({"storageClassName": "c", "additionalConfig": {"maxObjects": 1000, "on": true}}));
        let config: Vec<_> = claim.config.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(config, [("maxObjects", "1000"), ("on", "true")]);
        assert!(claim.unreadable.is_none());
    }

    #[test]
    fn unreadable_objects_are_present() {
        let claim = claim(json!("nonsense"));
        assert!(claim.unreadable.is_some() && claim.deleting && claim.has_finalizer());
        assert_eq!((&*claim.namespace, &*claim.name, &*claim.uid), ("shop", "photos", "u"));

        let record = json!({"source": "Provisioned", "made": true,
            "claim": {"namespace": "shop", "name": "photos", "uid": "u"}});
        let annotations = json!({"kube-provisioner/bucket": record.to_string()});
        let metadata = json!({"name": "obc-shop-photos", "uid": "o", "annotations": annotations});
        // The second and the third spec are read as an endpoint without the bucket's name.
        for spec in [json!("nonsense"), json!({"endpoint": ["nonsense"]}), json!({"endpoint": {"bucketName": 7}})] {
            let text = json!({"metadata": metadata, "spec": spec}).to_string();
            let bucket = bucket_facts(&WatchedBucket::from_json(&text).unwrap()).unwrap();
            assert!(bucket.unreadable.is_some(), "{spec}");
            assert_eq!(bucket.claim().unwrap().uid, "u");
        }
    }

    #[test]
    fn an_object_without_an_endpoint_is_readable() {
        let text = json!({"metadata": {"name": "obc-shop-photos", "uid": "o"}, "spec": {"endpoint": null}}).to_string();
        assert!(bucket_facts(&WatchedBucket::from_json(&text).unwrap()).unwrap().unreadable.is_none());
    }
}
