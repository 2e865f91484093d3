//! The requests about claims and ObjectBuckets, each with its deadline and its preconditions. Their answers go into the
//! cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource as _;
use kube::api::{DeleteParams, Patch, Preconditions};
use objectbucket_api::names::{FINALIZER, PROVISIONER_LABEL, provisioner_label};
use objectbucket_api::{API_VERSION, ObjectBucket, ObjectBucketClaim};
use provisioner_runtime::call::{CallError, create_request, unsent};
use provisioner_runtime::watch::WatchHealth;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Actions;
use crate::bucket::ClaimName;
use crate::controller::bucket::cache::key_of;
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, OurClass, ReclaimPolicy};
use crate::controller::bucket::key::Key;
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::controller::shared::requests;
use crate::protocol;

/// How often a finalizer is taken off again when the object changes meanwhile.
pub(super) const TRIES: usize = 3;

/// What the author's code has said of a bucket, for its ObjectBucket.
pub(super) struct Spec<'a> {
    pub(super) endpoint: &'a crate::bucket::Endpoint,
    pub(super) state: &'a BTreeMap<String, String>,
}

impl Actions {
    /// Names the bucket and its ObjectBucket on the claim, and makes it stay until we let it go.
    pub(super) async fn prepare_claim(&self, claim: &ClaimFacts, object: &str, bucket: &str) -> Result<(), Outcome> {
        if self.rules.is_prepared(claim, object, bucket) {
            return Ok(());
        }
        let label = provisioner_label(&self.rules.names.own);
        let keeps_name = claim.bucket_claim().is_none() && claim.bucket_name.is_some();
        let mut finalizers = claim.finalizers.clone();
        if !claim.has_finalizer() {
            finalizers.push(FINALIZER.to_owned());
        }
        let mut spec = json!({"objectBucketName": object});
        if !keeps_name {
            spec["bucketName"] = bucket.into();
        }
        let patch = json!({
            "metadata": {
                "uid": &*claim.uid, "resourceVersion": claim.resource_version.to_string(),
                "finalizers": finalizers, "labels": {PROVISIONER_LABEL: label},
            },
            "spec": spec,
        });
        self.patch_claim(claim, patch, None).await.map(drop)
    }

    /// A merge patch of the claim. Where the claim has changed, the cache gets it as it is.
    pub(super) async fn patch_claim(
        &self,
        claim: &ClaimFacts,
        patch: Value,
        subresource: Option<&str>,
    ) -> Result<(), Outcome> {
        let path = ObjectBucketClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::patch(&self.context, path, &claim.name, subresource, &Patch::Merge(patch)).await;
        match shown(&self.claims, answer, WatchedClaim::version) {
            Ok(claim) => {
                if let Some(claim) = claim_facts(&claim) {
                    self.cache().observe_claim(claim);
                }
                Ok(())
            }
            Err(CallError::Conflict) => {
                self.read_claim(&claim.name()).await?;
                Err(Outcome::Changed)
            }
            Err(CallError::NotFound) => {
                self.cache().claim_is_gone(&key_of(claim));
                Err(Outcome::NoAction)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "writing the claim", error }),
        }
    }

    /// The claim as the API server has it now, if it is still this one.
    pub(super) async fn read_claim(&self, claim: &ClaimName) -> Result<Option<ClaimFacts>, Outcome> {
        let path = ObjectBucketClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::get(&self.context, path, &claim.name).await;
        let live = match shown(&self.claims, answer, WatchedClaim::version) {
            Ok(live) => claim_facts(&live).filter(|live| self.rules.is_present(live)),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(Outcome::CallFailed { doing: "reading the claim", error }),
        };
        let mut cache = self.cache();
        if let Some(live) = live.clone() {
            cache.observe_claim(live);
        }
        let live = live.filter(|live| *live.uid == *claim.uid);
        if live.is_none() {
            cache.claim_is_gone(&Key::of(&claim.namespace, &claim.name, &claim.uid));
        }
        Ok(live)
    }

    pub(super) async fn read_bucket(&self, name: &str) -> Result<Option<BucketFacts>, Outcome> {
        let answer = requests::get(&self.context, ObjectBucket::url_path(&(), None), name).await;
        match shown(&self.buckets, answer, WatchedBucket::version) {
            Ok(bucket) => Ok(self.observe(&bucket)),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(Outcome::CallFailed { doing: "reading the ObjectBucket", error }),
        }
    }

    /// When this succeeds, the ObjectBucket of an attempt is known as it is. The answer to the write that says that the attempt has
    /// succeeded may have been lost, and a refusal of the next one would remove what it has made.
    pub(super) async fn confirm_bucket(&self, bucket: &BucketFacts) -> Result<(), Outcome> {
        let live = self.read_bucket(&bucket.name).await?;
        if live.is_none() {
            self.cache().bucket_is_gone(&bucket.name, &bucket.uid);
        }
        let is_it = |live: BucketFacts| live.uid == bucket.uid && live.resource_version == bucket.resource_version;
        if live.is_some_and(is_it) { Ok(()) } else { Err(Outcome::Changed) }
    }

    pub(super) async fn create_bucket(
        &self,
        name: &str,
        claim: &ClaimFacts,
        class: &OurClass,
        record: &Record,
        bucket: &str,
    ) -> Result<BucketFacts, CallError> {
        let policy = match class.policy {
            ReclaimPolicy::Delete => "Delete",
            ReclaimPolicy::Retain => "Retain",
        };
        let mut labels = json!({PROVISIONER_LABEL: provisioner_label(&self.rules.names.own)});
        if let Some(owner) = &record.owner {
            labels[protocol::USES_BUCKET_OF] = owner.uid.as_str().into();
        }
        let object = json!({
            "apiVersion": API_VERSION, "kind": "ObjectBucket",
            "metadata": {
                "name": name,
                "finalizers": [FINALIZER],
                "labels": labels,
                "annotations": self.annotations(record),
            },
            "spec": {
                "storageClassName": class.name,
                "reclaimPolicy": policy,
                "claimRef": claim_reference(claim),
                // Readers of the Go library's kind take an object without an endpoint for broken.
                "endpoint": {
                    "bucketHost": "", "bucketPort": 0, "bucketName": bucket, "region": "", "subRegion": "",
                    "additionalConfig": claim.config,
                },
                "additionalState": {},
            },
        });
        let body = serde_json::to_vec(&object).map_err(unsent)?;
        let request = create_request(&ObjectBucket::url_path(&(), None), body)?;
        let answer = self.context.request(self.context.client().request::<WatchedBucket>(request)).await;
        let created = shown(&self.buckets, answer, WatchedBucket::version)?;
        self.observe(&created).ok_or_else(|| CallError::Other("the ObjectBucket cannot be read back".to_owned()))
    }

    /// Writes what is known of the bucket by now, if the ObjectBucket is still this one.
    pub(super) async fn write_bucket(
        &self,
        bucket: &BucketFacts,
        record: &Record,
        spec: Option<Spec<'_>>,
    ) -> Result<BucketFacts, Outcome> {
        let mut metadata = json!({"annotations": self.annotations(record)});
        if !bucket.has_finalizer() {
            let finalizers: Vec<&str> = bucket.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
            metadata["finalizers"] = json!(finalizers);
        }
        let mut patch = json!({"metadata": metadata});
        if let Some(Spec { endpoint, state }) = spec {
            // In a merge patch what is not named stays.
            let gone =
                bucket.state.keys().filter(|key| !state.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let state: Map<String, Value> =
                state.iter().map(|(key, value)| (key.clone(), value.as_str().into())).chain(gone).collect();
            patch["spec"] = json!({
                "endpoint": {
                    "bucketHost": endpoint.host, "bucketPort": endpoint.port, "bucketName": bucket.endpoint.bucket,
                    "region": endpoint.region, "subRegion": endpoint.sub_region, "additionalConfig": record.config,
                },
                "additionalState": state,
            });
        }
        let written = self.patch_bucket(bucket, patch, None).await?;
        // Somebody has damaged it meanwhile, and what comes of it would be written next.
        if written.unreadable.is_some() { Err(Outcome::Changed) } else { Ok(written) }
    }

    /// Says on the ObjectBucket that others use its bucket.
    pub(super) async fn mark_shared(&self, bucket: &BucketFacts) -> Result<BucketFacts, Outcome> {
        let metadata = json!({"annotations": {protocol::SHARED: "true"}});
        self.patch_bucket(bucket, json!({"metadata": metadata}), None).await
    }

    /// Makes it the claim's, which a person has asked for, or which another provisioner has left without our record.
    pub(super) async fn assign_bucket(
        &self,
        bucket: &BucketFacts,
        record: &Record,
        claim: &ClaimFacts,
    ) -> Result<BucketFacts, Outcome> {
        let mut annotations = self.annotations(record);
        annotations[protocol::ADOPT_FOR] = Value::Null;
        let patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {"claimRef": claim_reference(claim)},
        });
        self.patch_bucket(bucket, patch, None).await
    }

    pub(super) async fn set_bucket_phase(&self, bucket: &BucketFacts, phase: &str) -> Result<(), Outcome> {
        if bucket.phase.as_deref() == Some(phase) {
            return Ok(());
        }
        self.patch_bucket(bucket, json!({"status": {"phase": phase}}), Some("status")).await.map(drop)
    }

    /// Patches the version of the ObjectBucket on which the caller has decided, so that a write that arrives late overwrites no newer
    /// record. If somebody has changed nothing that matters to decisions, the patch is sent again for the new version.
    async fn patch_bucket(
        &self,
        bucket: &BucketFacts,
        patch: Value,
        subresource: Option<&str>,
    ) -> Result<BucketFacts, Outcome> {
        let mut known = bucket.clone();
        for _ in 0..TRIES {
            match self.patch_version(&known, patch.clone(), subresource).await {
                Err(Outcome::Changed) => {}
                result => return result,
            }
            let live = self.cache().bucket(&bucket.name).filter(|live| live.is_alike(&known));
            known = live.map(|live| (*live).clone()).ok_or(Outcome::Changed)?;
        }
        Err(Outcome::Changed)
    }

    async fn patch_version(
        &self,
        bucket: &BucketFacts,
        mut patch: Value,
        subresource: Option<&str>,
    ) -> Result<BucketFacts, Outcome> {
        patch["metadata"]["uid"] = (*bucket.uid).into();
        if self.rules.safeguards.include(BucketSafeguard::Version) {
            patch["metadata"]["resourceVersion"] = bucket.resource_version.to_string().into();
        }
        let path = ObjectBucket::url_path(&(), None);
        let answer = requests::patch(&self.context, path, &bucket.name, subresource, &Patch::Merge(patch)).await;
        match shown(&self.buckets, answer, WatchedBucket::version) {
            Ok(written) => self.observe(&written).ok_or(Outcome::Changed),
            Err(CallError::Conflict) => {
                self.read_bucket(&bucket.name).await?;
                Err(Outcome::Changed)
            }
            Err(CallError::NotFound) => {
                self.cache().bucket_is_gone(&bucket.name, &bucket.uid);
                Err(Outcome::Changed)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "writing the ObjectBucket", error }),
        }
    }

    /// Begins the deletion of the ObjectBucket. Our finalizer keeps it. `false` if it is gone already.
    pub(super) async fn begin_deletion(&self, bucket: &BucketFacts) -> Result<bool, Outcome> {
        // An attempt may have succeeded, and the answer to the write that says so may have been lost.
        let is_attempts = bucket.record().is_some_and(|record| !record.made);
        let version = is_attempts.then(|| bucket.resource_version.to_string());
        let answer = self.delete::<WatchedBucket>(bucket, version).await;
        match shown(&self.buckets, answer, WatchedBucket::version) {
            Ok(going) => {
                self.observe(&going);
                Ok(true)
            }
            Err(CallError::NotFound) => {
                self.cache().bucket_is_gone(&bucket.name, &bucket.uid);
                Ok(false)
            }
            // It has changed, or another object has this name by now.
            Err(CallError::Conflict) => {
                self.read_bucket(&bucket.name).await?;
                Err(Outcome::Changed)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "deleting the ObjectBucket", error }),
        }
    }

    /// The answer is the object, or the word that it is gone.
    async fn delete<T: DeserializeOwned>(
        &self,
        bucket: &BucketFacts,
        resource_version: Option<String>,
    ) -> Result<T, CallError> {
        let preconditions = Preconditions { uid: Some(bucket.uid.to_string()), resource_version };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = kube::core::Request::new(ObjectBucket::url_path(&(), None));
        let request = request.delete(&bucket.name, &parameters).map_err(unsent)?;
        self.context.request(self.context.client().request(request)).await
    }

    /// Takes our finalizer off, which ends an ObjectBucket that is being deleted.
    pub(super) async fn end_deletion(&self, bucket: &BucketFacts) -> Result<(), Outcome> {
        self.remove_finalizer(bucket).await?;
        self.cache().bucket_is_gone(&bucket.name, &bucket.uid);
        Ok(())
    }

    /// When this succeeds, our finalizer holds the ObjectBucket no more.
    async fn remove_finalizer(&self, bucket: &BucketFacts) -> Result<(), Outcome> {
        // A list that is older than the object has taken it out of the cache.
        let mut live = self.cache().bucket(&bucket.name).or_else(|| Some(Arc::new(bucket.clone())));
        for _ in 0..TRIES {
            let Some(known) = live.filter(|live| live.uid == bucket.uid && live.has_finalizer()) else { return Ok(()) };
            let patch = without_finalizer(&known.uid, known.resource_version, &known.finalizers);
            match self.patch_version(&known, patch, None).await {
                // Somebody has changed it. The cache has it as it is.
                Err(Outcome::Changed) => live = self.cache().bucket(&bucket.name),
                result => return result.map(drop),
            }
        }
        Err(Outcome::Changed)
    }

    /// Removes an ObjectBucket that stands for nothing. The finalizer is removed first: an ObjectBucket that is being deleted with
    /// it is taken for a person's wish to remove the bucket.
    pub(super) async fn remove_bucket(&self, bucket: &BucketFacts) -> Result<(), Outcome> {
        self.remove_finalizer(bucket).await?;
        match self.delete::<Value>(bucket, None).await {
            Ok(_) | Err(CallError::NotFound) => {
                self.cache().bucket_is_gone(&bucket.name, &bucket.uid);
                Ok(())
            }
            // Another object has this name by now, or this one changes. Only what is read says so.
            Err(CallError::Conflict) => {
                self.read_bucket(&bucket.name).await?;
                Err(Outcome::Changed)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "deleting the ObjectBucket", error }),
        }
    }

    /// Takes our finalizer off the claim, if it is still the one with this uid.
    pub(super) async fn let_claim_go(&self, claim: &ClaimName) -> Result<(), Outcome> {
        let key = Key::of(&claim.namespace, &claim.name, &claim.uid);
        for _ in 0..TRIES {
            let Some(known) = self.cache().claim(&key).filter(|claim| claim.has_finalizer()) else { return Ok(()) };
            let patch = without_finalizer(&known.uid, known.resource_version, &known.finalizers);
            match self.patch_claim(&known, patch, None).await {
                Err(Outcome::Changed) => {}
                Ok(()) | Err(Outcome::NoAction) => return Ok(()),
                Err(outcome) => return Err(outcome),
            }
        }
        Err(Outcome::Changed)
    }

    fn annotations(&self, record: &Record) -> Value {
        json!({
            protocol::BUCKET: serde_json::to_string(record).unwrap_or_default(),
            protocol::BUCKET_PROVISIONER: self.rules.names.own,
            protocol::IDENTITY: self.rules.identity,
            protocol::CLUSTER_ID: self.rules.cluster_id,
        })
    }

    fn observe(&self, bucket: &WatchedBucket) -> Option<BucketFacts> {
        let facts = bucket_facts(bucket)?;
        self.cache().observe_bucket(facts.clone());
        Some(facts)
    }
}

pub(super) fn without_finalizer(uid: &str, version: u64, finalizers: &[String]) -> Value {
    let others: Vec<&String> = finalizers.iter().filter(|name| *name != FINALIZER).collect();
    json!({"metadata": {"uid": uid, "resourceVersion": version.to_string(), "finalizers": others}})
}

fn claim_reference(claim: &ClaimFacts) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "ObjectBucketClaim",
        "namespace": &*claim.namespace, "name": &*claim.name, "uid": &*claim.uid,
    })
}

/// Reports to the watch's health check which version the answer has shown: the watch must show it soon, too.
fn shown<T>(
    watch: &WatchHealth,
    answer: Result<T, CallError>,
    version: impl Fn(&T) -> Option<&str>,
) -> Result<T, CallError> {
    if let Ok(object) = &answer {
        watch.expect(version(object).and_then(|version| version.parse().ok()).unwrap_or_default());
    }
    answer
}
