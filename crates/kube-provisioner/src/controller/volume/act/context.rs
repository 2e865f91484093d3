//! The state that provisioning, deleting and expanding share.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use provisioner_runtime::controller::{CallAborted, Context, FencingToken};
use provisioner_runtime::{Cache, CallError, WatchHealth};

use super::inputs::not_read;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters, Parsed};
use crate::controller::shared::limits::CallLimits;
use crate::controller::shared::secret_names;
use crate::controller::shared::secret_reading::read_secret;
use crate::controller::volume::backend::{Backend, UntypedRequest};
use crate::controller::volume::cache::VolumeCache;
use crate::controller::volume::decide::{Rules, decide};
use crate::controller::volume::decision::{Decision, NoAction, Refusal};
use crate::controller::volume::facts::{OurVolume, Pending};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Stopped;
use crate::secrets::Secrets;

pub(crate) struct ActContext {
    pub(crate) runtime: Context<VolumeCache>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: CallLimits,
    /// The account may update claims but not patch them.
    pub(crate) only_updates_claims: bool,
    /// The health of the watches of the claims and of the volumes.
    pub(crate) claims: WatchHealth,
    pub(crate) volumes: WatchHealth,
}

impl ActContext {
    pub(crate) fn cache(&self) -> MutexGuard<'_, VolumeCache> {
        self.runtime.cache()
    }

    pub(super) fn client(&self) -> &Client {
        self.runtime.client()
    }

    /// Returns the decision about the current state.
    pub(super) fn decision_now(&self, key: &Key) -> Decision {
        decide(&self.cache().facts(key), &self.rules)
    }

    /// Returns the current volume, if the rules still make the same decision about it.
    pub(super) async fn as_decided(
        &self,
        decided: Decision,
        volume: &OurVolume,
        key: &Key,
    ) -> Result<Arc<PersistentVolume>, Stopped> {
        let live = match self.read_volume(&key.to_string()).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Err(Stopped::NoAction(NoAction::VolumeTerminating)),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        };
        let version = live.seen.version().unwrap_or_default().to_owned();
        self.cache().observe_volume(live.seen);
        // If the server's data was restored from a backup, the cache ignores the object until it has been listed.
        let is_known = self.cache().shows_volume(key, &version);
        let same = is_known
            && live.object.metadata.uid.as_deref() == Some(&*volume.facts.uid)
            && self.decision_now(key) == decided;
        if same { Ok(Arc::new(live.object)) } else { Err(Stopped::Changed) }
    }

    /// Returns the parameters of an attempt's class. A panic of the provisioner's code while it parses them does not
    /// end the attempt.
    pub(super) fn parameters_of(&self, pending: &Pending) -> Result<ClassParameters, Stopped> {
        let parameters = match &pending.class.parameters {
            Ok(parameters) => Ok(parameters.clone()),
            Err(_) => pending.class.read_again((&*self.backend, &self.rules.capabilities)).parameters,
        };
        parameters.map_err(|bad| match bad {
            BadParameters::Wrong(problems) => Stopped::Refused(Refusal::Parameters(problems)),
            BadParameters::Crashed(panic) => {
                Stopped::ProvisionAborted { method: "Parameters::deserialize", aborted: CallAborted::Panicked(panic) }
            }
        })
    }

    /// Returns a request of an attempt, without Secrets and node labels.
    pub(super) fn request_of(
        &self,
        pending: &Pending,
        claim: Arc<PersistentVolumeClaim>,
        parameters: Parsed,
        key: &Key,
        fencing_token: &FencingToken,
    ) -> UntypedRequest {
        let facts = &pending.claim.facts;
        UntypedRequest {
            name: key.to_string(),
            bytes: facts.request.clone().unwrap_or_default(),
            parameters,
            claim,
            class: pending.class.object.clone(),
            selected_node: facts.selected_node.as_deref().map(str::to_owned),
            node_labels: BTreeMap::new(),
            secrets: Secrets::default(),
            cluster_id: self.rules.cluster_id.to_string(),
            idempotency_token: pending.token.to_string(),
            prepared: pending.prepared.clone(),
            resumed: true,
            fencing_token: fencing_token.clone(),
        }
    }

    /// Returns the Secrets that the class named when the volume was created.
    pub(super) async fn secrets_of(&self, volume: &PersistentVolume) -> Result<Secrets, Stopped> {
        let mut secrets = Secrets::default();
        for role in &self.rules.capabilities.secrets {
            if let Some(reference) = secret_names::of_volume(volume.metadata.annotations.as_ref(), &role.role) {
                read_secret(&self.runtime, &mut secrets, &role.role, &reference).await.map_err(not_read)?;
            }
        }
        Ok(secrets)
    }
}
