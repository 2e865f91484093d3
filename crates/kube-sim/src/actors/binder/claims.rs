//! `syncClaim`: finds a volume for a claim, or requests one from its provisioner.

use std::sync::Arc;

use serde_json::Value;

use super::{Binder, Key, SyncResult};
use crate::actors::api::{Api, ObservedObject};
use crate::actors::pods;
use crate::actors::recorder::EventType;
use crate::actors::storage::{
    self, BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONER, PROVISIONER_BETA, SELECTED_NODE, attributes_class,
    bound_to, capacity, claim_ref, phase, requested, volume_mode, volume_name,
};
use crate::defaults::default_among;
use crate::object::{self, annotation, set_annotation};
use crate::request::Subresource;
use crate::status::Status;
use crate::store::Stored;

impl Binder {
    pub(super) async fn sync_claim(&mut self, name: &str, api: &mut Api) -> Result<SyncResult, Status> {
        let Some(claim) = self.claims.get(name).map(|stored| ObservedObject::from(Arc::clone(stored))) else {
            return Ok(SyncResult::Done);
        };
        match annotation(&claim.value, BIND_COMPLETED) {
            Some(_) => self.sync_bound(claim, api).await,
            None => self.sync_unbound(claim, api).await,
        }
    }

    async fn sync_unbound(&mut self, claim: ObservedObject, api: &mut Api) -> Result<SyncResult, Status> {
        if !volume_name(&claim.value).is_empty() {
            return self.sync_named(claim, api).await;
        }
        let waits_for_consumer = self.waits_for_consumer(&claim.value);
        if let Some(volume) = self.volumes.find(&claim.value, waits_for_consumer) {
            let volume = ObservedObject::from(Arc::clone(volume));
            return self.bind(volume, claim, api).await;
        }
        if self.assign_default_class(&claim, api).await? {
            return Ok(SyncResult::Done);
        }
        if waits_for_consumer && annotation(&claim.value, SELECTED_NODE).is_none() {
            report_unbound_delayed_claim(&claim.value, api);
        } else if !storage::class(&claim.value).is_empty() {
            self.provision(claim, api).await?;
            return Ok(SyncResult::Pending);
        } else {
            let why = "no persistent volumes available for this claim and no storage class is set";
            api.event(&claim.value, EventType::Normal, "FailedBinding", why);
        }
        self.set_claim_status(claim, "Pending", None, api).await?;
        Ok(SyncResult::Pending)
    }

    /// Syncs a claim that names its volume.
    async fn sync_named(&mut self, claim: ObservedObject, api: &mut Api) -> Result<SyncResult, Status> {
        let name = volume_name(&claim.value);
        let Some(volume) = self.volumes.get(name).map(|stored| ObservedObject::from(Arc::clone(stored))) else {
            self.set_claim_status(claim, "Pending", None, api).await?;
            return Ok(SyncResult::Pending);
        };
        let taken = match claim_ref(&volume.value) {
            None => match unfit(&volume.value, &claim.value) {
                None => return self.bind(volume, claim, api).await,
                Some(why) => {
                    let message = format!("Cannot bind to requested volume {name:?}: {why}");
                    api.event(&claim.value, EventType::Warning, "VolumeMismatch", &message);
                    false
                }
            },
            Some(reference) if storage::refers_to(reference, &claim.value) => {
                return self.bind(volume, claim, api).await;
            }
            Some(_) => {
                let message = format!("volume {name:?} already bound to a different claim.");
                api.event(&claim.value, EventType::Warning, "FailedBinding", &message);
                true
            }
        };
        if taken && annotation(&claim.value, BOUND_BY_CONTROLLER).is_some() {
            return Err(Status::internal("invalid binding of a claim to a volume that is claimed by another"));
        }
        self.set_claim_status(claim, "Pending", None, api).await?;
        Ok(SyncResult::Pending)
    }

    /// Syncs a claim that was bound before.
    async fn sync_bound(&mut self, claim: ObservedObject, api: &mut Api) -> Result<SyncResult, Status> {
        let volume = self.volumes.get(volume_name(&claim.value)).map(|stored| ObservedObject::from(Arc::clone(stored)));
        let (reason, message) = match volume {
            _ if volume_name(&claim.value).is_empty() => {
                ("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            }
            None => ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
            Some(volume) => {
                match claim_ref(&volume.value).map(|reference| reference.uid == object::uid(&claim.value)) {
                    None | Some(true) => return self.bind(volume, claim, api).await,
                    Some(false) => {
                        ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
                    }
                }
            }
        };
        if phase(&claim.value) != "Lost" {
            let claim = self.set_claim_status(claim, "Lost", None, api).await?;
            api.event(&claim.value, EventType::Warning, reason, message);
        }
        Ok(SyncResult::Pending)
    }

    /// Binds a volume and a claim to each other, in up to four writes.
    async fn bind(
        &mut self,
        mut volume: ObservedObject,
        mut claim: ObservedObject,
        api: &mut Api,
    ) -> Result<SyncResult, Status> {
        // If a write fails because the claim was deleted meanwhile, only a resync releases the volume.
        let key = Key::Volume(volume.stored.name().to_owned());
        self.waiting.insert(key.clone());
        if let Some(change) = bound_to(&volume.value, &claim.value) {
            volume = api.update(storage::volumes(), &volume, None, change).await?;
            self.keep_volume(&volume);
        }
        volume = self.set_volume_phase(volume, "Bound", "", api).await?;
        let binds = volume_name(&claim.value) != volume.stored.name();
        if binds || annotation(&claim.value, BIND_COMPLETED).is_none() {
            let name = volume.stored.name();
            let change = |claim: &mut Value| {
                if binds {
                    claim["spec"]["volumeName"] = name.into();
                    set_annotation(claim, BOUND_BY_CONTROLLER, "yes");
                }
                set_annotation(claim, BIND_COMPLETED, "yes");
            };
            claim = self.update_claim(&claim, None, change, api).await?;
        }
        self.set_claim_status(claim, "Bound", Some(&volume.value), api).await?;
        self.waiting.remove(&key);
        Ok(SyncResult::Done)
    }

    /// `updateClaimStatus`.
    async fn set_claim_status(
        &mut self,
        claim: ObservedObject,
        wanted: &str,
        volume: Option<&Value>,
        api: &mut Api,
    ) -> Result<ObservedObject, Status> {
        const ATTRIBUTES: &str = "currentVolumeAttributesClassName";
        let was = phase(&claim.value);
        let mut status = object::at(&claim.value, &["status"]).and_then(Value::as_object).cloned().unwrap_or_default();
        status.insert("phase".to_owned(), wanted.into());
        match volume {
            None => {
                for field in ["accessModes", "capacity", ATTRIBUTES] {
                    status.remove(field);
                }
            }
            Some(volume) => {
                status.insert("accessModes".to_owned(), volume["spec"]["accessModes"].clone());
                if was != wanted {
                    status.insert("capacity".to_owned(), volume["spec"]["capacity"].clone());
                }
                let attributes = attributes_class(volume);
                if was == "Pending" && !attributes.is_empty() {
                    status.insert(ATTRIBUTES.to_owned(), attributes.into());
                }
            }
        }
        if object::at(&claim.value, &["status"]).and_then(Value::as_object) == Some(&status) {
            return Ok(claim);
        }
        self.update_claim(&claim, Some(Subresource::Status), |claim| claim["status"] = status.into(), api).await
    }

    /// Gives the default class to a claim without a class. Returns whether it did.
    async fn assign_default_class(&mut self, claim: &ObservedObject, api: &mut Api) -> Result<bool, Status> {
        if object::class(&claim.value).is_some() {
            return Ok(false);
        }
        let Some(class) = self.default_class() else { return Ok(false) };
        api.update(storage::claims(), claim, None, |claim| claim["spec"]["storageClassName"] = class.into()).await?;
        Ok(true)
    }

    fn default_class(&self) -> Option<String> {
        let classes: Vec<Arc<Value>> = self.classes.values().map(|stored| stored.parsed()).collect();
        default_among(classes.iter().map(|class| &**class)).map(|class| object::name(class).to_owned())
    }

    /// Hands a claim to the external provisioner of its class: `provisionClaim`.
    async fn provision(&mut self, claim: ObservedObject, api: &mut Api) -> Result<(), Status> {
        const FAILED: &str = "ProvisioningFailed";
        let class = storage::class(&claim.value);
        let Some(class) = self.classes.get(class).map(|stored| stored.parsed()) else {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            api.event(&claim.value, EventType::Warning, FAILED, &message);
            return Ok(());
        };
        let provisioner = object::text_at(&class, &["provisioner"]);
        if provisioner.starts_with("kubernetes.io/") {
            let message = format!("no volume plugin matched name: {provisioner}");
            api.event(&claim.value, EventType::Warning, FAILED, &message);
            return Ok(());
        }
        let mut claim = claim;
        if annotation(&claim.value, PROVISIONER) != Some(provisioner) {
            let change = |claim: &mut Value| {
                set_annotation(claim, PROVISIONER_BETA, provisioner);
                set_annotation(claim, PROVISIONER, provisioner);
            };
            claim = match self.update_claim(&claim, None, change, api).await {
                Ok(claim) => claim,
                Err(refused) => {
                    let message = format!("Error saving claim: {}", refused.message);
                    api.event(&claim.value, EventType::Warning, FAILED, &message);
                    return Err(refused);
                }
            };
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        api.event(&claim.value, EventType::Normal, "ExternalProvisioning", &message);
        Ok(())
    }

    async fn update_claim(
        &mut self,
        claim: &ObservedObject,
        part: Option<Subresource>,
        change: impl FnOnce(&mut Value),
        api: &mut Api,
    ) -> Result<ObservedObject, Status> {
        let claim = api.update(storage::claims(), claim, part, change).await?;
        self.keep_claim(&claim.stored);
        Ok(claim)
    }

    fn waits_for_consumer(&self, claim: &Value) -> bool {
        let class = self.classes.get(storage::class(claim)).map(|stored| stored.parsed());
        class.is_some_and(|class| object::text_at(&class, &["volumeBindingMode"]) == "WaitForFirstConsumer")
    }
}

/// Returns the reason if a volume does not fit the claim that names it: `checkVolumeSatisfyClaim`.
fn unfit(volume: &Value, claim: &Value) -> Option<String> {
    let mut modes = storage::access_modes(claim);
    if object::deletion_timestamp(volume).is_some() {
        Some(format!("the volume is marked for deletion {:?}", object::name(volume)))
    } else if !storage::is_enough(capacity(volume).as_ref(), requested(claim).as_ref()) {
        Some("requested PV is too small".to_owned())
    } else if storage::class(volume) != storage::class(claim) {
        Some("storageClassName does not match".to_owned())
    } else if attributes_class(volume) != attributes_class(claim) {
        Some("volumeAttributesClassName does not match".to_owned())
    } else if volume_mode(volume) != volume_mode(claim) {
        Some("incompatible volumeMode".to_owned())
    } else if modes.any(|mode| storage::access_modes(volume).all(|own| own != mode)) {
        Some("incompatible accessMode".to_owned())
    } else {
        None
    }
}

/// `emitEventForUnboundDelayBindingClaim`.
fn report_unbound_delayed_claim(claim: &Value, api: &mut Api) {
    let pods = unscheduled_pods(claim, api);
    let (reason, message) = match pods.as_slice() {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
    };
    api.event(claim, EventType::Normal, reason, &message);
}

fn unscheduled_pods(claim: &Value, api: &Api) -> Vec<String> {
    let pods = api.cluster().list_stored("", "pods", Some(object::namespace(claim))).unwrap_or_default();
    let waits = |pod: &Arc<Stored>| {
        let pod = pod.parsed();
        let uses = pods::claims_of(&pod).any(|name| name == object::name(claim));
        uses && !pods::has_ended(&pod) && pods::node(&pod).is_empty()
    };
    pods.iter().filter(|pod| waits(pod)).map(|pod| pod.name().to_owned()).collect()
}
