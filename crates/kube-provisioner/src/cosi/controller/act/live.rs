//! Reads the current objects from the API server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Resource as _};
use provisioner_runtime::call::found;

use super::{Actions, ListedBuckets};
use crate::controller::shared::requests;
use crate::cosi::controller::cache::Key;
use crate::cosi::controller::decide::{AccessView, BucketState, BucketView, Facts};
use crate::cosi::controller::objects::{self, AccessFacts, Bucket, BucketAccess, WatchedBucket};
use crate::cosi::controller::outcome::Stopped;
use crate::cosi::controller::secrets::{SecretFacts, SecretState};

impl Actions {
    /// Reads the facts about a key from the API server.
    pub(super) async fn read(&self, key: &Key) -> Result<Facts, Stopped> {
        match key {
            Key::Bucket(name) => Ok(match self.read_bucket(name).await? {
                BucketState::Ours(bucket) => Facts::Bucket(BucketView { bucket, duplicate: None }),
                BucketState::Absent | BucketState::Foreign => Facts::None,
            }),
            Key::Access(path) => {
                let (namespace, name) = path.split_once('/').unwrap_or_default();
                match self.read_access(namespace, name).await? {
                    Some(access) => self.access_view(access).await.map(Facts::Access),
                    None => Ok(Facts::None),
                }
            }
        }
    }

    /// Adds the duplicate Bucket as read from the API server: the cache may not show a new duplicate yet, or may still
    /// show one whose deletion has left the bucket to this Bucket. Concurrent deletions share a list if it began after
    /// the first `begun` lists.
    pub(super) async fn with_live_duplicate(
        &self,
        facts: &Facts,
        listed: &mut ListedBuckets,
        begun: u64,
    ) -> Result<Facts, Stopped> {
        let Facts::Bucket(BucketView { bucket, .. }) = facts else { return Ok(facts.clone()) };
        if listed.number <= begun {
            let number = self.lists.fetch_add(1, Ordering::Relaxed) + 1;
            let api: Api<WatchedBucket> = Api::all(self.context.client().clone());
            let all = self.context.request(api.list(&ListParams::default())).await;
            let all = all.map_err(Stopped::call_failed("listing the Buckets"))?;
            let ours = all.iter().filter_map(|other| objects::bucket(other, self.driver.name())?.ours);
            *listed = ListedBuckets { number, buckets: ours.collect() };
        }
        let duplicate =
            listed.buckets.iter().find(|other| bucket.is_duplicate(other)).map(|other| other.object.name.clone());
        if duplicate.is_some() {
            // This Bucket leaves its bucket to the duplicate, which must not see it in the same list.
            *listed = ListedBuckets::default();
        }
        Ok(Facts::Bucket(BucketView { bucket: bucket.clone(), duplicate }))
    }

    async fn read_bucket(&self, name: &str) -> Result<BucketState, Stopped> {
        let answer = found(requests::get(&self.context, Bucket::url_path(&(), None), name).await);
        let live = answer.map_err(Stopped::call_failed("reading the Bucket"))?;
        let seen = live.map(|bucket| objects::bucket(&bucket, self.driver.name()));
        Ok(match seen {
            None => BucketState::Absent,
            Some(seen) => seen.and_then(|seen| seen.ours).map_or(BucketState::Foreign, BucketState::Ours),
        })
    }

    async fn read_access(&self, namespace: &str, name: &str) -> Result<Option<Arc<AccessFacts>>, Stopped> {
        let answer = found(requests::get(&self.context, BucketAccess::url_path(&(), Some(namespace)), name).await);
        let live = answer.map_err(Stopped::call_failed("reading the BucketAccess"))?;
        Ok(live.and_then(|access| objects::access(&access, self.driver.name())?.ours))
    }

    /// Returns an access with its Buckets and Secrets.
    async fn access_view(&self, access: Arc<AccessFacts>) -> Result<AccessView, Stopped> {
        let (mut buckets, mut secrets) = (Vec::new(), Vec::new());
        // Access is revoked regardless of its Buckets.
        let targets = access.content.iter().flat_map(|content| &content.targets).filter(|_| !access.object.deleting);
        for target in targets {
            buckets.push(self.read_bucket(&target.bucket).await?);
            let secret = self.read_secret(&access, &target.secret).await?;
            secrets.push(secret.map_or(SecretState::Absent, |secret| secret.state(&access)));
        }
        Ok(AccessView { access, buckets, secrets })
    }

    pub(super) async fn read_secret(&self, access: &AccessFacts, name: &str) -> Result<Option<SecretFacts>, Stopped> {
        let answer = found(self.context.request(self.secrets(access).get(name)).await);
        let secret = answer.map_err(Stopped::call_failed("reading a Secret of the BucketAccess"))?;
        Ok(secret.map(|secret| SecretFacts::of(&secret, self.driver.name())))
    }

    pub(super) fn secrets(&self, access: &AccessFacts) -> Api<Secret> {
        Api::namespaced(self.context.client().clone(), &access.object.namespace)
    }
}
