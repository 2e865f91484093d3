//! Deprovisions a claim: the backend first, then Secret and ConfigMap, then the ObjectBucket, then the claim. The first
//! failure stops it, so that nothing is forgotten that still exists.

use std::sync::Arc;

use provisioner_runtime::Cache as _;
use provisioner_runtime::limiter::Purpose;

use super::adoption::unrecorded;
use super::cache::BucketCache;
use super::calls::{CallFailure, Calls};
use super::decision::{Refusal, ReleaseMode};
use super::facts::{BucketFacts, Facts};
use super::outcome::{Done, Outcome, Stopped};
use super::record::Source;
use super::safeguards::BucketSafeguard;
use super::{BucketReconciler, Step};
use crate::bucket::ClaimName;
use crate::error::DeleteError;

pub(super) struct Release<'a> {
    reconciler: &'a BucketReconciler,
    release_mode: ReleaseMode,
    facts: &'a Facts,
    bucket: &'a Arc<BucketFacts>,
}

impl<'a> Release<'a> {
    pub(super) async fn run(
        reconciler: &'a BucketReconciler,
        release_mode: ReleaseMode,
        facts: &'a Facts,
        step: &'a Step<'a>,
    ) -> Outcome {
        let bucket = facts.bucket().ok_or(Stopped::Changed)?;
        let release = Self { reconciler, release_mode, facts, bucket };
        let calls = Calls::begin(reconciler, facts, step, Purpose::Remove)?;
        match facts.claim_name() {
            Some(claim) => release.deprovision(&claim, calls).await?,
            None if release_mode == ReleaseMode::Abandon => reconciler.objects.remove_bucket(bucket).await?,
            None => return Err(Stopped::Changed),
        }
        Ok(Done::Released { release_mode, bucket: bucket.endpoint.bucket.to_string() })
    }

    async fn deprovision(&self, claim: &ClaimName, mut calls: Calls<'_>) -> Result<(), Stopped> {
        let Self { reconciler: BucketReconciler { objects, .. }, release_mode, facts, bucket } = self;
        if facts.claim.is_none() && objects.read_claim(claim).await?.is_some_and(|live| !live.deleting) {
            return Err(Stopped::Changed);
        }
        // The first run of a release writes the object at a known version. A later run writes nothing before the call,
        // and its cached reclaim policy may be old.
        if bucket.deleting && bucket.is_released() {
            objects.confirm_bucket(bucket).await?;
        }
        // From here on no attempt reuses the object, even if the reason for the release disappears.
        let bucket = objects.set_bucket_phase(&*self.with_finalizer().await?, "Released").await?;
        if !bucket.deleting {
            objects.begin_deletion(&bucket).await?;
        }
        if *release_mode != ReleaseMode::Abandon {
            self.confirm_unused(&bucket).await?;
            self.remove_in_backend(&bucket, &mut calls).await?;
            calls.end();
        }
        objects.remove_delivered(claim, facts).await?;
        objects.end_deletion(&bucket).await?;
        objects.remove_claim_finalizer(claim).await
    }

    /// Returns the ObjectBucket with our finalizer: without it, the object would be deleted before the bucket. The
    /// facts about an object of another provisioner are recorded first, since its class may be deleted at any time.
    async fn with_finalizer(&self) -> Result<Arc<BucketFacts>, Stopped> {
        let Self { reconciler, release_mode, facts, bucket } = self;
        if bucket.has_finalizer() || bucket.deleting || *release_mode == ReleaseMode::Abandon {
            return Ok(Arc::clone(bucket));
        }
        let record = match (bucket.record(), &facts.claim) {
            (None, Some(claim)) => unrecorded(claim, facts),
            (record, _) => record.cloned().unwrap_or_default(),
        };
        reconciler.objects.write_bucket(bucket, &record, None).await.map(Arc::new)
    }

    /// Confirms that no claim uses the bucket of an ObjectBucket whose deletion has begun, and that none will: a claim
    /// that is about to use it has written its ObjectBucket, then marks the owner's, and stops if that is being
    /// deleted.
    async fn confirm_unused(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        let BucketReconciler { objects, rules, .. } = self.reconciler;
        let is_marked = objects.cache().bucket(&bucket.name).is_some_and(|live| live.shared);
        let Some(claim) = bucket.claim().filter(|_| is_marked) else { return Ok(()) };
        if !rules.safeguards.include(BucketSafeguard::Shared) {
            return Ok(());
        }
        let by = objects.users_of(&bucket.created_for(claim)).await?;
        if by.is_empty() { Ok(()) } else { Err(Stopped::Refused(Refusal::InUse { by })) }
    }

    /// Calls the provisioner. The bucket is removed first: if it is not deleted because it contains objects, it stays
    /// usable, and in some backends the account proves the ownership of a bucket.
    async fn remove_in_backend(&self, bucket: &BucketFacts, calls: &mut Calls<'_>) -> Result<(), Stopped> {
        let BucketReconciler { backend, limits, .. } = self.reconciler;
        let recorded = bucket.record().map_or(Source::Unknown, |record| record.source);
        let (source, with_bucket) = match self.release_mode {
            ReleaseMode::Delete => (Source::Provisioned, true),
            ReleaseMode::CleanUp => (recorded, recorded == Source::Provisioned),
            ReleaseMode::Revoke | ReleaseMode::RevokeUnknown | ReleaseMode::Abandon => (recorded, false),
        };
        let (of_bucket, of_account) = calls.bucket_and_account(bucket, source).await?;
        if with_bucket {
            // An administrator may change the reclaim policy or abandon the bucket during the wait for a permit.
            let wanted = |cache: &mut BucketCache| {
                let live = cache.bucket(&bucket.name);
                live.is_none_or(|live| (live.policy, live.abandoned) == (bucket.policy, bucket.abandoned))
            };
            let answer = calls.call_if(wanted, limits.delete, || backend.delete_bucket(of_bucket)).await;
            self.check_removed("delete_bucket", answer, bucket)?;
        }
        let answer = calls.call(limits.delete, || backend.revoke(of_account)).await;
        self.check_removed("revoke", answer, bucket)
    }

    fn check_removed(
        &self,
        method: &'static str,
        answer: Result<(), CallFailure<DeleteError>>,
        bucket: &BucketFacts,
    ) -> Result<(), Stopped> {
        let Err(failure) = answer else { return Ok(()) };
        let in_order = self.reconciler.rules.safeguards.include(BucketSafeguard::Order);
        if matches!(failure, CallFailure::Returned(_)) && !in_order {
            return Ok(());
        }
        let returned = |error: DeleteError| {
            let (verdict, retry_after) = (error.verdict(), error.retry_after());
            Stopped::NotReleased { verdict, message: error.event_text(&bucket.name), retry_after }
        };
        Err(failure.stop(returned, |aborted| Stopped::ReleaseAborted { method, aborted }))
    }
}

/// Releases a claim that is being deleted and has no ObjectBucket, or one that was let go.
pub(super) async fn release_claim(
    BucketReconciler { objects, .. }: &BucketReconciler,
    facts: &Facts,
    step: &Step<'_>,
) -> Outcome {
    let claim = facts.claim.as_ref().ok_or(Stopped::Changed)?;
    // The claim names its ObjectBucket before that is created, and the answer to the creation may have been lost.
    if let Some(object) = &claim.object_bucket {
        objects.read_bucket(object).await?;
    }
    if objects.cache().facts(step.key()).bucket().is_some_and(|bucket| !bucket.has_only_foreign_finalizers()) {
        return Err(Stopped::Changed);
    }
    objects.remove_delivered(&claim.name(), facts).await?;
    objects.remove_claim_finalizer(&claim.name()).await?;
    Ok(Done::ClaimReleased)
}
