//! Calls the provisioner's `expand` for a claim that requests a larger size, and writes the new size. Before the call,
//! the claim's status shows the expansion; after the call, the volume is updated first and then the claim.
//!
//! The claim and the volume contain everything needed to continue after a crash, and `expand` is idempotent, so there
//! is no additional record.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Resource;
use kube::api::Patch;
use provisioner_runtime::Cache;
use provisioner_runtime::call::{CallError, invalid_request};
use provisioner_runtime::controller::{Call, CallPermit, JournalRecord};
use provisioner_runtime::limiter::Purpose;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::objects::expect_in_watch;
use super::{Actions, CallFailure, Step, answered};
use crate::controller::shared::requests;
use crate::controller::volume::cache::VolumeCache;
use crate::controller::volume::decide::decide;
use crate::controller::volume::decision::Decision;
use crate::controller::volume::events::about_claim;
use crate::controller::volume::facts::{Facts, GrowingClaim, ResizeStatus, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};
use crate::controller::volume::partial::{WatchedClaim, WatchedVolume};
use crate::controller::volume::report::begins_resizing;
use crate::controller::volume::safeguards::Safeguard;
use crate::error::{ExpandError, ExpandVerdict};

/// The condition of a claim that is being expanded.
const RESIZING: &str = "Resizing";
/// The condition of a claim that cannot be expanded.
const RESIZE_ERROR: &str = "ControllerResizeError";

impl Actions {
    pub(super) async fn expand(&self, bytes: u64, facts: &Facts, step: &Step<'_>) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        let flow = volume.facts.flow(Purpose::Create);
        let Some(_permit) = step.enter(&flow) else { return Err(Stopped::AwaitsPermit(flow)) };
        let (key, started) = (step.key(), Instant::now());
        let permit = step.call_permit(&flow).await;
        let (token, _guard) = step.token();
        let decision = Decision::Expand { bytes };
        let expanding = async {
            let live = self.confirm_decision(decision.clone(), volume, key).await?;
            self.mark_resizing(bytes, key).await?;
            if !self.rules.safeguards.include(Safeguard::ExpandFirst) {
                self.write_capacity(&live, bytes, key).await?;
            }
            let secrets = self.secrets_of(&live).await?;
            let argument = self.argument(live.clone(), secrets, &token);
            let limit = self.limits.delete;
            let call = Call { permit: CallPermit::Held(&permit), limit, token: &token, record: JournalRecord::Exists };
            let wanted = |cache: &mut VolumeCache| decide(&cache.facts(key), &self.rules) == decision;
            let answer = answered(step.call(call, wanted, || self.backend.expand(argument, bytes)).await);
            answer.map(|()| live)
        };
        let answer: Result<_, CallFailure<ExpandError>> = expanding.await;
        // The call's permit ends here. Writing the size belongs to the attempt, not to the call.
        drop(permit);
        match answer {
            Ok(live) => self.write_size(&live, bytes, key).await?,
            Err(CallFailure::Returned(error)) => return self.not_expanded(&error, bytes, key).await,
            Err(CallFailure::Aborted(aborted)) => return Err(Stopped::ExpandAborted { aborted }),
            Err(CallFailure::Stopped(stopped)) => return Err(stopped),
        }
        Ok(Done::Expanded { took: started.elapsed() })
    }

    /// Returns the current state of the claim to expand.
    fn growing(&self, key: &Key) -> Result<Arc<GrowingClaim>, Stopped> {
        self.cache().facts(key).growing().cloned().ok_or(Stopped::Changed)
    }

    /// Marks the start of the expansion in the claim's status. An expansion that has begun is completed even if the
    /// user then lowers the request, because its progress is unknown.
    async fn mark_resizing(&self, bytes: u64, key: &Key) -> Result<(), Stopped> {
        let growing = self.growing(key)?;
        if growing.status_of(bytes).is_some() {
            return Ok(());
        }
        let status = json!({
            "allocatedResources": {"storage": growing.text(bytes)},
            "allocatedResourceStatuses": {"storage": ResizeStatus::InProgress.as_str()},
            "conditions": [self.condition(RESIZING, ""), without(RESIZE_ERROR)],
        });
        self.write_status(&growing, status).await?;
        let begins = begins_resizing(&self.rules.names.own, &key.to_string());
        self.runtime.events().record(about_claim(begins, &growing.claim));
        Ok(())
    }

    /// Writes the asset's new size: first to the volume, since the claim's status marks the completion.
    async fn write_size(&self, live: &PersistentVolume, bytes: u64, key: &Key) -> Result<(), Stopped> {
        self.write_capacity(live, bytes, key).await?;
        let growing = self.growing(key)?;
        // Another writer has changed the status in between.
        if growing.status_of(bytes).is_none() {
            return Err(Stopped::Changed);
        }
        let status = json!({
            "capacity": {"storage": growing.text(bytes)},
            "allocatedResourceStatuses": {"storage": null},
            "conditions": [without(RESIZING), without(RESIZE_ERROR)],
        });
        self.write_status(&growing, status).await
    }

    /// Returns the outcome of an error. After an infeasible expansion the user may lower the request, and the status
    /// says so.
    async fn not_expanded(&self, error: &ExpandError, bytes: u64, key: &Key) -> Outcome {
        let (verdict, message) = (error.verdict(), error.event_text(key));
        if verdict == ExpandVerdict::Infeasible {
            let growing = self.growing(key)?;
            if growing.status_of(bytes) == Some(ResizeStatus::InProgress) {
                let status = json!({
                    "allocatedResourceStatuses": {"storage": ResizeStatus::Infeasible.as_str()},
                    "conditions": [self.condition(RESIZE_ERROR, &message)],
                });
                self.write_status(&growing, status).await?;
            }
            // The user already requests another size.
            if self.decision_now(key) != (Decision::Expand { bytes }) {
                return Err(Stopped::Changed);
            }
        }
        Err(Stopped::NotExpanded { verdict, message, retry_after: error.retry_after() })
    }

    /// Writes the volume's capacity, if it is unchanged, so that a process that was suspended cannot shrink it.
    async fn write_capacity(&self, live: &PersistentVolume, bytes: u64, key: &Key) -> Result<(), Stopped> {
        let growing = self.growing(key)?;
        let capacity = live.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
        let Some(capacity) = capacity else { return Err(Stopped::Changed) };
        if crate::quantity::parse_bytes(&capacity.0).is_ok_and(|known| known >= bytes) {
            return Ok(());
        }
        const PATH: &str = "/spec/capacity/storage";
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": live.metadata.uid},
            {"op": "test", "path": PATH, "value": capacity.0},
            {"op": "replace", "path": PATH, "value": growing.text(bytes)},
        ]);
        let failed = |error| Stopped::by_write("writing the volume's new size", error);
        let operations = serde_json::from_value(operations).map_err(|error| failed(invalid_request(error)))?;
        let (path, name, patch) =
            (PersistentVolume::url_path(&(), None), key.to_string(), Patch::<Value>::Json(operations));
        let answer = requests::patch(&self.runtime, path, &name, None, &patch);
        match expect_in_watch(&self.volumes, answer, WatchedVolume::version).await {
            Ok(volume) => {
                self.cache().observe_volume(volume);
                Ok(())
            }
            Err(CallError::NotFound) => Err(Stopped::WatchBehind),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes fields of the claim's status, if the claim is unchanged since it was read.
    async fn write_status(&self, growing: &GrowingClaim, status: Value) -> Result<(), Stopped> {
        let GrowingClaim { claim, resource_version, .. } = growing;
        let metadata = json!({"uid": &*claim.uid, "resourceVersion": resource_version});
        let patch = Patch::Strategic(json!({"metadata": metadata, "status": status}));
        let path = PersistentVolumeClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::patch(&self.runtime, path, &claim.name, Some("status"), &patch);
        match expect_in_watch(&self.claims, answer, WatchedClaim::version).await {
            Ok(claim) => {
                self.cache().observe_claim(claim);
                Ok(())
            }
            Err(CallError::Conflict | CallError::NotFound) => Err(Stopped::WatchBehind),
            Err(error) => Err(Stopped::CallFailed { doing: "writing the claim's status", error }),
        }
    }

    fn condition(&self, kind: &str, message: &str) -> Value {
        let now = self.runtime.environment().now();
        json!({"type": kind, "status": "True", "message": message, "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()})
    }
}

/// Returns the patch that removes the condition of this type.
fn without(kind: &str) -> Value {
    json!({"$patch": "delete", "type": kind})
}
