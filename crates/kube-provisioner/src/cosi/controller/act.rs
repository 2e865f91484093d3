//! Executes decisions: reads the live objects, decides again, and acts. Only this module calls the provisioner or
//! writes to the API server.

mod access;
mod bucket;
mod live;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use driver_rpc::Status;
use futures::future::BoxFuture;
use kube::Resource as _;
use kube::api::Patch;
use provisioner_runtime::controller::{Call, CallPermit, Context, JournalRecord};
use provisioner_runtime::limiter::Purpose;
use provisioner_runtime::{FencingToken, Flow};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::super::driver::Driver;
use super::cache::{CosiCache, Key};
use super::decide::{BucketView, Decision, Facts, decide};
use super::objects::{AccessFacts, Bucket, BucketAccess, BucketFacts, FINALIZER, Object, WatchedAccess, WatchedBucket};
use super::outcome::{Done, Outcome, Stopped};
use crate::controller::bucket::backend::BucketBackend;
use crate::controller::shared::calls::CallFailure;
use crate::controller::shared::requests::{self, without_finalizer};

/// The overall limit. Each call of the provisioner has its own limit within this one.
const CALL_LIMIT: Duration = Duration::from_secs(3600);

pub(super) type Step<'a> = provisioner_runtime::controller::Step<'a, CosiCache>;

pub(super) struct Actions {
    pub(super) context: Context<CosiCache>,
    pub(super) driver: Driver,
    pub(super) backend: Arc<dyn BucketBackend>,
    /// The last list of Buckets. Locked while a Bucket looks for its duplicate and leaves the bucket to it: of two
    /// Buckets that are deleted at the same time, the second must not see the first.
    pub(super) listed: Mutex<ListedBuckets>,
    /// The number of lists that have begun.
    pub(super) lists: AtomicU64,
}

/// Our Buckets, as the list with this number has shown them.
#[derive(Default)]
pub(super) struct ListedBuckets {
    number: u64,
    buckets: Vec<Arc<BucketFacts>>,
}

impl Actions {
    pub(super) async fn execute(&self, key: &Key, step: &Step<'_>) -> Outcome {
        let mut facts = self.read(key).await?;
        if decide(&facts) == Decision::Protect {
            self.check(&facts).await.map_err(Stopped::Failed)?;
            facts = self.protect(&facts).await?;
        }
        let mut listed = None;
        if decide(&facts) == Decision::Delete {
            let begun = self.lists.load(Ordering::Relaxed);
            let listed = listed.insert(self.listed.lock().await);
            facts = self.with_live_duplicate(&facts, listed, begun).await?;
        }
        match (decide(&facts), facts) {
            (Decision::NoAction, _) => Ok(Done::NoAction),
            (Decision::Refuse(refusal), _) => Err(Stopped::Refused(refusal)),
            (Decision::ClearError, facts) => {
                self.patch_status(&facts, json!({"error": Value::Null})).await.map(|()| Done::NoAction)
            }
            // Boxed, because a task is as large as its largest branch, and there are many such tasks.
            (Decision::Provision, Facts::Bucket(view)) => Box::pin(self.provision(&view.bucket, step)).await,
            (Decision::Delete, Facts::Bucket(view)) => {
                drop(listed);
                Box::pin(self.delete(&view.bucket, step)).await
            }
            (Decision::Release, Facts::Bucket(view)) => self.release(&view.bucket).await.map(|()| Done::Released),
            (Decision::Grant, Facts::Access(view)) => Box::pin(self.grant(&view.access, step)).await,
            (Decision::Revoke, Facts::Access(view)) => Box::pin(self.revoke(&view.access, step)).await,
            // The finalizer has been removed again.
            (_, _) => Err(Stopped::Changed),
        }
    }

    /// Checks the class of a new Bucket. Our finalizer means that a bucket may exist, so a Bucket with an unusable
    /// class does not receive the finalizer and can be deleted at any time.
    async fn check(&self, facts: &Facts) -> Result<(), Status> {
        let Facts::Bucket(BucketView { bucket, .. }) = facts else { return Ok(()) };
        match &bucket.content {
            Ok(content) if !bucket.object.is_ready() => {
                self.driver.check(bucket.wanted_id(content), content.parameters.clone()).await
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Adds our finalizer.
    async fn protect(&self, facts: &Facts) -> Result<Facts, Stopped> {
        let Some(object) = facts.object() else { return Err(Stopped::Changed) };
        let finalizers: Vec<&str> = object.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
        let patch = json!({"metadata": {
            "uid": &*object.uid, "resourceVersion": object.version, "finalizers": finalizers,
        }});
        match facts {
            Facts::Bucket(view) => {
                let bucket = self.patch_bucket(&view.bucket, None, patch).await?;
                Ok(bucket.map_or(Facts::None, |bucket| Facts::Bucket(BucketView { bucket, duplicate: None })))
            }
            Facts::Access(view) => {
                let access = self.patch_access(&view.access, None, patch).await?;
                let view = access.map(|access| super::decide::AccessView { access, ..view.clone() });
                Ok(view.map_or(Facts::None, Facts::Access))
            }
            Facts::None => Err(Stopped::Changed),
        }
    }

    /// Removes our finalizer.
    async fn release(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        let Object { uid, version, finalizers, .. } = &bucket.object;
        let patch = without_finalizer(uid, version, finalizers, FINALIZER);
        self.patch_bucket(bucket, None, patch).await.map(drop)
    }

    /// Sends a merge patch for a Bucket. Returns `None` if it now belongs to another driver.
    async fn patch_bucket(
        &self,
        bucket: &BucketFacts,
        subresource: Option<&str>,
        patch: Value,
    ) -> Result<Option<Arc<BucketFacts>>, Stopped> {
        let path = Bucket::url_path(&(), None);
        let answer = requests::patch(&self.context, path, &bucket.object.name, subresource, &Patch::Merge(patch)).await;
        let patched: WatchedBucket = answer.map_err(Stopped::write_failed("writing the Bucket"))?;
        Ok(super::objects::bucket(&patched, self.driver.name()).and_then(|seen| seen.ours))
    }

    /// Sends a merge patch for a BucketAccess. Returns `None` if it now belongs to another driver.
    async fn patch_access(
        &self,
        access: &AccessFacts,
        subresource: Option<&str>,
        patch: Value,
    ) -> Result<Option<Arc<AccessFacts>>, Stopped> {
        let Object { namespace, name, .. } = &access.object;
        let path = BucketAccess::url_path(&(), Some(namespace));
        let answer = requests::patch(&self.context, path, name, subresource, &Patch::Merge(patch)).await;
        let patched: WatchedAccess = answer.map_err(Stopped::write_failed("writing the BucketAccess"))?;
        Ok(super::objects::access(&patched, self.driver.name()).and_then(|seen| seen.ours))
    }

    /// Writes `status.error`, unless it already contains the message. An object that is ready stays ready.
    pub(super) async fn write_error(&self, key: &Key, message: &str) -> Result<(), Stopped> {
        let facts = self.read(key).await?;
        let Some(object) = facts.object().filter(|object| object.error.as_deref() != Some(message)) else {
            return Ok(());
        };
        let time = format!("{:.0}", self.context.environment().now());
        let status = json!({"readyToUse": object.is_ready(), "error": {"message": message, "time": time}});
        self.patch_status(&facts, status).await
    }

    async fn patch_status(&self, facts: &Facts, status: Value) -> Result<(), Stopped> {
        let Some(object) = facts.object() else { return Ok(()) };
        let patch = json!({"metadata": {"uid": &*object.uid, "resourceVersion": object.version}, "status": status});
        match facts {
            Facts::Bucket(view) => self.patch_bucket(&view.bucket, Some("status"), patch).await.map(drop),
            Facts::Access(view) => self.patch_access(&view.access, Some("status"), patch).await.map(drop),
            Facts::None => Ok(()),
        }
    }

    async fn call<'a, T>(
        &'a self,
        step: &Step<'_>,
        flow: Flow,
        run: impl FnOnce(FencingToken) -> BoxFuture<'a, Result<T, Status>>,
    ) -> Result<T, Stopped> {
        let Some(_permit) = step.enter(&flow) else { return Err(Stopped::AwaitsPermit(flow)) };
        let (token, _guard) = step.token();
        let (permit, record) = (CallPermit::Of(&flow), JournalRecord::Exists);
        let call = Call { permit, limit: CALL_LIMIT, token: &token, record };
        // During the wait for a permit, a user may change the policy to Retain, or create another Bucket for the bucket.
        let wanted = |cache: &mut CosiCache| match (step.key(), flow.purpose) {
            (Key::Bucket(name), Purpose::Remove) => {
                cache.bucket(name).is_none_or(|bucket| !bucket.is_retained() && !cache.has_duplicate(&bucket))
            }
            _ => true,
        };
        let answer = step.call(call, wanted, || run(token.clone())).await;
        let answer = CallFailure::of(answer, Stopped::Changed, Stopped::NotFenced);
        answer.map_err(|failure| failure.stop(Stopped::Failed, Stopped::Aborted))
    }
}
