//! Compares the keys that a backend accepts with those that the provisioner has delivered.

use std::time::Duration;

use provisioner_runtime::limiter::Purpose;
use provisioner_runtime::stable_hash;

use super::calls::Calls;
use super::{Actions, Step};
use crate::controller::bucket::backend::UntypedAccount;
use crate::controller::bucket::decision::Reason;
use crate::controller::bucket::events::unknown_keys;
use crate::controller::bucket::facts::Facts;
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::{Record, Source};

impl Actions {
    /// Looks with each resync whether the key in the claim's Secret still works, and replaces it if it does not. A claim rests for
    /// `at_most` this time.
    pub(super) async fn verify(&self, facts: &Facts, step: &Step<'_>, at_most: Option<Duration>) -> Outcome {
        let record = facts.bucket().and_then(|bucket| bucket.record());
        let rests = |after: Duration| Outcome::Rests { after: at_most.map_or(after, |limit| limit.min(after)) };
        let Some(id) = record.and_then(|record| record.delivered_key()) else {
            return at_most.map_or(Outcome::NoAction, |after| Outcome::Rests { after });
        };
        if step.work().waits() == 0 {
            // After a start, the looks at all claims are spread over the period.
            return rests(self.resync.mul_f64((stable_hash(&step.key().to_string()) % 1024) as f64 / 1024.0));
        }
        match self.listed(facts, step).await {
            Ok(Some(keys)) if !keys.contains(id) => Box::pin(self.attempt(Reason::Secret, facts, step)).await,
            Err(outcome @ Outcome::AwaitsPermit(_)) => outcome,
            // Nothing is known of the key.
            Ok(_) | Err(_) => rests(self.resync),
        }
    }

    async fn listed(&self, facts: &Facts, step: &Step<'_>) -> Result<Option<Vec<String>>, Outcome> {
        let bucket = facts.bucket().ok_or(Outcome::Changed)?;
        let source = bucket.record().and_then(|record| record.source).unwrap_or(Source::Granted);
        let flow = facts.flow(Purpose::Remove);
        let Some(_permit) = step.enter(&flow) else { return Err(Outcome::AwaitsPermit(flow)) };
        let (token, _guard) = step.token();
        let (_, account) = self.known(bucket, facts, source, &token).await?;
        self.keys(account, &mut Calls::begin(step, &token, &flow).await).await
    }

    /// Returns the ids of the account's keys; `None` if the backend does not tell.
    async fn keys(&self, account: UntypedAccount, calls: &mut Calls<'_>) -> Result<Option<Vec<String>>, Outcome> {
        match calls.call(self.limits.delete, || self.backend.list_keys(account)).await? {
            Ok(Ok(keys)) => Ok(keys),
            Ok(Err(problem)) => {
                tracing::debug!(problem, "the keys of an account cannot be listed");
                Ok(None)
            }
            Err(aborted) => {
                tracing::debug!(?aborted, "the keys of an account cannot be listed");
                Ok(None)
            }
        }
    }

    /// Returns the account's keys that the provisioner has not delivered.
    pub(super) async fn unknown_keys(
        &self,
        record: &Record,
        account: &UntypedAccount,
        calls: &mut Calls<'_>,
    ) -> Result<Vec<String>, Outcome> {
        let keys = self.keys(account.clone(), calls).await?.unwrap_or_default();
        Ok(keys.into_iter().filter(|id| !record.knows_key(id)).collect())
    }

    /// Reports which of these unknown keys a call has removed.
    pub(super) async fn report_removed(
        &self,
        (facts, record): (&Facts, &Record),
        account: &UntypedAccount,
        mut before: Vec<String>,
        calls: &mut Calls<'_>,
    ) -> Result<(), Outcome> {
        if before.is_empty() {
            return Ok(());
        }
        let after = self.unknown_keys(record, account, calls).await?;
        before.retain(|id| !after.contains(id));
        if let Some(claim) = facts.claim.as_ref().filter(|_| !before.is_empty()) {
            self.context.events().record(unknown_keys(&before, claim));
        }
        Ok(())
    }
}
