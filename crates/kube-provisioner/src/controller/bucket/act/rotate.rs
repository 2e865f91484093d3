//! New keys for a user: the key is made and written down, the Secret gets it, and the keys before it go some time later.

use jiff::{SignedDuration, Timestamp};
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Actions, Step};
use crate::bucket::Source;
use crate::controller::bucket::class::{granted_bucket, overlap};
use crate::controller::bucket::facts::{ClassState, Delivered, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;

impl Actions {
    pub(super) async fn rotate(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Outcome::Changed };
        let Some(record) = bucket.record() else { return Outcome::Changed };
        let class = facts.class_name();
        let Some(_permit) = step.enter(class) else { return Outcome::AwaitsPermit(class.into()) };
        let (token, _guard) = step.token(None::<fn() -> bool>);
        let rotated = async {
            let source = record.source.unwrap_or(Source::Granted);
            let argument = self.provisioned(bucket, facts, source, &token).await?;
            let limit = self.limits.provision;
            let credentials = match self.call(step, (&token, class), limit, || self.backend.rotate(argument)).await? {
                Ok(Ok(credentials)) => credentials,
                Ok(Err(error)) => {
                    let retry_after = error.retry_after();
                    return Err(Outcome::NotRotated { message: error.to_string(), retry_after });
                }
                Err(no_answer) => return Err(Outcome::RotationBroke { method: "rotate", no_answer }),
            };
            let overlap = record.parameters.as_ref().map(overlap).and_then(Result::ok).unwrap_or_default();
            let retire_at = self.now().checked_add(SignedDuration::try_from(overlap).unwrap_or_default());
            // The record is the first to know: whoever finds another key in the Secret asks for this one.
            let record = Record {
                access_key_id: match self.rules.safeguards.include(BucketSafeguard::KeyRecord) {
                    true => Some(credentials.access_key_id.clone()),
                    false => record.access_key_id.clone(),
                },
                rotation: claim.rotation.as_deref().map(str::to_owned),
                retire_at: retire_at.ok().map(|time| time.to_string()),
                ..(**record).clone()
            };
            self.write_bucket(bucket, &record, None).await?;
            let entries = BTreeMap::from([
                (AWS_ACCESS_KEY_ID.to_owned(), credentials.access_key_id),
                (AWS_SECRET_ACCESS_KEY.to_owned(), credentials.secret_access_key),
            ]);
            self.write_secret(claim, entries).await
        };
        rotated.await.map_or_else(|outcome| outcome, |()| Outcome::Rotated)
    }

    pub(super) async fn retire(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Some(bucket) = facts.bucket() else { return Outcome::Changed };
        let Some(record) = bucket.record() else { return Outcome::Changed };
        if let Some(after) = self.until(record.retire_at.as_deref()) {
            return Outcome::RetiresLater { after };
        }
        let class = facts.class_name();
        let Some(_permit) = step.enter(class) else { return Outcome::AwaitsPermit(class.into()) };
        let (token, _guard) = step.token(None::<fn() -> bool>);
        let retired = async {
            let source = record.source.unwrap_or(Source::Granted);
            let argument = self.provisioned(bucket, facts, source, &token).await?;
            let limit = self.limits.delete;
            match self.call(step, (&token, class), limit, || self.backend.retire(argument)).await? {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let retry_after = error.retry_after();
                    return Err(Outcome::NotRetired { message: error.to_string(), retry_after });
                }
                Err(no_answer) => return Err(Outcome::RotationBroke { method: "retire", no_answer }),
            }
            let record = Record { retire_at: None, ..(**record).clone() };
            self.write_bucket(bucket, &record, None).await.map(drop)
        };
        retired.await.map_or_else(|outcome| outcome, |()| Outcome::Retired)
    }

    /// Writes down what another provisioner has made. Nothing in the backend changes, and neither do Secret and ConfigMap.
    pub(super) async fn adopt(&self, facts: &Facts) -> Outcome {
        let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Outcome::Changed };
        let class = match &facts.class {
            ClassState::Ours(class) => Some(class.clone()),
            _ => None,
        };
        let access_key_id = match facts.secret {
            Delivered::Intact => {
                let cache = self.cache();
                let [secret, _] = cache.delivered(&format!("{}/{}", claim.namespace, claim.name));
                secret.and_then(|secret| secret.access_key_id.as_deref().map(str::to_owned))
            }
            _ => None,
        };
        let record = Record {
            source: class.as_ref().map(|class| match granted_bucket(&class.texts) {
                Some(_) => Source::Granted,
                None => Source::Provisioned,
            }),
            parameters: class.map(|class| Arc::unwrap_or_clone(class.texts.clone())),
            config: claim.config.clone(),
            made: true,
            access_key_id,
            rotation: claim.rotation.as_deref().map(str::to_owned),
            ..Record::unknown()
        };
        match self.write_bucket(bucket, &record, None).await {
            Ok(_) => Outcome::Adopted,
            Err(outcome) => outcome,
        }
    }

    fn now(&self) -> Timestamp {
        self.context.environment().now()
    }

    /// How long it is until this time; `None` if it has come.
    fn until(&self, time: Option<&str>) -> Option<Duration> {
        let time: Timestamp = time?.parse().ok()?;
        Duration::try_from(time.duration_since(self.now())).ok().filter(|left| !left.is_zero())
    }
}
