//! Ends a claim's bucket: the backend first, then Secret and ConfigMap, then the ObjectBucket, then the claim. The first
//! failure stops it, so that nothing is forgotten that still exists.

use std::sync::Arc;

use provisioner_runtime::Cache as _;
use provisioner_runtime::controller::{CallAborted, FencingToken};
use provisioner_runtime::limiter::{Flow, Purpose};

use super::calls::Calls;
use super::{Actions, Step};
use crate::bucket::ClaimName;
use crate::controller::bucket::backend::UntypedAccount;
use crate::controller::bucket::decision::Ending;
use crate::controller::bucket::facts::{BucketFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::{Record, Source};
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::error::DeleteError;

impl Actions {
    pub(super) async fn release(&self, ending: Ending, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Some(bucket) = facts.bucket().cloned() else { return Outcome::Changed };
        let flow = facts.flow(Purpose::Remove);
        let Some(_permit) = step.enter(&flow) else { return Outcome::AwaitsPermit(flow) };
        let (token, _guard) = step.token();
        let ended = match facts.claim_name() {
            Some(claim) => self.end(ending, &bucket, (facts, &claim), (step, &token, &flow)).await,
            None if ending == Ending::Abandon => self.remove_bucket(&bucket).await,
            None => Err(Outcome::Changed),
        };
        match ended {
            Ok(()) => Outcome::Released { ending, bucket: bucket.endpoint.bucket.to_string() },
            Err(outcome) => outcome,
        }
    }

    async fn end(
        &self,
        ending: Ending,
        bucket: &Arc<BucketFacts>,
        (facts, claim): (&Facts, &ClaimName),
        (step, token, flow): (&Step<'_>, &FencingToken, &Flow),
    ) -> Result<(), Outcome> {
        let shares = bucket.record().is_some_and(|record| record.account.is_some());
        let _alone = if shares { Some(self.shared_accounts.lock().await) } else { None };
        if facts.claim.is_none() && self.read_claim(claim).await?.is_some_and(|live| !live.deleting) {
            return Err(Outcome::Changed);
        }
        let bucket = self.with_finalizer(bucket, ending).await?;
        // From here on nobody takes the object for a living one.
        if !bucket.deleting && !self.begin_deletion(&bucket).await? {
            return self.let_claim_go(claim).await;
        }
        if ending != Ending::Abandon {
            self.confirm_unused(&bucket).await?;
        }
        self.set_bucket_phase(&bucket, "Released").await?;
        if ending != Ending::Abandon {
            self.remove_in_backend(ending, &bucket, facts, (step, token, flow)).await?;
        }
        self.remove_delivered(claim, facts).await?;
        self.end_deletion(&bucket).await?;
        self.let_claim_go(claim).await
    }

    /// The author's part. The bucket goes first: one that is not deleted, since it holds objects, stays usable, and in some backends the
    /// account proves whose a bucket is.
    async fn remove_in_backend(
        &self,
        ending: Ending,
        bucket: &BucketFacts,
        facts: &Facts,
        (step, token, flow): (&Step<'_>, &FencingToken, &Flow),
    ) -> Result<(), Outcome> {
        let recorded = bucket.record().and_then(|record| record.source);
        let (source, with_bucket) = match ending {
            Ending::Delete => (Source::Provisioned, true),
            Ending::CleanUp => {
                let source = recorded.ok_or(Outcome::Changed)?;
                (source, source == Source::Provisioned)
            }
            Ending::Revoke | Ending::RevokeUnknown | Ending::Abandon => (recorded.unwrap_or(Source::Granted), false),
        };
        let (of_bucket, of_account) = self.known(bucket, facts, source, token).await?;
        let (mut calls, limit) = (Calls::begin(step, token, flow).await, self.limits.delete);
        if with_bucket {
            let answer = calls.call(limit, || self.backend.delete_bucket(of_bucket)).await?;
            self.removed("delete_bucket", answer, bucket)?;
        }
        let answer = self.end_account(bucket, of_account, &mut calls).await?;
        self.removed("revoke", answer, bucket)
    }

    /// Removes the claim's account. An account that an earlier version made for several claims is removed with the last of them.
    pub(super) async fn end_account(
        &self,
        bucket: &BucketFacts,
        account: UntypedAccount,
        calls: &mut Calls<'_>,
    ) -> Result<Result<Result<(), DeleteError>, CallAborted>, Outcome> {
        let limit = self.limits.delete;
        let record = bucket.record().and_then(|record| Some((record, record.account.clone()?)));
        let record = record.filter(|(_, shared)| !self.cache().is_account_in_use(bucket, shared));
        let shared = record.map(|(record, shared)| UntypedAccount {
            account: shared.account(&account.account.claim.namespace),
            access_key_id: record.access_key_id.clone().filter(|_| !shared.left),
            state: shared.state,
            ..account.clone()
        });
        let answer = calls.call(limit, || self.backend.revoke(account)).await?;
        match shared {
            Some(shared) if matches!(answer, Ok(Ok(()))) => calls.call(limit, || self.backend.revoke(shared)).await,
            _ => Ok(answer),
        }
    }

    fn removed(
        &self,
        method: &'static str,
        answer: Result<Result<(), DeleteError>, CallAborted>,
        bucket: &BucketFacts,
    ) -> Result<(), Outcome> {
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) if !self.rules.safeguards.include(BucketSafeguard::Order) => Ok(()),
            Ok(Err(error)) => {
                let (verdict, retry_after) = (error.verdict(), error.retry_after());
                Err(Outcome::NotReleased { verdict, message: error.event_text(&bucket.name), retry_after })
            }
            Err(aborted) => Err(Outcome::ReleaseAborted { method, aborted }),
        }
    }

    /// The ObjectBucket with our finalizer: without it, the object would be gone before the bucket. What is known of an
    /// object of another provisioner is written down first, since its class may go at any time.
    async fn with_finalizer(&self, bucket: &Arc<BucketFacts>, ending: Ending) -> Result<Arc<BucketFacts>, Outcome> {
        if bucket.has_finalizer() || bucket.deleting || ending == Ending::Abandon {
            return Ok(bucket.clone());
        }
        let record = bucket.record().map(|record| (**record).clone());
        let record = record.unwrap_or_else(Record::unknown);
        self.write_bucket(bucket, &record, None).await.map(Arc::new)
    }

    /// A claim that is being deleted and has no ObjectBucket.
    pub(super) async fn release_claim(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Some(claim) = &facts.claim else { return Outcome::Changed };
        let released = async {
            // The claim names its ObjectBucket before that is created, and the answer to the creation may have been lost.
            if let Some(object) = &claim.object_bucket {
                self.read_bucket(object).await?;
            }
            if self.cache().facts(step.key()).bucket().is_some() {
                return Err(Outcome::Changed);
            }
            self.remove_delivered(&claim.name(), facts).await?;
            self.let_claim_go(&claim.name()).await
        };
        released.await.map_or_else(|outcome| outcome, |()| Outcome::ClaimReleased)
    }
}
