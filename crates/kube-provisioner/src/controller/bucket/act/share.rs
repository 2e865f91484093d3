//! How the deletion of a bucket and the claims that use it give way to each other.
//!
//! A claim that is about to use the bucket of another one has written its ObjectBucket; then it marks that of the owner, and gives
//! up if the owner's is being deleted. The owner marks its own as being deleted; then it looks for ObjectBuckets of users, and waits
//! if there are some. It looks only where there is the mark of a user.

use kube::api::{Api, ListParams};

use super::Actions;
use crate::controller::bucket::decision::Refusal;
use crate::controller::bucket::facts::{BucketFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::partial::{WatchedBucket, bucket_facts};
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::protocol::USES_BUCKET_OF;

impl Actions {
    /// When this succeeds, the bucket that the claim is about to use stays as long as the claim's ObjectBucket.
    pub(super) async fn join(&self, record: &Record, facts: &Facts) -> Result<(), Outcome> {
        if record.made || record.owner.is_none() {
            return Ok(());
        }
        let owner = facts.owner.bucket.as_ref().ok_or(Outcome::Changed)?;
        let live = self.mark_shared(owner).await?;
        if live.deleting && self.rules.safeguards.include(BucketSafeguard::Shared) {
            return Err(Outcome::Changed);
        }
        Ok(())
    }

    /// When this succeeds, no claim uses the bucket of an ObjectBucket whose deletion has begun, and none will.
    pub(super) async fn confirm_unused(&self, bucket: &BucketFacts) -> Result<(), Outcome> {
        let is_marked = self.cache().bucket(&bucket.name).is_some_and(|live| live.shared);
        let Some(claim) = bucket.claim().filter(|_| is_marked) else { return Ok(()) };
        if !self.rules.safeguards.include(BucketSafeguard::Shared) {
            return Ok(());
        }
        let selector = format!("{USES_BUCKET_OF}={}", bucket.made_for(claim).uid);
        let api: Api<WatchedBucket> = Api::all(self.context.client().clone());
        let users = self.context.request(api.list(&ListParams::default().labels(&selector))).await;
        let users = users.map_err(|error| Outcome::CallFailed { doing: "listing the users of the bucket", error })?;
        let name = |user: BucketFacts| user.claim().map_or(user.name.to_string(), |claim| claim.to_string());
        let by: Vec<String> = users.iter().filter_map(bucket_facts).map(name).collect();
        if by.is_empty() { Ok(()) } else { Err(Outcome::Refused(Refusal::InUse { by })) }
    }
}
