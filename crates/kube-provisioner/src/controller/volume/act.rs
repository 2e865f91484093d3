//! Executes decisions. Only this module calls the provisioner or writes to the API server.

mod attempt;
mod bid;
mod clean_up;
mod delete;
mod expand;
mod inputs;
mod nodes;
mod objects;
mod provision;
mod save;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};

use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use provisioner_runtime::controller::{CallAborted, Context, FencingToken, Refused, catch_panic};
use provisioner_runtime::journal::JournalKind;
use provisioner_runtime::limiter::Purpose;
use provisioner_runtime::{Cache, CallError, WatchHealth};

use self::clean_up::is_of_another;
use super::backend::Backend;
use super::cache::VolumeCache;
use super::decide::{Rules, decide};
use super::decision::{Decision, NoAction, Refusal};
use super::facts::{ClaimState, ClassState, Facts, OurVolume, WaitingClaim};
use super::key::Key;
use super::outcome::{Outcome, Stopped};
use crate::controller::shared::calls::{self, start_backend};
use crate::controller::shared::class_parameters::BadParameters;
use crate::controller::shared::limits::CallLimits;
use crate::request::ProvisionedVolume;
use crate::secrets::Secrets;
use crate::start::StartContext;

pub(crate) type Step<'a> = provisioner_runtime::controller::Step<'a, VolumeCache>;

type CallFailure<E> = calls::CallFailure<Stopped, E>;

pub(crate) struct Actions {
    pub(crate) runtime: Context<VolumeCache>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: CallLimits,
    /// The account may update claims but not patch them.
    pub(crate) only_updates_claims: bool,
    /// The health of the watches of the claims and of the volumes.
    pub(crate) claims: WatchHealth,
    pub(crate) volumes: WatchHealth,
    /// The namespace of the journals.
    pub(crate) namespace: String,
    /// The kind of object that stores them.
    pub(crate) journal: JournalKind,
    /// True once a call has shown that the provisioner does not implement `clean_up`.
    pub(crate) no_clean_up: AtomicBool,
    /// True once a call has shown that the provisioner does not implement `should_delete`.
    pub(crate) no_guard: AtomicBool,
}

impl Actions {
    fn cache(&self) -> MutexGuard<'_, VolumeCache> {
        self.runtime.cache()
    }

    fn client(&self) -> &Client {
        self.runtime.client()
    }

    /// Calls the provisioner's `start`, which restores its in-memory state.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), String> {
        let actions = Arc::clone(self);
        let start = StartContext::listing(self.client().clone(), &self.rules.cluster_id, move || {
            let actions = Arc::clone(&actions);
            async move { Ok(actions.own_volumes().await?) }.boxed()
        });
        start_backend(self.limits.delete, async { self.backend.start(start).await }).await
    }

    pub(crate) async fn execute(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        let claim = self.accepted_claim(&decision, facts, step)?;
        let key = step.key();
        match decision {
            Decision::NoAction(why) => Err(Stopped::NoAction(why)),
            Decision::Refuse(Refusal::ParametersCrash(_)) => self.read_class_again(facts),
            Decision::Refuse(refusal) => Err(Stopped::Refused(refusal)),
            Decision::Provision => self.provision(claim, facts, step).await,
            Decision::Bid => Box::pin(self.bid(claim, facts, step)).await,
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::CleanUp => Box::pin(self.clean_up(facts, step)).await,
            Decision::DeleteSurplus => Box::pin(self.delete_surplus(facts, step)).await,
            Decision::Delete(deletion) => Box::pin(self.delete(deletion, facts, step)).await,
            Decision::Expand { bytes } => Box::pin(self.expand(bytes, facts, step)).await,
            Decision::CheckNode { name } => Box::pin(self.check_node(name, facts, step)).await,
            Decision::Confirm => self.confirm(facts, key).await,
            Decision::ConfirmVolume => self.confirm_volume(facts, step).await,
            Decision::Save => Box::pin(self.save_again(facts, step)).await,
            Decision::FinishDelete => self.finish_delete(facts, key).await,
            Decision::Protect => self.set_protection(facts, key, true).await,
            Decision::Unprotect => self.set_protection(facts, key, false).await,
        }
    }

    /// Returns the claim of a new attempt. If the provisioner's `accepts` refuses the claim, no event is sent.
    pub(crate) fn accepted_claim(
        &self,
        decision: &Decision,
        facts: &Facts,
        step: &Step<'_>,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Stopped> {
        let is_new = match decision {
            Decision::Provision | Decision::Bid | Decision::Confirm => true,
            Decision::Refuse(refusal) => !refusal.is_about_volume(),
            // The first decision about another node's claim only begins to wait.
            Decision::CheckNode { .. } => step.work().waits() > 0,
            _ => false,
        };
        let ClaimState::Waiting(claim) = &facts.claim else { return Ok(None) };
        if !is_new || facts.attempt().is_some() {
            return Ok(None);
        }
        let Some(typed) = typed(claim)? else { return Ok(None) };
        match catch_panic(|| self.backend.accepts(&typed)) {
            Ok(true) => Ok(Some(Arc::new(typed))),
            Ok(false) => Err(Stopped::NoAction(NoAction::Vetoed)),
            Err(panic) => Err(Stopped::ProvisionAborted { method: "accepts", aborted: CallAborted::Panicked(panic) }),
        }
    }

    /// Parses the parameters once more, since the provisioner's code may not panic the second time.
    fn read_class_again(&self, facts: &Facts) -> Outcome {
        let ClassState::Ours(class) = &facts.class else { return Err(Stopped::Changed) };
        let again = class.read_again((&*self.backend, &self.rules.capabilities));
        if let Err(BadParameters::Crashed(panic)) = again.parameters {
            return Err(Stopped::ProvisionAborted {
                method: "Parameters::deserialize",
                aborted: CallAborted::Panicked(panic),
            });
        }
        self.cache().class_read_again(again);
        Err(Stopped::Changed)
    }

    /// Reads the volume that the watch has shown. If it exists, the attempt has ended, unless the name now belongs to
    /// another claim's volume or to another installation's.
    async fn confirm_volume(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let key = step.key();
        match self.read_volume(&key.to_string()).await {
            Ok(live) => {
                let Some(pending) = facts.attempt() else { return Err(Stopped::Changed) };
                if !self.is_foreign_volume(&live.seen) && !is_of_another(&live.object, pending) {
                    Box::pin(self.finish(pending, Purpose::Create, step)).await?;
                }
                self.cache().observe_volume(live.seen);
            }
            Err(CallError::NotFound) => self.cache().remove_volume(key),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        }
        Err(Stopped::Changed)
    }

    /// Returns the decision about the current state.
    fn decision_now(&self, key: &Key) -> Decision {
        decide(&self.cache().facts(key), &self.rules)
    }

    /// Returns the current volume, if the rules still make the same decision about it.
    async fn confirm_decision(
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

    /// Returns the argument of a call about a volume.
    fn argument(
        &self,
        volume: impl Into<Arc<PersistentVolume>>,
        secrets: Secrets,
        token: &FencingToken,
    ) -> ProvisionedVolume {
        ProvisionedVolume::new(volume).in_cluster(&self.rules.cluster_id).with(secrets, token.clone())
    }
}

fn answered<T, E>(call: Result<Result<T, E>, Refused>) -> Result<T, CallFailure<E>> {
    CallFailure::of(call, Stopped::Changed, Stopped::NotJournaled)
}

/// Returns the claim as the provisioner receives it, or `None` if the cache no longer contains the whole object.
fn typed(claim: &WaitingClaim) -> Result<Option<PersistentVolumeClaim>, Stopped> {
    let Some(object) = &claim.object else { return Ok(None) };
    serde_json::from_str(object).map(Some).map_err(|error| Stopped::Refused(Refusal::Request(error.to_string())))
}
