//! All requests to the API server about claims, ObjectBuckets, Secrets and ConfigMaps, each with its deadline and its
//! preconditions. The answers update the cache.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource as _};
use objectbucket_api::names::{
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, FINALIZER, PROVISIONER_LABEL, provisioner_label,
};
use objectbucket_api::{API_VERSION, ObjectBucket, ObjectBucketClaim};
use provisioner_runtime::call::{CallError, create_request, found, invalid_request};
use provisioner_runtime::controller::Context;
use provisioner_runtime::watch::WatchHealth;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::cache::{BucketCache, key_of};
use super::class::copied;
use super::decide::Rules;
use super::delivered::{Deliverable, DeliveredFacts, checksum, config_map_entries, written_names};
use super::facts::{BucketFacts, ClaimFacts, Delivered, Facts, OurClass, ReclaimPolicy};
use super::key::Key;
use super::outcome::Stopped;
use super::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use super::record::Record;
use super::safeguards::BucketSafeguard;
use crate::bucket::{ClaimName, Credentials, Endpoint};
use crate::controller::shared::checksum::CHECKSUM;
use crate::controller::shared::requests::{self, without_finalizer};
use crate::protocol;

/// The number of times a write is repeated if the object changes concurrently.
pub(super) const TRIES: usize = 3;

/// A part of the API server's answer to a dry run if an admission webhook does not support dry runs.
const NO_DRY_RUN: &str = "does not support dry run";

/// The annotation on a Secret with the key that a repeated rotation replaced before the Secret received it.
const SUPERSEDED_KEY: &str = "kube-provisioner/superseded-key";

/// The entries of a Secret or a ConfigMap.
pub(super) type Entries = BTreeMap<String, String>;

pub(crate) struct Objects {
    pub(super) context: Context<BucketCache>,
    pub(super) rules: Arc<Rules>,
    /// The health of the watches of the claims and of the ObjectBuckets.
    pub(super) claims: WatchHealth,
    pub(super) buckets: WatchHealth,
}

/// The provisioner's information about a bucket, for its ObjectBucket.
pub(super) struct Spec<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) state: &'a BTreeMap<String, String>,
}

/// The labels and annotations that a claim's Secret and ConfigMap receive from the claim.
#[derive(Clone, Default)]
pub(super) struct CopiedMetadata {
    labels: Entries,
    annotations: Entries,
}

/// The mode of a write: store it, or only validate it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Persist,
    DryRun,
}

impl Objects {
    pub(super) fn cache(&self) -> MutexGuard<'_, BucketCache> {
        self.context.cache()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.context.environment().now()
    }

    /// Adds our finalizer to the claim, which keeps it until we remove it, and writes the names of its ObjectBucket and
    /// its bucket. The bucket's name is `None` while it may still change: CustomResourceDefinitions do not let a
    /// claim's `bucketName` change.
    pub(super) async fn prepare_claim(
        &self,
        claim: &ClaimFacts,
        object: &str,
        bucket: Option<&str>,
    ) -> Result<(), Stopped> {
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
        if let Some(bucket) = bucket.filter(|_| !keeps_name) {
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

    /// Sends a merge patch for the claim. If the claim has changed, the cache receives its current version.
    pub(super) async fn patch_claim(
        &self,
        claim: &ClaimFacts,
        patch: Value,
        subresource: Option<&str>,
    ) -> Result<(), Stopped> {
        let path = ObjectBucketClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::patch(&self.context, path, &claim.name, subresource, &Patch::Merge(patch)).await;
        match expect_in_watch(&self.claims, answer, WatchedClaim::version) {
            Ok(claim) => {
                if let Some(claim) = claim_facts(&claim) {
                    self.cache().observe_claim(claim);
                }
                Ok(())
            }
            Err(CallError::Conflict) => {
                self.read_claim(&claim.name()).await?;
                Err(Stopped::Changed)
            }
            Err(CallError::NotFound) => {
                self.cache().remove_claim(&key_of(claim));
                Err(Stopped::ClaimGone)
            }
            Err(error) => Err(Stopped::CallFailed { doing: "writing the claim", error }),
        }
    }

    /// Reads the claim from the API server. Returns `None` if it no longer exists or another claim has its name.
    pub(super) async fn read_claim(&self, claim: &ClaimName) -> Result<Option<ClaimFacts>, Stopped> {
        let path = ObjectBucketClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::get(&self.context, path, &claim.name).await;
        let live = found(expect_in_watch(&self.claims, answer, WatchedClaim::version));
        let live = live.map_err(Stopped::call_failed("reading the claim"))?;
        let live = live.and_then(|live| claim_facts(&live)).filter(|live| self.rules.is_present(live));
        let mut cache = self.cache();
        if let Some(live) = live.clone() {
            cache.observe_claim(live);
        }
        let live = live.filter(|live| *live.uid == *claim.uid);
        if live.is_none() {
            cache.remove_claim(&Key::of(&claim.namespace, &claim.name, &claim.uid));
        }
        Ok(live)
    }

    pub(super) async fn read_bucket(&self, name: &str) -> Result<Option<BucketFacts>, Stopped> {
        let answer = requests::get(&self.context, ObjectBucket::url_path(&(), None), name).await;
        let live = found(expect_in_watch(&self.buckets, answer, WatchedBucket::version));
        let live = live.map_err(Stopped::call_failed("reading the ObjectBucket"))?;
        Ok(live.and_then(|bucket| self.observe(&bucket)))
    }

    /// Confirms that a cached ObjectBucket is current. For an unfinished attempt, the answer to the write that records
    /// its success may have been lost, and a refusal of the next attempt would remove the bucket.
    pub(super) async fn confirm_bucket(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        let live = self.read_bucket(&bucket.name).await?;
        if live.is_none() {
            self.cache().remove_bucket(&bucket.name, &bucket.uid);
        }
        let is_it = |live: BucketFacts| live.uid == bucket.uid && live.resource_version == bucket.resource_version;
        if live.is_some_and(is_it) { Ok(()) } else { Err(Stopped::Changed) }
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
                // Readers such as the Go library treat an object without an endpoint as invalid.
                "endpoint": {
                    "bucketHost": "", "bucketPort": 0, "bucketName": bucket, "region": "", "subRegion": "",
                    "additionalConfig": claim.config,
                },
                "additionalState": {},
            },
        });
        let body = serde_json::to_vec(&object).map_err(invalid_request)?;
        let request = create_request(&ObjectBucket::url_path(&(), None), body)?;
        let answer = self.context.request(self.context.client().request::<WatchedBucket>(request)).await;
        let created = expect_in_watch(&self.buckets, answer, WatchedBucket::version)?;
        self.observe(&created).ok_or_else(|| CallError::Other("the ObjectBucket cannot be read back".to_owned()))
    }

    /// Records the current knowledge about the bucket, if the ObjectBucket is unchanged.
    pub(super) async fn write_bucket(
        &self,
        bucket: &BucketFacts,
        record: &Record,
        spec: Option<Spec<'_>>,
    ) -> Result<BucketFacts, Stopped> {
        let mut metadata = json!({"annotations": self.annotations(record)});
        if !bucket.has_finalizer() {
            let finalizers: Vec<&str> = bucket.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
            metadata["finalizers"] = json!(finalizers);
        }
        let mut patch = json!({"metadata": metadata});
        if let Some(Spec { endpoint, state }) = spec {
            let config = bucket.record().map(|record| record.config.clone()).unwrap_or_default();
            patch["spec"] = json!({
                "endpoint": {
                    "bucketHost": endpoint.host, "bucketPort": endpoint.port, "bucketName": bucket.endpoint.bucket,
                    "region": endpoint.region, "subRegion": endpoint.sub_region,
                    "additionalConfig": replacement_entries(&config, &record.config),
                },
                "additionalState": replacement_entries(&bucket.state, state),
            });
        }
        let written = self.patch_bucket(bucket, patch, None).await?;
        // The object has been damaged concurrently, and the next write would contain the damage.
        if written.unreadable.is_some() { Err(Stopped::Changed) } else { Ok(written) }
    }

    pub(super) async fn mark_shared(&self, bucket: &BucketFacts) -> Result<BucketFacts, Stopped> {
        let metadata = json!({"annotations": {protocol::SHARED: "true"}});
        self.patch_bucket(bucket, json!({"metadata": metadata}), None).await
    }

    /// Assigns the ObjectBucket to the claim, because an administrator requests it, or because another provisioner has
    /// left it without our record.
    pub(super) async fn assign_bucket(
        &self,
        bucket: &BucketFacts,
        record: &Record,
        claim: &ClaimFacts,
    ) -> Result<BucketFacts, Stopped> {
        let mut annotations = self.annotations(record);
        annotations[protocol::ADOPT_FOR] = Value::Null;
        let patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {"claimRef": claim_reference(claim)},
        });
        self.patch_bucket(bucket, patch, None).await
    }

    pub(super) async fn set_bucket_phase(&self, bucket: &BucketFacts, phase: &str) -> Result<BucketFacts, Stopped> {
        if bucket.phase.as_deref() == Some(phase) {
            return Ok(bucket.clone());
        }
        self.patch_bucket(bucket, json!({"status": {"phase": phase}}), Some("status")).await
    }

    /// Patches the version of the ObjectBucket on which the decision is based, so that a late write does not overwrite
    /// a newer record. If the object has only changed in ways that no decision uses, the patch is repeated for the new
    /// version.
    async fn patch_bucket(
        &self,
        bucket: &BucketFacts,
        patch: Value,
        subresource: Option<&str>,
    ) -> Result<BucketFacts, Stopped> {
        let mut known = bucket.clone();
        for _ in 0..TRIES {
            match self.patch_version(&known, patch.clone(), subresource).await {
                Err(Stopped::Changed) => {}
                result => return result,
            }
            let live = self.cache().bucket(&bucket.name).filter(|live| live.is_alike(&known));
            known = live.map(|live| (*live).clone()).ok_or(Stopped::Changed)?;
        }
        Err(Stopped::Changed)
    }

    async fn patch_version(
        &self,
        bucket: &BucketFacts,
        mut patch: Value,
        subresource: Option<&str>,
    ) -> Result<BucketFacts, Stopped> {
        patch["metadata"]["uid"] = (*bucket.uid).into();
        if self.rules.safeguards.include(BucketSafeguard::Version) {
            patch["metadata"]["resourceVersion"] = bucket.resource_version.to_string().into();
        }
        let path = ObjectBucket::url_path(&(), None);
        let answer = requests::patch(&self.context, path, &bucket.name, subresource, &Patch::Merge(patch)).await;
        let answer = expect_in_watch(&self.buckets, answer, WatchedBucket::version);
        let written = self.current(bucket, answer, "writing the ObjectBucket").await?;
        written.and_then(|written| self.observe(&written)).ok_or(Stopped::Changed)
    }

    /// Applies the answer about this ObjectBucket; returns `None` if the object no longer exists.
    async fn current<T>(
        &self,
        bucket: &BucketFacts,
        answer: Result<T, CallError>,
        doing: &'static str,
    ) -> Result<Option<T>, Stopped> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(CallError::NotFound) => {
                self.cache().remove_bucket(&bucket.name, &bucket.uid);
                Ok(None)
            }
            // The object has changed, or another object has this name now.
            Err(CallError::Conflict) => {
                self.read_bucket(&bucket.name).await?;
                Err(Stopped::Changed)
            }
            Err(error) => Err(Stopped::CallFailed { doing, error }),
        }
    }

    /// Begins the deletion of the ObjectBucket, which our finalizer keeps.
    pub(super) async fn begin_deletion(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        // An attempt may have succeeded, and the answer to the write that records it may have been lost.
        let answer = self.delete(bucket, bucket.resource_version).await;
        let answer = expect_in_watch(&self.buckets, answer, WatchedBucket::version);
        let going = self.current(bucket, answer, "deleting the ObjectBucket").await?.ok_or(Stopped::Changed)?;
        self.observe(&going);
        Ok(())
    }

    /// Sends the deletion. The answer is the object, or the confirmation that it no longer exists.
    async fn delete<T: DeserializeOwned>(&self, bucket: &BucketFacts, version: u64) -> Result<T, CallError> {
        let resource_version = self.rules.safeguards.include(BucketSafeguard::Version).then(|| version.to_string());
        let preconditions = Preconditions { uid: Some(bucket.uid.to_string()), resource_version };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = kube::core::Request::new(ObjectBucket::url_path(&(), None));
        let request = request.delete(&bucket.name, &parameters).map_err(invalid_request)?;
        self.context.request(self.context.client().request(request)).await
    }

    /// Removes our finalizer, which completes the deletion of the ObjectBucket.
    pub(super) async fn end_deletion(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        self.remove_finalizer(bucket).await?;
        self.cache().remove_bucket(&bucket.name, &bucket.uid);
        Ok(())
    }

    /// Removes our finalizer from the ObjectBucket, and returns the version without it.
    async fn remove_finalizer(&self, bucket: &BucketFacts) -> Result<u64, Stopped> {
        // A list that is older than the object has removed it from the cache.
        let mut live = self.cache().bucket(&bucket.name).or_else(|| Some(Arc::new(bucket.clone())));
        for _ in 0..TRIES {
            let Some(known) = live.filter(|live| live.uid == bucket.uid) else { return Ok(bucket.resource_version) };
            if !known.has_finalizer() {
                return Ok(known.resource_version);
            }
            let patch = without_finalizer(&known.uid, known.resource_version, &known.finalizers, FINALIZER);
            match self.patch_version(&known, patch, None).await {
                // The object has changed. The cache has its current version.
                Err(Stopped::Changed) => live = self.cache().bucket(&bucket.name),
                written => return written.map(|written| written.resource_version),
            }
        }
        Err(Stopped::Changed)
    }

    /// Removes an ObjectBucket that represents no asset. The finalizer is removed first: the deletion of an
    /// ObjectBucket with the finalizer looks like an administrator's request to remove the bucket.
    pub(super) async fn remove_bucket(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        let version = self.remove_finalizer(bucket).await?;
        // A late deletion must not affect the ObjectBucket of a later attempt, which has the finalizer again.
        let answer = self.delete::<Value>(bucket, version).await;
        if self.current(bucket, answer, "deleting the ObjectBucket").await?.is_some() {
            self.cache().remove_bucket(&bucket.name, &bucket.uid);
        }
        Ok(())
    }

    /// Removes our finalizer from the claim, if it still has this uid.
    pub(super) async fn remove_claim_finalizer(&self, claim: &ClaimName) -> Result<(), Stopped> {
        let key = Key::of(&claim.namespace, &claim.name, &claim.uid);
        for _ in 0..TRIES {
            let Some(known) = self.cache().claim(&key).filter(|claim| claim.has_finalizer()) else { return Ok(()) };
            let patch = without_finalizer(&known.uid, known.resource_version, &known.finalizers, FINALIZER);
            match self.patch_claim(&known, patch, None).await {
                Err(Stopped::Changed) => {}
                Ok(()) | Err(Stopped::ClaimGone) => return Ok(()),
                Err(outcome) => return Err(outcome),
            }
        }
        Err(Stopped::Changed)
    }

    /// Returns the names of the claims that use a bucket, or of their ObjectBuckets.
    pub(super) async fn users_of(&self, owner: &ClaimName) -> Result<Vec<String>, Stopped> {
        let selector = format!("{}={}", protocol::USES_BUCKET_OF, owner.uid);
        let api: Api<WatchedBucket> = Api::all(self.context.client().clone());
        let users = self.context.request(api.list(&ListParams::default().labels(&selector))).await;
        let users = users.map_err(Stopped::call_failed("listing the users of the bucket"))?;
        let users = users.iter().filter_map(bucket_facts).filter(|user| !user.has_only_foreign_finalizers());
        let name = |user: BucketFacts| user.claim().map_or(user.name.to_string(), |claim| claim.to_string());
        Ok(users.map(name).collect())
    }

    /// Confirms that the claim exists, because the garbage collector repeatedly removes objects whose owner does not.
    pub(super) async fn confirm_claim(&self, claim: &ClaimFacts) -> Result<(), Stopped> {
        self.read_claim(&claim.name()).await?.map(drop).ok_or(Stopped::Changed)
    }

    /// Returns the key in the claim's Secret, for backends that show a key only once.
    pub(super) async fn credentials(&self, facts: &Facts) -> Result<Option<Credentials>, Stopped> {
        let is_intact = matches!(facts.secret, Delivered::Intact | Delivered::Unowned);
        let Some(claim) = facts.claim.as_ref().filter(|_| is_intact) else { return Ok(None) };
        let api: Api<Secret> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let secret = found(self.context.request(api.get(&facts.names.secret)).await);
        let secret = secret.map_err(Stopped::call_failed("reading the claim's Secret"))?;
        let Some(secret) = secret else { return Ok(None) };
        let owners = secret.metadata.owner_references.iter().flatten();
        if !owners.map(|owner| &*owner.uid).any(|uid| *uid == *claim.uid) {
            return Ok(None);
        }
        let data = secret.data.unwrap_or_default();
        let text = |name: &str| Some(str::from_utf8(&data.get(name)?.0).ok()?.to_owned());
        let credentials = text(AWS_ACCESS_KEY_ID).zip(text(AWS_SECRET_ACCESS_KEY));
        Ok(credentials.map(|(id, secret)| Credentials::new(id, secret)))
    }

    /// Ensures that no earlier write can still deliver this key, and returns the ID of the key in the claim's Secret. A
    /// merge patch without a change would not change the resourceVersion, which is the precondition of the earlier
    /// write.
    pub(super) async fn supersede_key(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        id: &str,
    ) -> Result<Option<String>, Stopped> {
        let names = record.delivered_names(&claim.name);
        let (name, api) = (&names.secret, self.api_of::<Secret>(&claim.namespace));
        let live = self.live(&api, name, &claim.uid).await?.ok_or(Stopped::Changed)?;
        let patch = Patch::Merge(json!({"metadata": {
            "uid": live.uid, "resourceVersion": live.resource_version, "annotations": {SUPERSEDED_KEY: id},
        }}));
        let written = self.context.request(api.patch(name, &PatchParams::default(), &patch)).await;
        let secret = written.map_err(Stopped::write_failed("writing the claim's Secret"))?;
        let id = secret.data.and_then(|mut data| data.remove(AWS_ACCESS_KEY_ID));
        Ok(id.and_then(|id| String::from_utf8(id.0).ok()))
    }

    /// Confirms that the API server accepts the claim's Secret. If it rejected the Secret after the backend has created
    /// a key, the key would be lost, and each attempt would create another one. Nothing is written: pods wait until the
    /// Secret exists.
    pub(super) async fn confirm_writable(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        copied: &CopiedMetadata,
    ) -> Result<(), Stopped> {
        // The watch only shows the ConfigMaps of claims, and another one must be found before the bucket exists.
        let names = record.delivered_names(&claim.name);
        self.live(&self.api_of::<ConfigMap>(&claim.namespace), &names.config_map, &claim.uid).await?;
        // An admission policy may reject static keys, so the check only includes one if the claim is known to have a
        // key.
        let key = [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].map(|name| (name.to_owned(), "dry-run".to_owned()));
        let entries = if record.access_key_id.is_some() { key.into() } else { Entries::new() };
        match self.write_delivered::<Secret>(claim, record, &entries, copied, Write::DryRun).await {
            // The API server cannot call such webhooks without a real write.
            Err(Stopped::CallFailed { error: CallError::Invalid(text), .. }) if text.contains(NO_DRY_RUN) => Ok(()),
            confirmed => confirmed,
        }
    }

    pub(super) async fn write_secret(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        entries: &Entries,
        copied: &CopiedMetadata,
    ) -> Result<(), Stopped> {
        self.write_delivered::<Secret>(claim, record, entries, copied, Write::Persist).await
    }

    pub(super) async fn write_config_map(
        &self,
        claim: &ClaimFacts,
        bucket: &BucketFacts,
        record: &Record,
        copied: &CopiedMetadata,
    ) -> Result<(), Stopped> {
        let entries = config_map_entries(record, &bucket.endpoint);
        {
            let cache = self.cache();
            let [_, known] = cache.delivered(&claim.namespace, &record.delivered_names(&claim.name));
            if known.is_some_and(|map| map.as_config_map(&claim.uid, &entries) == Delivered::Intact) {
                return Ok(());
            }
        }
        self.write_delivered::<ConfigMap>(claim, record, &entries, copied, Write::Persist).await
    }

    /// Creates the object, or updates it if it belongs to the claim. Foreign objects are left alone.
    async fn write_delivered<K: Deliverable>(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        entries: &Entries,
        copied: &CopiedMetadata,
        write: Write,
    ) -> Result<(), Stopped> {
        let names = record.delivered_names(&claim.name);
        let (name, api) = (names.of_kind(K::KIND), self.api_of::<K>(&claim.namespace));
        let (known, lists) = {
            let cache = self.cache();
            (cache.delivered(&claim.namespace, &names)[K::INDEX].is_some(), cache.lists())
        };
        let bytes = entries.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let CopiedMetadata { mut labels, mut annotations } = copied.clone();
        labels.insert(PROVISIONER_LABEL.to_owned(), provisioner_label(&self.rules.names.own));
        annotations.insert(CHECKSUM.to_owned(), checksum(bytes.collect()));
        let mut body = json!({
            "apiVersion": "v1", "kind": K::KIND,
            "metadata": {
                "name": name, "namespace": &*claim.namespace,
                "labels": labels, "annotations": annotations, "ownerReferences": owner_references(claim),
            },
            K::ENTRIES: entries,
        });
        let doing = if K::KIND == "Secret" { "writing the claim's Secret" } else { "writing the claim's ConfigMap" };
        let dry_run = write == Write::DryRun;
        let mut written = None;
        if !known {
            let object = serde_json::from_value(body.clone()).map_err(invalid_request);
            let object = object.map_err(Stopped::call_failed(doing))?;
            match self.context.request(api.create(&PostParams { dry_run, ..PostParams::default() }, &object)).await {
                Ok(created) => written = Some(created),
                Err(CallError::AlreadyExists) => {}
                Err(error) => return Err(Stopped::CallFailed { doing, error }),
            }
        }
        let written = match written {
            Some(created) => created,
            None => {
                // The object has been deleted since. The watch shows that, and the next attempt creates it.
                let live = self.live(&api, name, &claim.uid).await?.ok_or(Stopped::Changed)?;
                body["metadata"]["uid"] = json!(live.uid);
                // A late patch must not restore a former key.
                body["metadata"]["resourceVersion"] = json!(live.resource_version);
                let gone: Vec<String> = if K::KIND == "Secret" {
                    // Remove the key of a claim that no longer needs one. A rotation writes the key without the other
                    // entries, which stay.
                    [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].map(str::to_owned).into()
                } else {
                    // Remove what an earlier write has added, such as the role of a claim that has a key now.
                    let former = live.annotations.as_ref().and_then(|annotations| annotations.get(CHECKSUM));
                    former.map(|sum| written_names(sum)).unwrap_or_default()
                };
                for name in gone.into_iter().filter(|name| !entries.contains_key(name)) {
                    body["data"][name] = Value::Null;
                }
                let parameters = PatchParams { dry_run, ..PatchParams::default() };
                let written = self.context.request(api.patch(name, &parameters, &Patch::Merge(body))).await;
                written.map_err(Stopped::write_failed(doing))?
            }
        };
        if !dry_run {
            self.cache().observe_delivered(K::INDEX, written.to_watched(), lists);
        }
        Ok(())
    }

    /// Reads the claim's labels and annotations that the class copies. They are not watched.
    pub(super) async fn copied_metadata(&self, claim: &ClaimFacts, record: &Record) -> Result<CopiedMetadata, Stopped> {
        let Some(Ok([labels, annotations])) = record.parameters.as_ref().map(copied) else {
            return Ok(CopiedMetadata::default());
        };
        if labels.is_empty() && annotations.is_empty() {
            return Ok(CopiedMetadata::default());
        }
        let api: Api<ObjectBucketClaim> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let live = found(self.context.request(api.get_metadata(&claim.name)).await);
        let live = live.map_err(Stopped::call_failed("reading the claim"))?.ok_or(Stopped::Changed)?.metadata;
        let select = |keys: Vec<String>, entries: Option<Entries>| {
            let mut entries = entries.unwrap_or_default();
            entries.retain(|key, _| keys.contains(key));
            entries
        };
        Ok(CopiedMetadata { labels: select(labels, live.labels), annotations: select(annotations, live.annotations) })
    }

    /// Returns the metadata of the claim's object. Foreign objects are left alone.
    async fn live<K: Deliverable>(
        &self,
        api: &Api<K>,
        name: &str,
        claim_uid: &str,
    ) -> Result<Option<ObjectMeta>, Stopped> {
        let live = found(self.context.request(api.get_metadata(name)).await);
        let live = live.map_err(Stopped::call_failed("reading the claim's Secret and ConfigMap"))?;
        let Some(live) = live.map(|live| live.metadata) else { return Ok(None) };
        let mut owners = live.owner_references.iter().flatten();
        let careful = self.rules.safeguards.include(BucketSafeguard::Ownership);
        if careful && !owners.any(|owner| *owner.uid == *claim_uid) {
            return Err(Stopped::NotOwned { kind: K::KIND, name: name.to_owned() });
        }
        Ok(Some(live))
    }

    /// Makes the claim the owner of objects that were restored without one.
    pub(super) async fn set_owner_of_delivered(&self, facts: &Facts, claim: &ClaimFacts) -> Result<(), Stopped> {
        let ([secret, map], lists) = {
            let cache = self.cache();
            (cache.delivered(&claim.namespace, &facts.names).map(|known| known.cloned()), cache.lists())
        };
        if let (Some(known), Delivered::Unowned) = (secret, facts.secret) {
            self.set_owner::<Secret>(facts, claim, &known, lists).await?;
        }
        if let (Some(known), Delivered::Unowned) = (map, facts.config_map) {
            self.set_owner::<ConfigMap>(facts, claim, &known, lists).await?;
        }
        Ok(())
    }

    /// Sets the owner only on the object whose content identified it as the claim's.
    async fn set_owner<K: Deliverable>(
        &self,
        facts: &Facts,
        claim: &ClaimFacts,
        known: &DeliveredFacts,
        lists: u64,
    ) -> Result<(), Stopped> {
        let patch = Patch::Merge(json!({"metadata": {
            "uid": &*known.uid, "resourceVersion": known.resource_version.to_string(), "ownerReferences": owner_references(claim),
        }}));
        let (api, name) = (self.api_of::<K>(&claim.namespace), facts.names.of_kind(K::KIND));
        let owned = self.context.request(api.patch(name, &PatchParams::default(), &patch)).await;
        let owned = owned.map_err(Stopped::write_failed("adopting the claim's Secret and ConfigMap"))?;
        self.cache().observe_delivered(K::INDEX, owned.to_watched(), lists);
        Ok(())
    }

    /// Removes the Secret and the ConfigMap of the claim, and no others. Some provisioners have added finalizers to
    /// them.
    pub(super) async fn remove_delivered(&self, claim: &ClaimName, facts: &Facts) -> Result<(), Stopped> {
        let [secret, map] = self
            .cache()
            .delivered(&claim.namespace, &facts.names)
            .map(|known| known.filter(|known| known.owner.as_deref() == Some(&claim.uid)).cloned());
        if let Some(known) = secret {
            self.remove::<Secret>(claim, facts, &known).await?;
        }
        if let Some(known) = map {
            self.remove::<ConfigMap>(claim, facts, &known).await?;
        }
        Ok(())
    }

    async fn remove<K: Deliverable>(
        &self,
        claim: &ClaimName,
        facts: &Facts,
        known: &DeliveredFacts,
    ) -> Result<(), Stopped> {
        let (api, name) = (self.api_of::<K>(&claim.namespace), facts.names.of_kind(K::KIND));
        let settle = |answer| match answer {
            Ok(()) | Err(CallError::NotFound) => Ok(()),
            // Another object has this name now, or this one was changed. The watch shows it.
            Err(CallError::Conflict) => Err(Stopped::Changed),
            Err(error) => Err(Stopped::CallFailed { doing: "removing the claim's Secret and ConfigMap", error }),
        };
        if known.finalizers.iter().any(|name| name == FINALIZER) {
            let patch =
                Patch::Merge(without_finalizer(&known.uid, known.resource_version, &known.finalizers, FINALIZER));
            let answer = self.context.request(api.patch_metadata(name, &PatchParams::default(), &patch)).await;
            settle(answer.map(drop))?;
        }
        let preconditions = Some(Preconditions { uid: Some(known.uid.to_string()), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        settle(self.context.request(api.delete(name, &parameters)).await.map(drop))
    }

    fn api_of<K: Deliverable>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.context.client().clone(), namespace)
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

/// Returns the entries for a merge patch, which keeps former entries that it does not name.
fn replacement_entries(former: &Entries, entries: &Entries) -> Map<String, Value> {
    let gone = former.keys().filter(|key| !entries.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    entries.iter().map(|(key, value)| (key.clone(), value.as_str().into())).chain(gone).collect()
}

fn owner_references(claim: &ClaimFacts) -> Value {
    json!([{
        "apiVersion": API_VERSION, "kind": "ObjectBucketClaim", "name": &*claim.name, "uid": &*claim.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn claim_reference(claim: &ClaimFacts) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "ObjectBucketClaim",
        "namespace": &*claim.namespace, "name": &*claim.name, "uid": &*claim.uid,
    })
}

/// Reports the version in the answer to the watch's health check: the watch must also show it soon.
fn expect_in_watch<T>(
    watch: &WatchHealth,
    answer: Result<T, CallError>,
    version: impl Fn(&T) -> Option<&str>,
) -> Result<T, CallError> {
    if let Ok(object) = &answer {
        watch.expect(version(object).and_then(|version| version.parse().ok()).unwrap_or_default());
    }
    answer
}
