//! Writes the results of the provisioner to the objects that users read: ObjectBucket, Secret, ConfigMap, in this
//! order.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY};

use super::BucketReconciler;
use super::class::overlap;
use super::events::warned;
use super::facts::{BucketFacts, ClaimFacts, Delivered, Facts};
use super::objects::{Entries, Objects, Spec};
use super::outcome::{Done, Outcome, Stopped};
use super::record::{NewKey, Record};
use crate::bucket::{Bucket, Endpoint, Granted};

/// Writes the provisioner's answers, and completes the record with them. `made` is the bucket, if the claim has one of
/// its own. Returns true if the Secret has another key than before.
pub(super) async fn deliver(
    reconciler: &BucketReconciler,
    claim: &ClaimFacts,
    bucket: &BucketFacts,
    record: Record,
    made: Option<Bucket>,
    granted: Granted,
) -> Result<bool, Stopped> {
    let objects = &reconciler.objects;
    // The Secret was deleted in the middle of a rotation, which ends with the new one.
    let record = match record.new_key.clone() {
        Some(new) => end_rotation(reconciler, record, new),
        None => record,
    };
    let Granted { endpoint, credentials, state, config_data, secret_data, warning } = granted;
    let (endpoint, of_bucket, warning_of_bucket) = match made {
        Some(bucket) => (bucket.endpoint, bucket.state, bucket.warning),
        None => (endpoint, Entries::new(), None),
    };
    let state: Entries = of_bucket.into_iter().chain(state).collect();
    // Pods may have read the former key.
    let is_other = |former: &String| credentials.as_ref().is_some_and(|key| key.access_key_id != *former);
    let replaces_key = bucket.is_bound() && record.access_key_id.as_ref().is_some_and(is_other);
    let record = if replaces_key { with_overlap(reconciler, record) } else { record };
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
    let bucket = if is_written(bucket, &record, &endpoint, &state) {
        bucket.clone()
    } else {
        objects.write_bucket(bucket, &record, Some(Spec { endpoint: &endpoint, state: &state })).await?
    };
    let mut secret = secret_data;
    if let Some(credentials) = credentials {
        secret.insert(AWS_ACCESS_KEY_ID.to_owned(), credentials.access_key_id);
        secret.insert(AWS_SECRET_ACCESS_KEY.to_owned(), credentials.secret_access_key);
    }
    let copied = objects.copied_metadata(claim, &record).await?;
    objects.write_secret(claim, &record, &secret, &copied).await?;
    objects.write_config_map(claim, &bucket, &record, &copied).await?;
    objects.set_bucket_phase(&bucket, "Bound").await?;
    for text in warning_of_bucket.into_iter().chain(warning) {
        objects.context.events().record(warned(&text, claim));
    }
    Ok(replaces_key)
}

/// Restores missing objects from the ObjectBucket's record.
pub(super) async fn restore(objects: &Objects, facts: &Facts) -> Outcome {
    let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Err(Stopped::Changed) };
    let Some(record) = bucket.record() else { return Err(Stopped::Changed) };
    objects.confirm_claim(claim).await?;
    objects.prepare_claim(claim, &bucket.name, Some(&bucket.endpoint.bucket)).await?;
    objects.set_owner_of_delivered(facts, claim).await?;
    if facts.config_map != Delivered::Intact {
        let copied = objects.copied_metadata(claim, record).await?;
        objects.write_config_map(claim, bucket, record, &copied).await?;
    }
    objects.set_bucket_phase(bucket, "Bound").await?;
    Ok(Done::Restored)
}

pub(super) fn end_rotation(reconciler: &BucketReconciler, record: Record, new: NewKey) -> Record {
    let record = with_overlap(reconciler, record);
    Record { access_key_id: Some(new.access_key_id), rotation: new.rotation, new_key: None, ..record }
}

/// Records the keys that are removed after the overlap, since the Secret receives another key.
fn with_overlap(reconciler: &BucketReconciler, mut record: Record) -> Record {
    let overlap = record.parameters.as_ref().map(overlap).and_then(Result::ok).unwrap_or_default();
    let retire_at = reconciler.objects.now().checked_add(SignedDuration::try_from(overlap).unwrap_or_default());
    if reconciler.rules.capabilities.rotation {
        record.retire_at = retire_at.ok().map(|time| time.to_string());
    }
    record.keep_former_key();
    record
}

/// Returns true if the ObjectBucket already contains all this.
fn is_written(bucket: &BucketFacts, record: &Record, endpoint: &Endpoint, state: &BTreeMap<String, String>) -> bool {
    let known = &bucket.endpoint;
    bucket.record().is_some_and(|known| known == record)
        && bucket.state == *state
        && (&*known.host, known.port) == (endpoint.host.as_str(), i32::from(endpoint.port))
        && (&*known.region, &*known.sub_region) == (endpoint.region.as_str(), endpoint.sub_region.as_str())
}

/// Adds the variables that S3 clients read from their environment.
fn with_addresses(mut data: Entries, endpoint: &Endpoint) -> Entries {
    let url = endpoint.url();
    data.entry("BUCKET_ENDPOINT".to_owned()).or_insert_with(|| url.clone());
    // `AWS_ENDPOINT_URL` must not be set: the SDKs use it for every service, including STS, which gives a pod its role.
    if !is_aws(&endpoint.host) {
        data.entry("AWS_ENDPOINT_URL_S3".to_owned()).or_insert(url);
    }
    if !endpoint.region.is_empty() {
        data.entry("AWS_REGION".to_owned()).or_insert_with(|| endpoint.region.clone());
    }
    data
}

/// Returns true for AWS itself, whose endpoints clients know.
fn is_aws(host: &str) -> bool {
    ["amazonaws.com", "amazonaws.com.cn"]
        .iter()
        .any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}
