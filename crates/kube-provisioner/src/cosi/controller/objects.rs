//! Buckets and BucketAccesses of `objectstorage.k8s.io/v1alpha2`: the fields that the rules read.
//!
//! Unknown fields are ignored. An object of this driver is unreadable if a known field is missing or has another type.
//! It counts as present, and only receives an event.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::bucket::Access;
use crate::controller::shared::watched::{Fields, Meta, Watched, null_as_default};

pub(super) const GROUP: &str = "objectstorage.k8s.io";
pub(super) const API_VERSION: &str = "objectstorage.k8s.io/v1alpha2";
/// The finalizer of all COSI objects.
pub(super) const FINALIZER: &str = "objectstorage.k8s.io/protection";
/// BucketAccess annotation: the account has been removed, and the central controller completes the deletion.
pub(super) const CLEANUP_FINISHED: &str = "objectstorage.k8s.io/sidecar-cleanup-finished";
/// The protocol of all supported backends.
pub(super) const S3: &str = "S3";

macro_rules! kind {
    ($kind:ident, $plural:literal, $scope:ty) => {
        #[derive(Clone, Debug)]
        pub(super) struct $kind {
            metadata: ObjectMeta,
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                "v1alpha2".into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind!(Bucket, "buckets", ClusterResourceScope);
kind!(BucketAccess, "bucketaccesses", NamespaceResourceScope);

pub(super) type WatchedBucket = Watched<Bucket, ObjectFields>;
pub(super) type WatchedAccess = Watched<BucketAccess, ObjectFields>;

/// An object before its fields are parsed: its driver is known even if another field is invalid.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ObjectFields {
    metadata: Meta<Annotations>,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// Only their presence matters, not their values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotations {
    #[serde(rename = "objectstorage.k8s.io/bucketclaim-being-deleted")]
    claim_ends: Option<IgnoredAny>,
    /// The misspelt form that the central controller writes.
    #[serde(rename = "objectstorage.k8.io/bucketclaim-being-deleted")]
    claim_ends_misspelt: Option<IgnoredAny>,
    #[serde(rename = "objectstorage.k8s.io/sidecar-cleanup-finished")]
    cleanup_finished: Option<IgnoredAny>,
    #[serde(rename = "objectstorage.k8s.io/controller-management-override")]
    overridden: Option<IgnoredAny>,
}

impl Fields for ObjectFields {
    type Annotations = Annotations;
    type Labels = IgnoredAny;

    fn metadata(&self) -> &Meta<Annotations> {
        &self.metadata
    }
}

/// The fields that both kinds share.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Empty for a Bucket.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
    pub(super) version: String,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
    /// `status.readyToUse`, if it is set.
    pub(super) ready: Option<bool>,
    /// The message of `status.error`.
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct BucketFacts {
    pub(super) object: Object,
    /// Every ID that its bucket may have, known even if another field is invalid.
    pub(super) ids: Vec<String>,
    /// Its BucketClaim is deleted, or about to be.
    pub(super) claim_ends: bool,
    /// Its fields, or the reason why they cannot be read.
    pub(super) content: Result<BucketContent, String>,
}

#[derive(Clone, Debug, Deserialize, Hash)]
#[serde(rename = "Spec")]
pub(super) struct BucketContent {
    #[serde(rename = "deletionPolicy")]
    pub(super) policy: Policy,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) parameters: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) protocols: Vec<String>,
    #[serde(rename = "bucketClaimRef")]
    pub(super) claim: ClaimReference,
    /// The existing bucket that it names.
    #[serde(rename = "existingBucketID", default)]
    pub(super) existing: Option<String>,
    /// The ID in the status.
    #[serde(skip)]
    pub(super) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Hash)]
pub(super) enum Policy {
    Retain,
    Delete,
}

#[derive(Clone, Debug, Deserialize, Hash)]
pub(super) struct ClaimReference {
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) uid: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct AccessFacts {
    pub(super) object: Object,
    /// The driver's part of the deletion is finished.
    pub(super) cleanup_finished: bool,
    /// The central controller has reclaimed the object.
    pub(super) overridden: bool,
    pub(super) content: Result<AccessContent, String>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct AccessContent {
    pub(super) class: String,
    pub(super) protocol: String,
    pub(super) authentication: String,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) targets: Vec<Target>,
    /// The account's ID in the status.
    pub(super) account: Option<String>,
}

/// One bucket of an access.
#[derive(Clone, Debug, Hash)]
pub(super) struct Target {
    pub(super) bucket: String,
    /// The ID of the bucket in the backend.
    pub(super) id: String,
    pub(super) access: Access,
    pub(super) secret: String,
}

/// A watched object. For an object of another driver, only the name is kept.
#[derive(Clone, Debug)]
pub(super) struct WatchedObject<T> {
    /// Its name, preceded by the namespace if it has one.
    pub(super) path: Arc<str>,
    pub(super) ours: Option<Arc<T>>,
}

/// Returns `None` if the value is not an API object.
pub(super) fn bucket(watched: &WatchedBucket, driver: &str) -> Option<WatchedObject<BucketFacts>> {
    let facts = |fields: &ObjectFields, object: Object| {
        let Annotations { claim_ends, claim_ends_misspelt, .. } = &fields.metadata.annotations;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let wanted = text(fields.spec.get("existingBucketID")).unwrap_or_else(|| object.name.to_string());
        BucketFacts {
            ids: text(fields.status.get("bucketID")).into_iter().chain([wanted]).collect(),
            claim_ends: claim_ends.is_some() || claim_ends_misspelt.is_some(),
            content: bucket_content(fields),
            object,
        }
    };
    seen(watched, |fields| driver_of(&fields.spec) == Some(driver), facts)
}

/// Reads an access like [`bucket`]. A BucketAccess belongs to a driver once the central controller has written so into
/// its status.
pub(super) fn access(watched: &WatchedAccess, driver: &str) -> Option<WatchedObject<AccessFacts>> {
    seen(
        watched,
        |fields| driver_of(&fields.status) == Some(driver),
        |fields, object| AccessFacts {
            object,
            cleanup_finished: fields.metadata.annotations.cleanup_finished.is_some(),
            overridden: fields.metadata.annotations.overridden.is_some(),
            content: access_content(fields),
        },
    )
}

fn driver_of(part: &Value) -> Option<&str> {
    part.get("driverName").and_then(Value::as_str)
}

fn seen<K, T>(
    watched: &Watched<K, ObjectFields>,
    is_ours: impl FnOnce(&ObjectFields) -> bool,
    facts: impl FnOnce(&ObjectFields, Object) -> T,
) -> Option<WatchedObject<T>> {
    let metadata = watched.metadata();
    let name = metadata.name.as_deref()?;
    let path: Arc<str> = match metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    };
    let fields = watched.fields.as_ref().ok().filter(|fields| is_ours(fields));
    let ours = fields.and_then(|fields| {
        let object = Object {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: name.into(),
            uid: metadata.uid.as_deref()?.into(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone(),
            ready: fields.status.get("readyToUse").and_then(Value::as_bool),
            error: fields.status.pointer("/error/message").and_then(Value::as_str).map(str::to_owned),
        };
        Some(Arc::new(facts(fields, object)))
    });
    Some(WatchedObject { path, ours })
}

fn read<T: DeserializeOwned>(what: &str, value: &Value) -> Result<T, String> {
    // A missing part is treated as an object without fields.
    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() };
    serde_json::from_value(value).map_err(|error| format!("{what}: {error}"))
}

fn bucket_content(fields: &ObjectFields) -> Result<BucketContent, String> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "bucketID", default)]
        id: Option<String>,
    }
    let content: BucketContent = read("spec", &fields.spec)?;
    let Status { id } = read("status", &fields.status)?;
    Ok(BucketContent { id, ..content })
}

fn access_content(fields: &ObjectFields) -> Result<AccessContent, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        bucket_claims: Vec<Claim>,
        bucket_access_class_name: String,
        protocol: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Claim {
        bucket_claim_name: String,
        access_mode: Mode,
        access_secret_name: String,
    }
    #[derive(Deserialize)]
    enum Mode {
        ReadWrite,
        ReadOnly,
        WriteOnly,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        accessed_buckets: Vec<Accessed>,
        authentication_type: String,
        #[serde(default, deserialize_with = "null_as_default")]
        parameters: BTreeMap<String, String>,
        #[serde(rename = "accountID", default)]
        account: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Accessed {
        bucket_name: String,
        #[serde(rename = "bucketID")]
        id: String,
        bucket_claim_name: String,
    }
    let Spec { bucket_claims, bucket_access_class_name, protocol } = read("spec", &fields.spec)?;
    let Status { accessed_buckets, authentication_type, parameters, account } = read("status", &fields.status)?;
    if accessed_buckets.len() != bucket_claims.len() || bucket_claims.is_empty() {
        return Err("status.accessedBuckets has not one bucket for each of spec.bucketClaims".to_owned());
    }
    let target = |claim: Claim| {
        let name = claim.bucket_claim_name;
        let accessed = accessed_buckets.iter().find(|accessed| accessed.bucket_claim_name == name);
        let accessed =
            accessed.ok_or_else(|| format!("status.accessedBuckets has no bucket of BucketClaim {name:?}"))?;
        let access = match claim.access_mode {
            Mode::ReadWrite => Access::ReadWrite,
            Mode::ReadOnly => Access::ReadOnly,
            Mode::WriteOnly => Access::WriteOnly,
        };
        let (bucket, id) = (accessed.bucket_name.clone(), accessed.id.clone());
        Ok(Target { bucket, id, access, secret: claim.access_secret_name })
    };
    let targets = bucket_claims.into_iter().map(target).collect::<Result<_, String>>()?;
    Ok(AccessContent {
        class: bucket_access_class_name,
        protocol,
        authentication: authentication_type,
        parameters,
        targets,
        account,
    })
}

impl Object {
    pub(super) fn is_protected(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready == Some(true)
    }

    /// Returns the fields that no attempt changes.
    pub(super) fn inputs(&self) -> (&str, bool, bool) {
        (&self.uid, self.deleting, self.is_ready())
    }
}

impl BucketFacts {
    /// Returns the fields that no attempt changes.
    pub(super) fn inputs(&self) -> impl Hash {
        (self.object.inputs(), self.claim_ends, &self.content)
    }

    /// Returns true if the other Bucket represents the same bucket in the backend. A deleted one without our finalizer
    /// no longer does: only finalizers of other controllers keep it.
    pub(super) fn is_duplicate(&self, other: &Self) -> bool {
        let is_finished = other.object.deleting && !other.object.is_protected();
        other.object.name != self.object.name && !is_finished && other.ids.iter().any(|id| self.ids.contains(id))
    }

    pub(super) fn is_retained(&self) -> bool {
        self.content.as_ref().is_ok_and(|content| content.policy == Policy::Retain)
    }

    /// Returns the ID of its bucket in the backend. A bucket that we create is named after its Bucket.
    pub(super) fn id<'a>(&'a self, content: &'a BucketContent) -> &'a str {
        content.id.as_deref().unwrap_or_else(|| self.wanted_id(content))
    }

    /// Returns the ID that its bucket should have.
    pub(super) fn wanted_id<'a>(&'a self, content: &'a BucketContent) -> &'a str {
        content.existing.as_deref().unwrap_or(&self.object.name)
    }
}

impl AccessFacts {
    /// Returns the ID that its account should have.
    pub(super) fn wanted_account(&self) -> String {
        format!("ba-{}", self.object.uid)
    }
}
