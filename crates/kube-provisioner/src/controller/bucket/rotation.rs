//! Key rotation: creates and records a key, writes it to the Secret, and removes the former keys some time later.
//! Between rotations, verifies that the key in the Secret still works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY};
use provisioner_runtime::limiter::Purpose;
use provisioner_runtime::stable_hash;

use super::attempt::Attempt;
use super::calls::Calls;
use super::decision::Reason;
use super::delivery::end_rotation;
use super::facts::{BucketFacts, Facts};
use super::outcome::{Done, Outcome, Stopped};
use super::record::{NewKey, Record};
use super::safeguards::BucketSafeguard;
use super::{BucketReconciler, Step};

/// The keys of one claim.
pub(super) struct Rotation<'a> {
    reconciler: &'a BucketReconciler,
    facts: &'a Facts,
    step: &'a Step<'a>,
    bucket: &'a Arc<BucketFacts>,
    record: &'a Record,
}

impl<'a> Rotation<'a> {
    pub(super) fn new(reconciler: &'a BucketReconciler, facts: &'a Facts, step: &'a Step<'a>) -> Result<Self, Stopped> {
        let bucket = facts.bucket().ok_or(Stopped::Changed)?;
        let record = bucket.record().ok_or(Stopped::Changed)?;
        Ok(Self { reconciler, facts, step, bucket, record })
    }

    pub(super) async fn rotate(self) -> Outcome {
        let Self {
            reconciler: BucketReconciler { objects, backend, limits, rules, .. }, facts, bucket, record, ..
        } = self;
        let claim = facts.claim.as_ref().ok_or(Stopped::Changed)?;
        if let Some(new) = &record.new_key {
            // The answer to the Secret's write may have been lost, and another rotation would remove the key in the
            // Secret.
            let in_secret = objects.supersede_key(claim, record, &new.access_key_id).await?;
            if in_secret.as_ref() == Some(&new.access_key_id) {
                return self.finish_rotation(bucket, record, new.clone()).await;
            }
        }
        let mut calls = self.calls(Purpose::Create)?;
        let copied = objects.copied_metadata(claim, record).await?;
        objects.confirm_writable(claim, record, &copied).await?;
        let (_, account) = calls.bucket_and_account(bucket, record.source).await?;
        let before = calls.unknown_keys(record, &account).await?;
        let answer = calls.call(limits.provision, || backend.rotate(account.clone())).await;
        let credentials = answer.map_err(|failure| {
            failure.stop(
                |error| {
                    let retry_after = error.retry_after();
                    Stopped::NotRotated { message: error.event_text(&bucket.name), retry_after }
                },
                |aborted| Stopped::RotationAborted { method: "rotate", aborted },
            )
        })?;
        calls.report_removed(before, record, &account).await?;
        let rotation = claim.rotation.as_deref().map(str::to_owned);
        let new = NewKey { access_key_id: credentials.access_key_id.clone(), rotation };
        // The record is updated first, and the former key remains the user's until the Secret contains the new one.
        let mut bucket = Arc::clone(bucket);
        if rules.safeguards.include(BucketSafeguard::KeyRecord) {
            let record = Record { new_key: Some(new.clone()), ..record.clone() };
            bucket = Arc::new(objects.write_bucket(&bucket, &record, None).await?);
        }
        let entries = BTreeMap::from([
            (AWS_ACCESS_KEY_ID.to_owned(), credentials.access_key_id),
            (AWS_SECRET_ACCESS_KEY.to_owned(), credentials.secret_access_key),
        ]);
        objects.write_secret(claim, record, &entries, &copied).await?;
        self.finish_rotation(&bucket, record, new).await
    }

    /// Ends the rotation once the Secret has the new key. The former key is removed after the overlap.
    async fn finish_rotation(&self, bucket: &BucketFacts, record: &Record, new: NewKey) -> Outcome {
        let record = end_rotation(self.reconciler, record.clone(), new);
        self.reconciler.objects.write_bucket(bucket, &record, None).await?;
        Ok(Done::Rotated)
    }

    /// Removes the keys that were rotated out, once the overlap is over.
    pub(super) async fn revoke_old_keys(self) -> Outcome {
        let Self { reconciler: BucketReconciler { objects, backend, limits, .. }, facts, step, bucket, record } = self;
        if let Some(after) = self.time_until(record.retire_at.as_deref()) {
            return verify(self.reconciler, facts, step, Some(after)).await;
        }
        // Before the watch shows it, a late write may have restored a former key in a Secret that was deleted.
        let in_secret = objects.credentials(facts).await?;
        if in_secret.is_some_and(|key| record.access_key_id.as_ref() != Some(&key.access_key_id)) {
            return Box::pin(Attempt::run(self.reconciler, Reason::Secret, facts, step)).await;
        }
        let mut calls = self.calls(Purpose::Remove)?;
        let (_, account) = calls.bucket_and_account(bucket, record.source).await?;
        let before = calls.unknown_keys(record, &account).await?;
        let answer = calls.call(limits.delete, || backend.revoke_old_keys(account.clone())).await;
        answer.map_err(|failure| {
            failure.stop(
                |error| {
                    let retry_after = error.retry_after();
                    Stopped::NotRetired { message: error.event_text(&bucket.name), retry_after }
                },
                |aborted| Stopped::RotationAborted { method: "retire", aborted },
            )
        })?;
        calls.report_removed(before, record, &account).await?;
        let record = Record { retire_at: None, former_keys: Vec::new(), ..record.clone() };
        objects.write_bucket(bucket, &record, None).await?;
        Ok(Done::Retired)
    }

    /// Returns the IDs of the keys of the claim's account; `None` if the backend cannot list them.
    async fn list_keys(&self) -> Result<Option<Vec<String>>, Stopped> {
        let mut calls = self.calls(Purpose::Remove)?;
        let (_, account) = calls.bucket_and_account(self.bucket, self.record.source).await?;
        calls.keys(account).await
    }

    fn calls(&self, purpose: Purpose) -> Result<Calls<'a>, Stopped> {
        Calls::begin(self.reconciler, self.facts, self.step, purpose)
    }

    /// Returns the time remaining until `time`; `None` if it has passed.
    fn time_until(&self, time: Option<&str>) -> Option<Duration> {
        let time: Timestamp = time?.parse().ok()?;
        Duration::try_from(time.duration_since(self.reconciler.objects.now())).ok().filter(|left| !left.is_zero())
    }
}

/// Verifies with each resync that the key in the claim's Secret still works, and replaces it if it does not. A claim
/// rests for at most `at_most`.
pub(super) async fn verify(
    reconciler: &BucketReconciler,
    facts: &Facts,
    step: &Step<'_>,
    at_most: Option<Duration>,
) -> Outcome {
    let rests = |after: Duration| Ok(Done::CheckAgain { after: at_most.map_or(after, |limit| limit.min(after)) });
    let Some(id) = facts.record().and_then(Record::delivered_key) else {
        return Ok(at_most.map_or(Done::Nothing, |after| Done::CheckAgain { after }));
    };
    if step.work().waits() == 0 {
        // After a start, the verifications of all claims are spread over the period.
        return rests(reconciler.resync.mul_f64((stable_hash(&step.key().to_string()) % 1024) as f64 / 1024.0));
    }
    match Rotation::new(reconciler, facts, step)?.list_keys().await {
        Ok(Some(keys)) if !keys.contains(id) => Box::pin(Attempt::run(reconciler, Reason::Secret, facts, step)).await,
        Err(stopped @ Stopped::AwaitsPermit(_)) => Err(stopped),
        // The state of the key is unknown.
        Ok(_) | Err(_) => rests(reconciler.resync),
    }
}
