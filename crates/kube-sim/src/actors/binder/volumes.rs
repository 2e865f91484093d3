//! `syncVolume`: sets a volume's phase, and reclaims a volume whose claim no longer exists.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Binder, Key, SyncResult};
use crate::actors::api::{Api, ObservedObject};
use crate::actors::recorder::EventType;
use crate::actors::storage::{self, BOUND_BY_CONTROLLER, PROVISIONED_BY, claim_ref, phase, volume_mode, volume_name};
use crate::actors::worker::WorkQueue;
use crate::object::{self, annotation};
use crate::request::{DeleteOptions, Subresource};
use crate::status::Status;

/// The finalizer of volumes that this controller deletes itself.
const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

impl Binder {
    pub(super) async fn sync_volume(
        &mut self,
        name: &str,
        api: &mut Api,
        queue: &mut WorkQueue<Key>,
    ) -> Result<SyncResult, Status> {
        let Some(volume) = self.volumes.get(name).map(|stored| ObservedObject::from(Arc::clone(stored))) else {
            return Ok(SyncResult::Done);
        };
        let volume = self.correct_finalizers(volume, api).await?;
        let reference = claim_ref(&volume.value).filter(|reference| !reference.uid.is_empty());
        let Some(reference) = reference else {
            self.set_volume_phase(volume, "Available", "", api).await?;
            return Ok(SyncResult::Done);
        };
        let claim = self.claim_of(&volume, api).await;
        let Some(claim) = claim else {
            let volume = self.release(volume, api).await?;
            return self.reclaim(volume, api).await;
        };
        match volume_name(&claim.value) {
            "" if volume_mode(&claim.value) != volume_mode(&volume.value) => {
                report_volume_mode_mismatch(&volume.value, &claim.value, api);
                Ok(SyncResult::Pending)
            }
            "" => {
                queue.add(Key::Claim(reference.key()));
                Ok(SyncResult::Pending)
            }
            bound if bound == name => {
                self.set_volume_phase(volume, "Bound", "", api).await?;
                Ok(SyncResult::Done)
            }
            // The claim is bound to another volume.
            _ => {
                let policy = reclaim_policy(&volume.value);
                if annotation(&volume.value, PROVISIONED_BY).is_some() && policy == "Delete" {
                    let volume = self.release(volume, api).await?;
                    return self.reclaim(volume, api).await;
                }
                self.unbind(volume, api).await?;
                Ok(SyncResult::Done)
            }
        }
    }

    /// Returns the claim that a volume refers to, if it has the same UID. A live read confirms that the claim is
    /// missing before the volume is released.
    async fn claim_of(&mut self, volume: &ObservedObject, api: &mut Api) -> Option<ObservedObject> {
        let reference = claim_ref(&volume.value)?;
        let known = self.claims.get(&reference.key()).map(|stored| ObservedObject::from(Arc::clone(stored)));
        let is_it = |claim: &ObservedObject| object::uid(&claim.value) == reference.uid;
        let given_up = matches!(phase(&volume.value), "Released" | "Failed");
        match known {
            Some(claim) if is_it(&claim) => Some(claim),
            None if given_up => None,
            _ => api.get(storage::claims(), reference.namespace, reference.name).await.filter(is_it),
        }
    }

    /// `updateVolumePhase`.
    pub(super) async fn set_volume_phase(
        &mut self,
        volume: ObservedObject,
        wanted: &str,
        message: &str,
        api: &mut Api,
    ) -> Result<ObservedObject, Status> {
        if phase(&volume.value) == wanted {
            return Ok(volume);
        }
        let change = |volume: &mut Value| {
            let status = object::object_mut(volume, "status");
            status.insert("phase".to_owned(), wanted.into());
            match message {
                "" => drop(status.remove("message")),
                _ => drop(status.insert("message".to_owned(), message.into())),
            }
        };
        self.update_volume(&volume, Some(Subresource::Status), change, api).await
    }

    async fn release(&mut self, volume: ObservedObject, api: &mut Api) -> Result<ObservedObject, Status> {
        match phase(&volume.value) {
            "Released" | "Failed" => Ok(volume),
            _ => self.set_volume_phase(volume, "Released", "", api).await,
        }
    }

    /// `reclaimVolume`. External provisioners delete their volumes themselves.
    async fn reclaim(&mut self, volume: ObservedObject, api: &mut Api) -> Result<SyncResult, Status> {
        let (reason, message) = match reclaim_policy(&volume.value) {
            "Delete" => match deleter(&volume.value) {
                Ok(Deleter::External) => return Ok(SyncResult::Done),
                Ok(Deleter::HostPath) => {
                    api.delete(storage::volumes(), &volume.stored, DeleteOptions::default()).await?;
                    return Ok(SyncResult::Done);
                }
                Err(why) => ("VolumeFailedDelete", why),
            },
            "Recycle" if recycler_exists(&volume.value) => return Ok(SyncResult::Done),
            "Recycle" => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
            _ => return Ok(SyncResult::Done),
        };
        if phase(&volume.value) != "Failed" {
            let volume = self.set_volume_phase(volume, "Failed", &message, api).await?;
            api.event(&volume.value, EventType::Warning, reason, &message);
        }
        Ok(SyncResult::Done)
    }

    /// `unbindVolume`: reverts the controller's own writes.
    async fn unbind(&mut self, volume: ObservedObject, api: &mut Api) -> Result<(), Status> {
        let change = |volume: &mut Value| {
            let own = annotation(volume, BOUND_BY_CONTROLLER).is_some();
            if own {
                object::object_mut(volume, "spec").remove("claimRef");
                object::remove_annotation(volume, BOUND_BY_CONTROLLER);
            } else {
                object::object_mut(&mut volume["spec"], "claimRef").remove("uid");
            }
        };
        let volume = self.update_volume(&volume, None, change, api).await?;
        self.set_volume_phase(volume, "Available", "", api).await?;
        Ok(())
    }

    /// `modifyDeletionFinalizers`: only volumes of in-tree provisioners have the controller's finalizer.
    async fn correct_finalizers(&mut self, volume: ObservedObject, api: &mut Api) -> Result<ObservedObject, Status> {
        if !annotation(&volume.value, PROVISIONED_BY).is_some_and(|name| name.starts_with("kubernetes.io/")) {
            return Ok(volume);
        }
        let now: Vec<String> = object::finalizers(&volume.value).map(str::to_owned).collect();
        let mut wanted = now.clone();
        wanted.retain(|name| name != EXTERNAL_FINALIZER);
        match reclaim_policy(&volume.value) {
            "Delete" if !wanted.iter().any(|name| name == IN_TREE_FINALIZER) => {
                wanted.push(IN_TREE_FINALIZER.to_owned());
            }
            "Retain" | "Recycle" => wanted.retain(|name| name != IN_TREE_FINALIZER),
            _ => {}
        }
        if wanted == now {
            Ok(volume)
        } else {
            self.update_volume(&volume, None, |volume| object::set_finalizers(volume, wanted), api).await
        }
    }

    async fn update_volume(
        &mut self,
        volume: &ObservedObject,
        part: Option<Subresource>,
        change: impl FnOnce(&mut Value),
        api: &mut Api,
    ) -> Result<ObservedObject, Status> {
        let volume = api.update(storage::volumes(), volume, part, change).await?;
        self.keep_volume(&volume);
        Ok(volume)
    }
}

/// The component that deletes the storage asset of a volume.
enum Deleter {
    External,
    HostPath,
}

/// `findDeletablePlugin`, and the host path plugin's own check. The error has the real controller's text.
fn deleter(volume: &Value) -> Result<Deleter, String> {
    match annotation(volume, PROVISIONED_BY) {
        Some("") | None => {}
        Some(name) if name.starts_with("kubernetes.io/") && name != "kubernetes.io/host-path" => {
            return Err(format!("no volume plugin matched name: {name}"));
        }
        Some(name) if !name.starts_with("kubernetes.io/") => return Ok(Deleter::External),
        Some(_) => {}
    }
    if annotation(volume, "pv.kubernetes.io/migrated-to").is_some() || object::at(volume, &["spec", "csi"]).is_some() {
        return Ok(Deleter::External);
    }
    match object::at(volume, &["spec", "hostPath", "path"]).and_then(Value::as_str) {
        Some(path) if path.strip_prefix("/tmp/").is_some_and(|rest| !rest.is_empty()) => Ok(Deleter::HostPath),
        Some(path) => Err(format!("host_path deleter only supports /tmp/.+ but received provided {path}")),
        None => Err(format!(
            "error getting deleter volume plugin for volume {}: no deletable volume plugin matched",
            json!(object::name(volume))
        )),
    }
}

fn recycler_exists(volume: &Value) -> bool {
    ["hostPath", "nfs"].iter().any(|source| object::at(volume, &["spec", source]).is_some())
}

fn reclaim_policy(volume: &Value) -> &str {
    object::text_at(volume, &["spec", "persistentVolumeReclaimPolicy"])
}

fn report_volume_mode_mismatch(volume: &Value, claim: &Value, api: &mut Api) {
    let name = object::name(claim);
    let message = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {name:?} due to incompatible volumeMode."
    );
    api.event(volume, EventType::Warning, "VolumeMismatch", &message);
    let name = object::name(volume);
    let message = format!(
        "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
    );
    api.event(claim, EventType::Warning, "VolumeMismatch", &message);
}
