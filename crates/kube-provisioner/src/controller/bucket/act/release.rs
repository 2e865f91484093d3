//! Ends a claim's bucket: the backend first, then Secret and ConfigMap, then the ObjectBucket, then the claim. The first
//! failure stops it, so that nothing is forgotten that still exists.

use std::sync::Arc;

use provisioner_runtime::Cache as _;
use provisioner_runtime::controller::FencingToken;
use provisioner_runtime::limiter::{Flow, Purpose};

use super::{Actions, Step};
use crate::bucket::{ClaimName, Source};
use crate::controller::bucket::decide::Ending;
use crate::controller::bucket::facts::{BucketFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;

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
        let source = match ending {
            Ending::Delete => Source::Provisioned,
            Ending::Revoke | Ending::RevokeUnknown | Ending::Abandon => Source::Granted,
            Ending::CleanUp => bucket.record().and_then(|record| record.source).ok_or(Outcome::Changed)?,
        };
        // `revoke` may want to know that the bucket was made for the claim.
        let known = bucket.record().and_then(|record| record.source).unwrap_or(source);
        if ending != Ending::Abandon {
            let argument = self.provisioned(&bucket, facts, known, token).await?;
            let (method, limit) = (method(ending), self.limits.delete);
            let answer = self
                .call(step, (token, flow), limit, || match ending {
                    Ending::Delete => self.backend.delete(argument),
                    Ending::CleanUp => self.backend.clean_up(argument),
                    _ => self.backend.revoke(argument),
                })
                .await?;
            match answer {
                Ok(Ok(())) => {}
                Ok(Err(_)) if !self.rules.safeguards.include(BucketSafeguard::Order) => {}
                Ok(Err(error)) => {
                    let (verdict, retry_after) = (error.verdict(), error.retry_after());
                    return Err(Outcome::NotReleased { verdict, message: error.to_string(), retry_after });
                }
                Err(aborted) => return Err(Outcome::ReleaseAborted { method, aborted }),
            }
        }
        self.remove_delivered(claim).await?;
        self.end_deletion(&bucket).await?;
        self.let_claim_go(claim).await
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
            self.remove_delivered(&claim.name()).await?;
            self.let_claim_go(&claim.name()).await
        };
        released.await.map_or_else(|outcome| outcome, |()| Outcome::ClaimReleased)
    }
}

fn method(ending: Ending) -> &'static str {
    match ending {
        Ending::Delete => "delete",
        Ending::CleanUp => "clean_up",
        Ending::Revoke | Ending::RevokeUnknown | Ending::Abandon => "revoke",
    }
}
