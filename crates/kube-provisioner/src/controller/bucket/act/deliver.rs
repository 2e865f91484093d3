//! Writes what the author's code has made to where its user finds it: ObjectBucket, Secret, ConfigMap, in this order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use objectbucket_api::API_VERSION;
use objectbucket_api::names::{
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, FINALIZER, PROVISIONER_LABEL, provisioner_label,
};
use provisioner_runtime::call::CallError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Actions;
use super::make::Made;
use super::objects::{Spec, without_finalizer};
use crate::bucket::ClaimName;
use crate::controller::bucket::delivered::{DeliveredFacts, Seen, checksum, of_config_map, of_secret};
use crate::controller::bucket::events::warned;
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, Delivered, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::controller::shared::checksum::CHECKSUM;

/// The entries of a Secret or a ConfigMap.
type Entries = BTreeMap<String, String>;

/// Part of the API server's answer to a dry run where an admission webhook does not support dry runs.
const NO_DRY_RUN: &str = "does not support dry run";

/// What a claim's user has received.
pub(super) enum Delivery {
    /// Everything.
    Complete,
    /// Everything, with another key than the Secret had before.
    NewKey,
}

/// Whether the API server stores a write, or only checks it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Persist,
    DryRun,
}

impl Actions {
    pub(super) async fn deliver(
        &self,
        claim: &ClaimFacts,
        bucket: &BucketFacts,
        record: Record,
        made: Made,
    ) -> Result<Delivery, Outcome> {
        // The Secret went in the middle of a rotation, which ends with the new one.
        let record = match record.new_key.clone() {
            Some(new) => self.end_rotation(record, new),
            None => record,
        };
        let Made { endpoint, credentials, state, config_data, secret_data, warnings } = made;
        // Pods may have read the former key.
        let is_other = |former: &String| credentials.as_ref().is_some_and(|key| key.access_key_id != *former);
        let replaces =
            bucket.is_bound() && record.account.is_none() && record.access_key_id.as_ref().is_some_and(is_other);
        let record = if replaces { self.with_overlap(record) } else { record };
        let record = Record {
            made: true,
            assigned: false,
            tls: endpoint.tls,
            data: with_addresses(config_data, &endpoint),
            access_key_id: credentials.as_ref().map(|credentials| credentials.access_key_id.clone()),
            keyless: credentials.is_none(),
            attempted: BTreeMap::new(),
            ..record
        };
        let bucket = match unchanged(bucket, &record, &endpoint, &state) {
            true => bucket.clone(),
            false => self.write_bucket(bucket, &record, Some(Spec { endpoint: &endpoint, state: &state })).await?,
        };
        let mut secret = secret_data;
        if let Some(credentials) = credentials {
            secret.insert(AWS_ACCESS_KEY_ID.to_owned(), credentials.access_key_id);
            secret.insert(AWS_SECRET_ACCESS_KEY.to_owned(), credentials.secret_access_key);
        }
        self.write_secret(claim, &record, secret).await?;
        self.write_config_map(claim, &bucket, &record).await?;
        self.set_bucket_phase(&bucket, "Bound").await?;
        for text in warnings {
            self.context.events().record(warned(&text, claim));
        }
        Ok(if replaces { Delivery::NewKey } else { Delivery::Complete })
    }

    /// What the ObjectBucket records is written where it is missing.
    pub(super) async fn restore(&self, facts: &Facts) -> Outcome {
        let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Outcome::Changed };
        let Some(record) = bucket.record() else { return Outcome::Changed };
        let restored = async {
            self.confirm_claim(claim).await?;
            self.prepare_claim(claim, &bucket.name, &bucket.endpoint.bucket).await?;
            self.own_delivered(facts, claim).await?;
            if facts.config_map != Delivered::Intact {
                self.write_config_map(claim, bucket, record).await?;
            }
            self.set_bucket_phase(bucket, "Bound").await
        };
        restored.await.map_or_else(|outcome| outcome, |()| Outcome::Restored)
    }

    /// The garbage collector removes what has an owner that is gone, again and again.
    pub(super) async fn confirm_claim(&self, claim: &ClaimFacts) -> Result<(), Outcome> {
        self.read_claim(&claim.name()).await?.map(drop).ok_or(Outcome::Changed)
    }

    /// When this succeeds, the API server accepts the claim's Secret. If it refused the Secret after the backend has created a key, the
    /// key would be lost, and each attempt would create another one. Nothing is written: pods wait until the Secret exists.
    pub(super) async fn confirm_writable(&self, claim: &ClaimFacts, record: &Record) -> Result<(), Outcome> {
        // An admission policy can refuse static keys to all but claims that need none.
        let key = [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].map(|name| (name.to_owned(), "dry-run".to_owned()));
        let entries = if record.access_key_id.is_some() { key.into() } else { Entries::new() };
        match self.write_secret_as(claim, record, entries, Write::DryRun).await {
            // The API server does not ask such webhooks without a write.
            Err(Outcome::CallFailed { error: CallError::Invalid(text), .. }) if text.contains(NO_DRY_RUN) => Ok(()),
            confirmed => confirmed,
        }
    }

    pub(super) async fn write_secret(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        entries: Entries,
    ) -> Result<(), Outcome> {
        self.write_secret_as(claim, record, entries, Write::Persist).await
    }

    async fn write_secret_as(
        &self,
        claim: &ClaimFacts,
        record: &Record,
        entries: Entries,
        write: Write,
    ) -> Result<(), Outcome> {
        let names = record.delivered_names(&claim.name);
        let api: Api<Secret> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let (known, lists) = {
            let cache = self.cache();
            (cache.delivered(&claim.namespace, &names)[0].is_some(), cache.lists())
        };
        let body = self.body((claim, &names.secret), &entries, ("Secret", "stringData"));
        let seen = self.write(&api, (&names.secret, claim), (body, write), known, of_secret).await?;
        if write == Write::Persist {
            self.cache().observe_secret(seen, lists);
        }
        Ok(())
    }

    async fn write_config_map(&self, claim: &ClaimFacts, bucket: &BucketFacts, record: &Record) -> Result<(), Outcome> {
        let (names, entries) = (record.delivered_names(&claim.name), record.config_map(&bucket.endpoint));
        let (known, lists) = {
            let cache = self.cache();
            let known = match cache.delivered(&claim.namespace, &names)[1] {
                Some(map) if map.as_config_map(&claim.uid, &entries) == Delivered::Intact => return Ok(()),
                known => known.is_some(),
            };
            (known, cache.lists())
        };
        let api: Api<ConfigMap> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let body = self.body((claim, &names.config_map), &entries, ("ConfigMap", "data"));
        let seen = self.write(&api, (&names.config_map, claim), (body, Write::Persist), known, of_config_map).await?;
        self.cache().observe_config_map(seen, lists);
        Ok(())
    }

    fn body(&self, (claim, name): (&ClaimFacts, &str), entries: &Entries, (kind, field): (&str, &str)) -> Value {
        let bytes = entries.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": name, "namespace": &*claim.namespace,
                "labels": {PROVISIONER_LABEL: provisioner_label(&self.rules.names.own)},
                "annotations": {CHECKSUM: checksum(bytes.collect())},
                "ownerReferences": owners(claim),
            },
            field: entries,
        })
    }

    /// Creates the object, or brings it in line if it is the claim's. What is another's is left alone.
    async fn write<K>(
        &self,
        api: &Api<K>,
        (name, claim): (&str, &ClaimFacts),
        (body, write): (Value, Write),
        known: bool,
        seen: impl Fn(&K) -> Option<Seen>,
    ) -> Result<Option<Seen>, Outcome>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let kind = kind::<K>();
        let doing = if kind == "Secret" { "writing the claim's Secret" } else { "writing the claim's ConfigMap" };
        let failed = |error| Outcome::CallFailed { doing, error };
        let dry_run = write == Write::DryRun;
        if !known {
            let object =
                serde_json::from_value(body.clone()).map_err(|error| failed(CallError::Other(error.to_string())))?;
            match self.context.request(api.create(&PostParams { dry_run, ..PostParams::default() }, &object)).await {
                Ok(created) => return Ok(seen(&created)),
                Err(CallError::AlreadyExists) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // It was deleted meanwhile. The watch shows that, and the next attempt creates it.
        let live = self.live(api, name, &claim.uid).await?.ok_or(Outcome::Changed)?;
        let mut patch = body;
        patch["metadata"]["uid"] = json!(live.uid);
        // A patch that arrives late must not bring a former key back.
        patch["metadata"]["resourceVersion"] = json!(live.resource_version);
        if kind == "Secret" {
            // A claim that needs a key no longer keeps none.
            let names = [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY];
            let gone = names.into_iter().filter(|name| patch["stringData"].get(name).is_none());
            patch["data"] = gone.map(|name| (name.to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
        }
        let parameters = PatchParams { dry_run, ..PatchParams::default() };
        match self.context.request(api.patch(name, &parameters, &Patch::Merge(patch))).await {
            Ok(written) => Ok(seen(&written)),
            Err(CallError::Conflict | CallError::NotFound) => Err(Outcome::Changed),
            Err(error) => Err(failed(error)),
        }
    }

    /// The metadata of the claim's object. What is another's is left alone.
    async fn live<K>(&self, api: &Api<K>, name: &str, claim_uid: &str) -> Result<Option<ObjectMeta>, Outcome>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let kind = kind::<K>();
        let live = match self.context.request(api.get_metadata(name)).await {
            Ok(live) => live.metadata,
            Err(CallError::NotFound) => return Ok(None),
            Err(error) => {
                return Err(Outcome::CallFailed { doing: "reading the claim's Secret and ConfigMap", error });
            }
        };
        let mut owners = live.owner_references.iter().flatten();
        let careful = self.rules.safeguards.include(BucketSafeguard::Ownership);
        if careful && !owners.any(|owner| *owner.uid == *claim_uid) {
            return Err(Outcome::NotOwned { kind, name: name.to_owned() });
        }
        Ok(Some(live))
    }

    /// Makes the claim the owner of what was restored without one.
    pub(super) async fn own_delivered(&self, facts: &Facts, claim: &ClaimFacts) -> Result<(), Outcome> {
        let ([secret, map], lists) = {
            let cache = self.cache();
            (cache.delivered(&claim.namespace, &facts.names).map(|known| known.cloned()), cache.lists())
        };
        if let (Some(known), Delivered::Unowned) = (secret, facts.secret) {
            let owned: Secret = self.own(claim, &facts.names.secret, &known).await?;
            self.cache().observe_secret(of_secret(&owned), lists);
        }
        if let (Some(known), Delivered::Unowned) = (map, facts.config_map) {
            let owned: ConfigMap = self.own(claim, &facts.names.config_map, &known).await?;
            self.cache().observe_config_map(of_config_map(&owned), lists);
        }
        Ok(())
    }

    /// Only the object that was found to be the claim's by its content.
    async fn own<K>(&self, claim: &ClaimFacts, name: &str, known: &DeliveredFacts) -> Result<K, Outcome>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let patch = json!({"metadata": {
            "uid": &*known.uid, "resourceVersion": known.resource_version.to_string(), "ownerReferences": owners(claim),
        }});
        match self.context.request(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(owned) => Ok(owned),
            Err(CallError::Conflict | CallError::NotFound) => Err(Outcome::Changed),
            Err(error) => Err(Outcome::CallFailed { doing: "adopting the claim's Secret and ConfigMap", error }),
        }
    }

    /// Removes the Secret and the ConfigMap of the claim, and no others. Some provisioners have put finalizers on them.
    pub(super) async fn remove_delivered(&self, claim: &ClaimName, facts: &Facts) -> Result<(), Outcome> {
        let [secret, map] = self
            .cache()
            .delivered(&claim.namespace, &facts.names)
            .map(|known| known.filter(|known| known.owner.as_deref() == Some(&claim.uid)).cloned());
        let client = || self.context.client().clone();
        if let Some(DeliveredFacts { uid, resource_version, finalizers, .. }) = secret {
            let api: Api<Secret> = Api::namespaced(client(), &claim.namespace);
            self.remove(&api, &facts.names.secret, (&uid, resource_version, &finalizers)).await?;
        }
        if let Some(DeliveredFacts { uid, resource_version, finalizers, .. }) = map {
            let api: Api<ConfigMap> = Api::namespaced(client(), &claim.namespace);
            self.remove(&api, &facts.names.config_map, (&uid, resource_version, &finalizers)).await?;
        }
        Ok(())
    }

    async fn remove<K>(
        &self,
        api: &Api<K>,
        name: &str,
        (uid, version, finalizers): (&str, u64, &[String]),
    ) -> Result<(), Outcome>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let failed = |error| Outcome::CallFailed { doing: "removing the claim's Secret and ConfigMap", error };
        if finalizers.iter().any(|name| name == FINALIZER) {
            let patch = Patch::Merge(without_finalizer(uid, version, finalizers));
            match self.context.request(api.patch_metadata(name, &PatchParams::default(), &patch)).await {
                Ok(_) | Err(CallError::NotFound) => {}
                // Somebody has changed it, and the watch shows how.
                Err(CallError::Conflict) => return Err(Outcome::Changed),
                Err(error) => return Err(failed(error)),
            }
        }
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.context.request(api.delete(name, &parameters)).await {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            // Another object has this name by now, or this one changes. Only what is read says so.
            Err(CallError::Conflict) => Err(Outcome::Changed),
            Err(error) => Err(failed(error)),
        }
    }
}

fn kind<K: kube::Resource<DynamicType = ()>>() -> &'static str {
    if K::kind(&()) == "Secret" { "Secret" } else { "ConfigMap" }
}

fn owners(claim: &ClaimFacts) -> Value {
    json!([{
        "apiVersion": API_VERSION, "kind": "ObjectBucketClaim", "name": &*claim.name, "uid": &*claim.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Whether the ObjectBucket says all this already.
fn unchanged(
    bucket: &BucketFacts,
    record: &Record,
    endpoint: &crate::bucket::Endpoint,
    state: &BTreeMap<String, String>,
) -> bool {
    let known = &bucket.endpoint;
    bucket.record().is_some_and(|known| **known == *record)
        && bucket.state == *state
        && (&*known.host, known.port) == (endpoint.host.as_str(), i32::from(endpoint.port))
        && (&*known.region, &*known.sub_region) == (endpoint.region.as_str(), endpoint.sub_region.as_str())
}

/// What clients of S3 take from their environment.
fn with_addresses(mut data: Entries, endpoint: &crate::bucket::Endpoint) -> Entries {
    let scheme = if endpoint.tls { "https" } else { "http" };
    let usual = if endpoint.tls { 443 } else { 80 };
    let host = &endpoint.host;
    let url = match endpoint.port {
        port if port == usual => format!("{scheme}://{host}"),
        port => format!("{scheme}://{host}:{port}"),
    };
    data.entry("BUCKET_ENDPOINT".to_owned()).or_insert_with(|| url.clone());
    // Not AWS_ENDPOINT_URL, which the SDKs take for every service: STS, from which a pod gets its role, among them.
    if !is_aws(host) {
        data.entry("AWS_ENDPOINT_URL_S3".to_owned()).or_insert(url);
    }
    if !endpoint.region.is_empty() {
        data.entry("AWS_REGION".to_owned()).or_insert_with(|| endpoint.region.clone());
    }
    data
}

/// AWS itself, whose endpoints clients know.
fn is_aws(host: &str) -> bool {
    ["amazonaws.com", "amazonaws.com.cn"]
        .iter()
        .any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}
