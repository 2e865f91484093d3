//! The lock of one claim or volume: an annotation with the record of client-go's first leader election, as the first
//! provisioner library wrote it on claims, so that its processes and ours keep out of each other's way.
//!
//! <https://github.com/kubernetes-retired/external-storage/tree/v3.0.0/lib/leaderelection>

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Unit;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use provisioner_runtime::Cache;
use provisioner_runtime::call::CallError;
use provisioner_runtime::environment::Environment;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::Actor;
use super::objects::Held;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, Facts, Pending, Progress};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Outcome;
use crate::protocol;

/// How locks are kept by this process.
pub(crate) struct Locks {
    pub(crate) identity: String,
    pub(crate) duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) environment: Environment,
    seen: Mutex<HashMap<Key, Seen>>,
}

/// A record of somebody else, and since when it is as it is: their clock is not believed.
#[derive(Clone)]
struct Seen {
    record: Box<str>,
    since: Instant,
}

/// What the annotation holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default)]
    holder_identity: String,
    #[serde(default)]
    lease_duration_seconds: u64,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    renew_time: Option<String>,
    #[serde(default)]
    leader_transitions: u64,
}

/// The object that carries a lock.
pub(super) enum Carrier<'a> {
    /// A claim records by the same write that an attempt begins, see [`Hold`].
    Claim {
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
        hold: Option<Hold>,
    },
    Volume {
        name: &'a str,
        uid: &'a str,
    },
}

/// What makes a claim the record of an attempt: it cannot go while it has our finalizer.
pub(super) struct Hold {
    finalizers: Vec<String>,
    mark: String,
}

/// A lock that is held.
pub(super) struct Lock<'a> {
    carrier: Carrier<'a>,
    /// The object's, which the lock has changed.
    pub(super) version: String,
    /// The object's, ours on a claim among them.
    finalizers: Vec<String>,
    record: Record,
    /// The record as it was written last, for whoever ends it.
    text: Arc<Mutex<String>>,
    valid_until: Arc<Mutex<Instant>>,
}

impl Lock<'_> {
    /// Says whether nobody else can have taken it.
    pub(super) fn validity(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let valid_until = self.valid_until.clone();
        move || Instant::now() < *valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what the carrier was last seen to hold, also when the lock is given up.
    pub(super) fn held(&self) -> impl Fn() -> Held<'static> + use<> {
        let (finalizers, text) = (self.finalizers.clone(), self.text.clone());
        move || Held {
            finalizers: finalizers.clone().into(),
            lock: Some(text.lock().unwrap_or_else(PoisonError::into_inner).clone().into()),
        }
    }

    /// Until then nobody else can have taken it.
    fn valid_until(&self) -> Instant {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, until: Instant) {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Locks {
    pub(crate) fn new(options: &crate::Options, identity: &str, environment: Environment) -> Self {
        Self {
            identity: identity.to_owned(),
            duration: options.lease_duration,
            renew_deadline: options.lease_renew_deadline,
            retry_period: options.lease_retry_period,
            environment,
            seen: Mutex::default(),
        }
    }

    /// How long somebody else's lock may still hold.
    fn held_for(&self, key: &Key, text: &str, record: &Record) -> Option<Duration> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if record.holder_identity.is_empty() || record.holder_identity == self.identity {
            seen.remove(key);
            return None;
        }
        let now = Instant::now();
        // Nobody asks any more about what was locked for an hour.
        seen.retain(|_, seen| now.duration_since(seen.since) < Duration::from_secs(3600));
        let seen = seen
            .entry(key.clone())
            .and_modify(|seen| {
                if *seen.record != *text {
                    *seen = Seen { record: text.into(), since: now };
                }
            })
            .or_insert_with(|| Seen { record: text.into(), since: now });
        let ends = seen.since + self.duration;
        (ends > now).then(|| ends - now)
    }

    /// The record of a lock that nobody else holds.
    fn free(&self, key: &Key, record: Option<&str>) -> Result<Record, Outcome> {
        let text = record.unwrap_or_default();
        // What cannot be read has no holder.
        let record = serde_json::from_str(text).unwrap_or_else(|_| Record::nobody());
        match self.held_for(key, text, &record) {
            Some(rest) => Err(Outcome::Locked { by: record.holder_identity, look_again: rest.min(self.retry_period) }),
            None => Ok(record),
        }
    }

    /// The record that makes the lock ours, or renews it.
    fn next(&self, before: &Record) -> Record {
        let now = self.environment.now();
        // To the second, as Go's records are.
        let now = now.round(Unit::Second).unwrap_or(now).to_string();
        let mine = before.holder_identity == self.identity;
        Record {
            holder_identity: self.identity.clone(),
            lease_duration_seconds: self.duration.as_secs().max(1),
            acquire_time: before.acquire_time.clone().filter(|_| mine).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            leader_transitions: before.leader_transitions + u64::from(!mine && !before.holder_identity.is_empty()),
        }
    }
}

impl Actor {
    /// Takes the lock of the attempt's claim, which records it from then on. `None` where there are no locks, and where the
    /// claim has its volume. An attempt whose claim is gone has ended: somebody has taken our finalizer off it.
    pub(super) async fn hold_claim<'a>(
        &self,
        facts: &Facts,
        pending: &'a Arc<Pending>,
        key: &Key,
    ) -> Result<Option<Lock<'a>>, Outcome> {
        let claim = match &facts.claim {
            ClaimState::Waiting(claim) => claim,
            // Its record went with the claim, so somebody else has ended the attempt.
            ClaimState::Absent if self.locks.is_some() => {
                self.cache().drop_attempt(key);
                return Err(Outcome::Changed);
            }
            _ => return Ok(None),
        };
        let ClaimFacts { namespace, name, uid, .. } = &pending.claim.facts;
        let hold = claim.held.is_none().then(|| Hold {
            finalizers: claim
                .finalizers
                .iter()
                .map(String::as_str)
                .chain([protocol::CLAIM_FINALIZER])
                .map(Into::into)
                .collect(),
            mark: pending.class.mark(),
        });
        let was_held = hold.is_none();
        let carrier = Carrier::Claim { namespace, name, uid, hold };
        let lock = self.lock(key, carrier, &claim.resource_version, claim.lock.as_deref()).await?;
        // Whoever has had the claim before may have left something: only an answer of the author's code ends that.
        if was_held {
            self.cache().set_progress(key, Progress::Background(pending.clone()));
        }
        Ok(lock)
    }

    /// Ends what the claim records once nothing of the attempt is left to be done. Where that fails it is done by the next
    /// look at the key.
    pub(super) async fn release_if_over(&self, key: &Key, claim: &ClaimFacts, held: Held<'_>) {
        if self.cache().unfinished(key) {
            return;
        }
        if let Err(error) = self.release_claim(claim, held).await {
            tracing::debug!(pv = %key, "our finalizer is not off the claim yet: {error}");
        }
    }

    /// As [`Self::release_if_over`], by what is known of the claim.
    pub(super) async fn release_if_over_now(&self, facts: &Facts, key: &Key) {
        if let ClaimState::Waiting(claim) = &facts.claim
            && claim.held.is_some()
        {
            self.release_if_over(key, &claim.facts, seen(&claim.finalizers, claim.lock.as_deref())).await;
        }
    }

    /// Whether this is a record of this process.
    pub(super) fn is_own_lock(&self, record: Option<&str>) -> bool {
        let record: Option<Record> = record.and_then(|record| serde_json::from_str(record).ok());
        record.zip(self.locks.as_ref()).is_some_and(|(record, locks)| record.holder_identity == locks.identity)
    }

    /// Takes our finalizer off a claim whose attempt has ended. Whoever has the claim's lock may be at work for it, and does
    /// that itself.
    pub(super) async fn release_claim_of(&self, facts: &Facts, key: &Key) -> Outcome {
        let (claim, finalizers, lock) = match &facts.claim {
            ClaimState::Waiting(claim) => (&claim.facts, &claim.finalizers, claim.lock.as_deref()),
            ClaimState::Settled { held: Some(held), .. } => (&held.claim, &held.finalizers, held.lock.as_deref()),
            _ => return Outcome::Changed,
        };
        if let Some(locks) = &self.locks
            && let Err(locked) = locks.free(key, lock)
        {
            return locked;
        }
        match self.release_claim(claim, seen(finalizers, lock)).await {
            Ok(()) => Outcome::ClaimReleased,
            Err(error) => Outcome::CallFailed { doing: "taking our finalizer off the claim", error },
        }
    }

    /// Takes the lock, where there are locks. `version` and `record` are what was last seen of the carrier and its lock.
    pub(super) async fn lock<'a>(
        &self,
        key: &Key,
        carrier: Carrier<'a>,
        version: &str,
        record: Option<&str>,
    ) -> Result<Option<Lock<'a>>, Outcome> {
        let Some(locks) = &self.locks else { return Ok(None) };
        let record = locks.next(&locks.free(key, record)?);
        let started = Instant::now();
        match self.write_lock(&carrier, version, &record).await {
            Ok(ObjectMeta { resource_version, finalizers, .. }) => {
                let valid_until = Arc::new(Mutex::new(started + locks.renew_deadline));
                let (version, finalizers) = (resource_version.unwrap_or_default(), finalizers.unwrap_or_default());
                let text = Arc::new(Mutex::new(record.to_text()));
                Ok(Some(Lock { carrier, version, finalizers, record, text, valid_until }))
            }
            // Somebody was faster, or what is known is old: the watch tells.
            Err(CallError::Conflict | CallError::NotFound) => {
                Err(Outcome::Locked { by: "somebody who was faster".to_owned(), look_again: locks.retry_period })
            }
            Err(error) => Err(Outcome::CallFailed { doing: "locking the claim", error }),
        }
    }

    /// Does the work while the lock is renewed. `None` when it was lost meanwhile.
    pub(super) async fn while_locked<T>(&self, lock: Option<Lock<'_>>, work: impl Future<Output = T>) -> Option<T> {
        let (Some(mut lock), Some(locks)) = (lock, &self.locks) else { return Some(work.await) };
        lock.carrier.is_held();
        let mut work = pin!(work);
        tokio::select! {
            biased;
            () = self.keep(lock, locks) => None,
            done = &mut work => Some(done),
        }
    }

    /// Renews a lock until it is lost.
    async fn keep(&self, mut lock: Lock<'_>, locks: &Locks) {
        loop {
            sleep(locks.retry_period).await;
            let deadline = lock.valid_until();
            loop {
                let started = Instant::now();
                let record = locks.next(&lock.record);
                let written = timeout_at(deadline, self.write_lock(&lock.carrier, &lock.version, &record)).await;
                match written {
                    Err(_) => return,
                    Ok(Ok(meta)) => {
                        *lock.text.lock().unwrap_or_else(PoisonError::into_inner) = record.to_text();
                        (lock.version, lock.record) = (meta.resource_version.unwrap_or_default(), record);
                        lock.extend(started + locks.renew_deadline);
                        break;
                    }
                    Ok(Err(CallError::NotFound)) => return,
                    // A change that is not about the lock, or a renewal whose answer was lost.
                    Ok(Err(CallError::Conflict)) => {
                        match timeout_at(deadline, self.look_at_lock(&lock.carrier)).await {
                            Ok(Ok((version, holder))) if holder == locks.identity => lock.version = version,
                            Ok(Ok(_)) | Err(_) => return,
                            Ok(Err(_)) => sleep(locks.retry_period / 4).await,
                        }
                    }
                    Ok(Err(_)) => sleep(locks.retry_period / 4).await,
                }
                if Instant::now() >= deadline {
                    return;
                }
            }
        }
    }

    /// Writes the record on the version of the object that is known; returns the object's metadata then.
    async fn write_lock(&self, carrier: &Carrier<'_>, version: &str, record: &Record) -> Result<ObjectMeta, CallError> {
        let mut metadata = json!({
            "uid": carrier.uid(), "resourceVersion": version, "annotations": {protocol::CLAIM_LOCK: record.to_text()},
        });
        if let Carrier::Claim { hold: Some(Hold { finalizers, mark }), .. } = carrier {
            metadata["finalizers"] = json!(finalizers);
            metadata["annotations"][protocol::ATTEMPT] = json!(mark);
        }
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let parameters = PatchParams::default();
        // Renewals wait for nobody.
        match carrier {
            Carrier::Claim { namespace, name, .. } => {
                let api = Api::<PersistentVolumeClaim>::namespaced(self.client().clone(), namespace);
                Ok(self.context.urgent_request(api.patch_metadata(name, &parameters, &patch)).await?.metadata)
            }
            Carrier::Volume { name, .. } => {
                let api = Api::<PersistentVolume>::all(self.client().clone());
                Ok(self.context.urgent_request(api.patch_metadata(name, &parameters, &patch)).await?.metadata)
            }
        }
    }

    /// The object's version and who holds its lock.
    async fn look_at_lock(&self, carrier: &Carrier<'_>) -> Result<(String, String), CallError> {
        match carrier {
            Carrier::Claim { namespace, name, .. } => {
                self.holder(&Api::<PersistentVolumeClaim>::namespaced(self.client().clone(), namespace), name).await
            }
            Carrier::Volume { name, .. } => {
                self.holder(&Api::<PersistentVolume>::all(self.client().clone()), name).await
            }
        }
    }

    async fn holder<K>(&self, api: &Api<K>, name: &str) -> Result<(String, String), CallError>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
        PartialObjectMeta<K>: DeserializeOwned,
    {
        let meta = self.context.urgent_request(api.get_metadata(name)).await?.metadata;
        let text = meta.annotations.and_then(|mut all| all.remove(protocol::CLAIM_LOCK)).unwrap_or_default();
        let record = serde_json::from_str(&text).unwrap_or_else(|_| Record::nobody());
        Ok((meta.resource_version.unwrap_or_default(), record.holder_identity))
    }
}

impl Carrier<'_> {
    /// What was written once need not be written with every renewal.
    fn is_held(&mut self) {
        if let Self::Claim { hold, .. } = self {
            *hold = None;
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Claim { uid, .. } | Self::Volume { uid, .. } => uid,
        }
    }
}

/// What is known of a claim that is held.
fn seen<'a>(finalizers: &'a [String], lock: Option<&'a str>) -> Held<'a> {
    Held { finalizers: finalizers.into(), lock: lock.map(Into::into) }
}

impl Record {
    fn to_text(&self) -> String {
        // Texts and numbers can be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn nobody() -> Self {
        Self {
            holder_identity: String::new(),
            lease_duration_seconds: 0,
            acquire_time: None,
            renew_time: None,
            leader_transitions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn locks() -> Locks {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Locks::new(&crate::Options::new("example.com/p"), "me", Environment::simulated(1, epoch))
    }

    const THEIRS: &str = r#"{"holderIdentity":"they","leaseDurationSeconds":15,"acquireTime":"2020-01-01T00:00:00Z","renewTime":"2020-01-01T00:00:00Z","leaderTransitions":3}"#;

    #[tokio::test(start_paused = true)]
    async fn the_record_is_that_of_the_first_library() {
        let first = locks().next(&Record::nobody());
        let text = r#"{"holderIdentity":"me","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00Z","renewTime":"2026-01-01T00:00:00Z","leaderTransitions":0}"#;
        assert_eq!(serde_json::to_string(&first).unwrap(), text);
        let taken = locks().next(&serde_json::from_str(THEIRS).unwrap());
        assert_eq!((taken.leader_transitions, &*taken.holder_identity), (4, "me"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_runs_out_when_it_was_not_seen_to_change_for_its_duration() {
        let (locks, key) = (locks(), Key::of_claim("u"));
        let record: Record = serde_json::from_str(THEIRS).unwrap();
        assert_eq!(locks.held_for(&key, THEIRS, &record), Some(Duration::from_secs(15)));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(locks.held_for(&key, THEIRS, &record), Some(Duration::from_secs(5)));
        let renewed = THEIRS.replace("renewTime\":\"2020", "renewTime\":\"2021");
        assert_eq!(locks.held_for(&key, &renewed, &record), Some(Duration::from_secs(15)));
        sleep(Duration::from_secs(15)).await;
        assert_eq!(locks.held_for(&key, &renewed, &record), None);
    }
}
