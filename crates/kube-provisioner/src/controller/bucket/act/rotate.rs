//! New keys for a user: the key is made and written down, the Secret gets it, and the keys before it go some time later.

use jiff::{SignedDuration, Timestamp};
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY};
use provisioner_runtime::limiter::Purpose;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::calls::Calls;
use super::{Actions, Step};
use crate::controller::bucket::class::{granted_bucket, overlap};
use crate::controller::bucket::delivered_names::without_names;
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, ClassState, Delivered, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::{NewKey, Record, Source};
use crate::controller::bucket::safeguards::BucketSafeguard;

impl Actions {
    pub(super) async fn rotate(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Outcome::Changed };
        let Some(record) = bucket.record() else { return Outcome::Changed };
        if let Some(new) = &record.new_key {
            // The answer to the Secret's write may have been lost, and another rotation would remove the key that it has.
            match self.credentials(facts).await {
                Ok(Some(in_secret)) if in_secret.access_key_id == new.access_key_id => {
                    let rotated = self.rotated(bucket, record, new.clone()).await;
                    return rotated.map_or_else(|outcome| outcome, |()| Outcome::Rotated);
                }
                Ok(_) => {}
                Err(outcome) => return outcome,
            }
        }
        let flow = facts.flow(Purpose::Create);
        let Some(_permit) = step.enter(&flow) else { return Outcome::AwaitsPermit(flow) };
        let (token, _guard) = step.token();
        let rotated = async {
            self.confirm_writable(claim, record).await?;
            let source = record.source.unwrap_or(Source::Granted);
            let (_, account) = self.known(bucket, facts, source, &token).await?;
            let mut calls = Calls::begin(step, &token, &flow).await;
            let before = self.unknown_keys(record, &account, &mut calls).await?;
            let limit = self.limits.provision;
            let credentials = match calls.call(limit, || self.backend.rotate(account.clone())).await? {
                Ok(Ok(credentials)) => credentials,
                Ok(Err(error)) => {
                    let retry_after = error.retry_after();
                    return Err(Outcome::NotRotated { message: error.event_text(&bucket.name), retry_after });
                }
                Err(aborted) => return Err(Outcome::RotationAborted { method: "rotate", aborted }),
            };
            self.report_removed((facts, record), &account, before, &mut calls).await?;
            let rotation = claim.rotation.as_deref().map(str::to_owned);
            let new = NewKey { access_key_id: credentials.access_key_id.clone(), rotation };
            let mut bucket = bucket.clone();
            // The record is the first to know, and the key before stays the user's until the Secret has the new one.
            if self.rules.safeguards.include(BucketSafeguard::KeyRecord) {
                let record = Record { new_key: Some(new.clone()), ..(**record).clone() };
                bucket = Arc::new(self.write_bucket(&bucket, &record, None).await?);
            }
            let entries = BTreeMap::from([
                (AWS_ACCESS_KEY_ID.to_owned(), credentials.access_key_id),
                (AWS_SECRET_ACCESS_KEY.to_owned(), credentials.secret_access_key),
            ]);
            self.write_secret(claim, record, entries).await?;
            self.rotated(&bucket, record, new).await
        };
        rotated.await.map_or_else(|outcome| outcome, |()| Outcome::Rotated)
    }

    /// The Secret has the new key. The previous one is removed after the overlap.
    async fn rotated(&self, bucket: &BucketFacts, record: &Record, new: NewKey) -> Result<(), Outcome> {
        let record = self.end_rotation(record.clone(), new);
        self.write_bucket(bucket, &record, None).await.map(drop)
    }

    pub(super) fn end_rotation(&self, record: Record, new: NewKey) -> Record {
        let record = self.with_overlap(record);
        Record { access_key_id: Some(new.access_key_id), rotation: new.rotation, new_key: None, ..record }
    }

    /// The Secret gets another key. The keys before it are removed after the overlap.
    pub(super) fn with_overlap(&self, mut record: Record) -> Record {
        let overlap = record.parameters.as_ref().map(overlap).and_then(Result::ok).unwrap_or_default();
        let retire_at = self.now().checked_add(SignedDuration::try_from(overlap).unwrap_or_default());
        if self.rules.capabilities.rotation {
            record.retire_at = retire_at.ok().map(|time| time.to_string());
        }
        record.former_keys.extend(record.access_key_id.clone());
        record
    }

    pub(super) async fn retire(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Some(bucket) = facts.bucket() else { return Outcome::Changed };
        let Some(record) = bucket.record() else { return Outcome::Changed };
        if let Some(after) = self.until(record.retire_at.as_deref()) {
            return self.verify(facts, step, Some(after)).await;
        }
        let flow = facts.flow(Purpose::Remove);
        let Some(_permit) = step.enter(&flow) else { return Outcome::AwaitsPermit(flow) };
        let (token, _guard) = step.token();
        let retired = async {
            let source = record.source.unwrap_or(Source::Granted);
            let (_, account) = self.known(bucket, facts, source, &token).await?;
            let mut calls = Calls::begin(step, &token, &flow).await;
            let before = self.unknown_keys(record, &account, &mut calls).await?;
            match calls.call(self.limits.delete, || self.backend.retire(account.clone())).await? {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let retry_after = error.retry_after();
                    return Err(Outcome::NotRetired { message: error.event_text(&bucket.name), retry_after });
                }
                Err(aborted) => return Err(Outcome::RotationAborted { method: "retire", aborted }),
            }
            self.report_removed((facts, record), &account, before, &mut calls).await?;
            let record = Record { retire_at: None, former_keys: Vec::new(), ..(**record).clone() };
            self.write_bucket(bucket, &record, None).await.map(drop)
        };
        retired.await.map_or_else(|outcome| outcome, |()| Outcome::Retired)
    }

    /// Writes down what another provisioner has made, or whose a restored bucket is from now on. Nothing in the backend changes,
    /// and neither do Secret and ConfigMap.
    pub(super) async fn adopt(&self, facts: &Facts) -> Outcome {
        let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Outcome::Changed };
        // What proves in the backend whose the bucket is names the claim that it was made for, whoever made it.
        let former = bucket.claim().map(|former| former.uid).filter(|uid| !uid.is_empty() && **uid != *claim.uid);
        let record = match bucket.record() {
            Some(record) => {
                let made_for_uid = record.made_for_uid.clone().or(former);
                // A rotation may have been cut short, and the new claim does not ask for it.
                let knows_key = self.rules.capabilities.rotation && record.access_key_id.is_some();
                let now = knows_key.then(|| self.now().to_string());
                let retire_at = record.retire_at.clone().or(now);
                Record { claim: Some(claim.name()), made_for_uid, retire_at, assigned: true, ..(**record).clone() }
            }
            None => Record { made_for_uid: former, ..self.unrecorded(claim, facts) },
        };
        let adopted = async {
            if bucket.is_given_to(claim) {
                self.prepare_claim(claim, &bucket.name, &bucket.endpoint.bucket).await?;
                return self.assign_bucket(bucket, &record, claim).await;
            }
            self.write_bucket(bucket, &record, None).await
        };
        adopted.await.map_or_else(|outcome| outcome, |_| Outcome::Adopted)
    }

    /// The record of a bucket that another provisioner has made for this claim.
    fn unrecorded(&self, claim: &ClaimFacts, facts: &Facts) -> Record {
        let class = match &facts.class {
            ClassState::Ours(class) => Some(class.clone()),
            _ => None,
        };
        let access_key_id = match facts.secret {
            Delivered::Intact => {
                let cache = self.cache();
                let [secret, _] = cache.delivered(&claim.namespace, &facts.names);
                secret.and_then(|secret| secret.access_key_id.as_deref().map(str::to_owned))
            }
            _ => None,
        };
        Record {
            source: class.as_ref().map(|class| match granted_bucket(&class.texts) {
                Some(_) => Source::Granted,
                None => Source::Provisioned,
            }),
            claim: Some(claim.name()),
            parameters: class.map(|class| without_names(&class.texts)),
            config: claim.config.clone(),
            made: true,
            access_key_id,
            rotation: claim.rotation.as_deref().map(str::to_owned),
            ..Record::unknown()
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.context.environment().now()
    }

    /// How long it is until this time; `None` if it has come.
    fn until(&self, time: Option<&str>) -> Option<Duration> {
        let time: Timestamp = time?.parse().ok()?;
        Duration::try_from(time.duration_since(self.now())).ok().filter(|left| !left.is_zero())
    }
}
