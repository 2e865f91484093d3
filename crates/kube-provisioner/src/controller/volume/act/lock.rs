//! The lock of one claim or volume. It is an annotation with the record of client-go's first leader election. The first
//! provisioner library wrote the same annotation on claims, so its processes and ours exclude each other.
//!
//! <https://github.com/kubernetes-retired/external-storage/tree/v3.0.0/lib/leaderelection>

mod record;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use provisioner_runtime::call::CallError;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use self::record::LockRecord;
pub(crate) use self::record::Locks;
use super::Actions;
use super::objects::HeldState;
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Outcome;
use crate::protocol;

/// The object with the lock.
pub(super) enum LockedObject<'a> {
    /// The write that locks a claim also records the attempt on it, see [`NewRecord`].
    Claim {
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
        new_record: Option<NewRecord>,
    },
    Volume {
        name: &'a str,
        uid: &'a str,
    },
}

impl LockedObject<'_> {
    /// What an error was about.
    fn locking(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "locking the claim",
            Self::Volume { .. } => "locking the volume",
        }
    }
}

/// What a claim needs to record an attempt: our finalizer, which keeps the claim, and the attempt's mark.
pub(super) struct NewRecord {
    pub(super) finalizers: Vec<String>,
    pub(super) mark: String,
}

/// A lock that is held.
pub(super) struct Lock<'a> {
    object: LockedObject<'a>,
    /// The object's resource version after the last write of the lock.
    pub(super) version: String,
    /// The object's finalizers, with ours on a claim.
    finalizers: Vec<String>,
    record: LockRecord,
    /// The text of the last written record, for the release of the claim.
    text: Arc<Mutex<String>>,
    valid_until: Arc<Mutex<Instant>>,
}

impl Lock<'_> {
    /// Returns a function that says whether the lock is certainly still ours.
    pub(super) fn validity(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let valid_until = self.deadline();
        move || Instant::now() < valid_until()
    }

    /// Returns a function that says until when the lock is certainly ours, also after it is no longer renewed.
    pub(super) fn deadline(&self) -> impl Fn() -> Instant + Send + Sync + use<> {
        let valid_until = self.valid_until.clone();
        move || *valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that gives the object's last known state, also after the lock was given up.
    pub(super) fn held_state(&self) -> impl Fn() -> HeldState<'static> + use<> {
        let (finalizers, text) = (self.finalizers.clone(), self.text.clone());
        move || HeldState {
            finalizers: finalizers.clone().into(),
            lock: Some(text.lock().unwrap_or_else(PoisonError::into_inner).clone().into()),
        }
    }

    /// Until then the lock is certainly ours.
    fn valid_until(&self) -> Instant {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, until: Instant) {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Actions {
    /// Whether this is a record of this process.
    pub(super) fn is_own_lock(&self, record: Option<&str>) -> bool {
        let record: Option<LockRecord> = record.and_then(|record| serde_json::from_str(record).ok());
        record.zip(self.locks.as_ref()).is_some_and(|(record, locks)| record.holder_identity == locks.identity)
    }

    /// Takes the lock, where there are locks. `version` and `record` are the last known ones of the object.
    pub(super) async fn lock<'a>(
        &self,
        key: &Key,
        object: LockedObject<'a>,
        version: &str,
        record: Option<&str>,
    ) -> Result<Option<Lock<'a>>, Outcome> {
        let Some(locks) = &self.locks else { return Ok(None) };
        let record = locks.next(&locks.free(key, record)?);
        let started = Instant::now();
        match self.write_lock(&object, version, &record).await {
            Ok(ObjectMeta { resource_version, finalizers, .. }) => {
                let valid_until = Arc::new(Mutex::new(started + locks.renew_deadline));
                let (version, finalizers) = (resource_version.unwrap_or_default(), finalizers.unwrap_or_default());
                let text = Arc::new(Mutex::new(record.to_text()));
                Ok(Some(Lock { object, version, finalizers, record, text, valid_until }))
            }
            // Another process was faster, or our cache is old. The watch will show it.
            Err(CallError::Conflict | CallError::NotFound) => {
                Err(Outcome::Locked { by: "somebody who was faster".to_owned(), look_again: locks.retry_period })
            }
            Err(error) => Err(Outcome::CallFailed { doing: object.locking(), error }),
        }
    }

    /// Runs the work while it renews the lock. `None` if the lock was lost meanwhile.
    pub(super) async fn while_locked<T>(&self, lock: Option<Lock<'_>>, work: impl Future<Output = T>) -> Option<T> {
        let (Some(mut lock), Some(locks)) = (lock, &self.locks) else { return Some(work.await) };
        lock.object.is_recorded();
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
                let written = timeout_at(deadline, self.write_lock(&lock.object, &lock.version, &record)).await;
                match written {
                    Err(_) => return,
                    Ok(Ok(meta)) => {
                        *lock.text.lock().unwrap_or_else(PoisonError::into_inner) = record.to_text();
                        (lock.version, lock.record) = (meta.resource_version.unwrap_or_default(), record);
                        lock.extend(started + locks.renew_deadline);
                        break;
                    }
                    Ok(Err(CallError::NotFound)) => return,
                    // Another field has changed, or the answer to a renewal was lost.
                    Ok(Err(CallError::Conflict)) => match timeout_at(deadline, self.look_at_lock(&lock.object)).await {
                        Ok(Ok((version, holder))) if holder == locks.identity => lock.version = version,
                        Ok(Ok(_)) | Err(_) => return,
                        Ok(Err(_)) => sleep(locks.retry_period / 4).await,
                    },
                    Ok(Err(_)) => sleep(locks.retry_period / 4).await,
                }
                if Instant::now() >= deadline {
                    return;
                }
            }
        }
    }

    /// Writes the record, with the known version as the precondition. Returns the object's new metadata.
    async fn write_lock(
        &self,
        object: &LockedObject<'_>,
        version: &str,
        record: &LockRecord,
    ) -> Result<ObjectMeta, CallError> {
        let mut metadata = json!({
            "uid": object.uid(), "resourceVersion": version, "annotations": {protocol::CLAIM_LOCK: record.to_text()},
        });
        if let LockedObject::Claim { new_record: Some(NewRecord { finalizers, mark }), .. } = object {
            metadata["finalizers"] = json!(finalizers);
            metadata["annotations"][protocol::ATTEMPT] = json!(mark);
        }
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let parameters = PatchParams::default();
        // Renewals do not wait for the limit of requests.
        match object {
            LockedObject::Claim { namespace, name, .. } => {
                let api = Api::<PersistentVolumeClaim>::namespaced(self.client().clone(), namespace);
                Ok(self.context.urgent_request(api.patch_metadata(name, &parameters, &patch)).await?.metadata)
            }
            LockedObject::Volume { name, .. } => {
                let api = Api::<PersistentVolume>::all(self.client().clone());
                Ok(self.context.urgent_request(api.patch_metadata(name, &parameters, &patch)).await?.metadata)
            }
        }
    }

    /// The object's version and who holds its lock.
    async fn look_at_lock(&self, object: &LockedObject<'_>) -> Result<(String, String), CallError> {
        match object {
            LockedObject::Claim { namespace, name, .. } => {
                self.holder(&Api::<PersistentVolumeClaim>::namespaced(self.client().clone(), namespace), name).await
            }
            LockedObject::Volume { name, .. } => {
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
        let record = serde_json::from_str(&text).unwrap_or_else(|_| LockRecord::nobody());
        Ok((meta.resource_version.unwrap_or_default(), record.holder_identity))
    }
}

impl LockedObject<'_> {
    /// Renewals do not write the attempt's record again.
    fn is_recorded(&mut self) {
        if let Self::Claim { new_record, .. } = self {
            *new_record = None;
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Claim { uid, .. } | Self::Volume { uid, .. } => uid,
        }
    }
}
