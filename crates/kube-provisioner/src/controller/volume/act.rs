//! Executes decisions. Only this module calls the provisioner or writes to the API server.

mod attempt;
mod bid;
mod clean_up;
mod context;
mod delete;
mod end_attempt;
mod expand;
mod inputs;
mod nodes;
mod objects;
mod protect;
mod provision;
mod save;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::{CallAborted, Refused, catch_panic};
use provisioner_runtime::journal::JournalKind;

pub(crate) use self::context::ActContext;
use self::delete::Deleting;
use self::expand::Expanding;
use self::provision::Provisioning;
use super::cache::VolumeCache;
use super::decision::{Decision, NoAction, Refusal};
use super::facts::{ClaimState, ClassState, Facts, Progress, WaitingClaim};
use super::outcome::{Outcome, Stopped};
use crate::controller::shared::calls::{self, start_backend};
use crate::controller::shared::class_parameters::BadParameters;
use crate::start::StartContext;

pub(crate) type Step<'a> = provisioner_runtime::controller::Step<'a, VolumeCache>;

type CallFailure<E> = calls::CallFailure<Stopped, E>;

pub(crate) struct Actions {
    pub(crate) context: Arc<ActContext>,
    provisioning: Provisioning,
    deleting: Deleting,
    expanding: Expanding,
}

impl Actions {
    /// `namespace` is the namespace of the journals, and `journal` the kind of object that stores them.
    pub(crate) fn new(context: ActContext, namespace: String, journal: JournalKind) -> Self {
        let context = Arc::new(context);
        Self {
            provisioning: Provisioning {
                context: context.clone(),
                namespace,
                journal,
                no_clean_up: AtomicBool::new(false),
            },
            deleting: Deleting { context: context.clone(), no_guard: AtomicBool::new(false) },
            expanding: Expanding { context: context.clone() },
            context,
        }
    }

    /// Calls the provisioner's `start`, which restores its in-memory state.
    pub(crate) async fn start(&self) -> Result<(), String> {
        let ActContext { rules, limits, backend, .. } = &*self.context;
        let context = self.context.clone();
        let start = StartContext::listing(context.client().clone(), &rules.cluster_id, move || {
            let context = context.clone();
            async move { Ok(context.own_volumes().await?) }.boxed()
        });
        start_backend(limits.delete, async { backend.start(start).await }).await
    }

    pub(crate) async fn execute(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        let claim = self.asked_for(&decision, facts, step)?;
        let key = step.key();
        match decision {
            Decision::NoAction(why) => Err(Stopped::NoAction(why)),
            Decision::Refuse(Refusal::ParametersCrash(_)) => self.read_class_again(facts),
            Decision::Refuse(refusal) => Err(Stopped::Refused(refusal)),
            Decision::Provision => self.provisioning.provision(claim, facts, step).await,
            Decision::Bid => Box::pin(self.provisioning.bid(claim, facts, step)).await,
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::CleanUp => Box::pin(self.provisioning.clean_up(facts, step)).await,
            Decision::DeleteSurplus => Box::pin(self.provisioning.delete_surplus(facts, step)).await,
            Decision::Delete(deletion) => Box::pin(self.deleting.delete(deletion, facts, step)).await,
            Decision::Expand { bytes } => Box::pin(self.expanding.expand(bytes, facts, step)).await,
            Decision::LookForNode { name } => Box::pin(self.provisioning.look_for_node(name, facts, step)).await,
            Decision::Confirm => self.provisioning.confirm(facts, key).await,
            Decision::ConfirmVolume => self.confirm_volume(facts, step).await,
            Decision::Save => Box::pin(self.provisioning.save_again(facts, step)).await,
            Decision::FinishDelete => self.deleting.finish_delete(facts, key).await,
            Decision::Protect => self.deleting.set_protection(facts, key, true).await,
            Decision::Unprotect => self.deleting.set_protection(facts, key, false).await,
        }
    }

    /// Returns the claim of a new attempt. If the provisioner's `accepts` refuses the claim, no event is sent.
    pub(crate) fn asked_for(
        &self,
        decision: &Decision,
        facts: &Facts,
        step: &Step<'_>,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Stopped> {
        let is_new = match decision {
            Decision::Provision | Decision::Bid | Decision::Confirm => true,
            Decision::Refuse(refusal) => !refusal.is_about_volume(),
            // The first decision about another node's claim only begins to wait.
            Decision::LookForNode { .. } => step.work().waits() > 0,
            _ => false,
        };
        let ClaimState::Waiting(claim) = &facts.claim else { return Ok(None) };
        if !is_new || facts.attempt().is_some() {
            return Ok(None);
        }
        let Some(typed) = typed(claim)? else { return Ok(None) };
        match catch_panic(|| self.context.backend.accepts(&typed)) {
            Ok(true) => Ok(Some(Arc::new(typed))),
            Ok(false) => Err(Stopped::NoAction(NoAction::Vetoed)),
            Err(panic) => Err(Stopped::ProvisionAborted { method: "accepts", aborted: CallAborted::Panicked(panic) }),
        }
    }

    /// Parses the parameters once more, since the provisioner's code may not panic the second time.
    fn read_class_again(&self, facts: &Facts) -> Outcome {
        let ClassState::Ours(class) = &facts.class else { return Err(Stopped::Changed) };
        let again = class.read_again((&*self.context.backend, &self.context.rules.capabilities));
        if let Err(BadParameters::Crashed(panic)) = again.parameters {
            return Err(Stopped::ProvisionAborted {
                method: "Parameters::deserialize",
                aborted: CallAborted::Panicked(panic),
            });
        }
        self.context.cache().class_read_again(again);
        Err(Stopped::Changed)
    }

    /// Reads the volume that the watch has shown. If it exists, the attempt has ended.
    async fn confirm_volume(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let key = step.key();
        match self.context.read_volume(&key.to_string()).await {
            Ok(live) => {
                let Some(pending) = facts.attempt() else { return Err(Stopped::Changed) };
                let is_deleted = live.object.metadata.deletion_timestamp.is_some();
                if !(is_deleted && matches!(facts.progress, Progress::Unsaved(_))) {
                    Box::pin(self.context.finish(pending, step)).await?;
                }
                self.context.cache().observe_volume(live.seen);
            }
            Err(CallError::NotFound) => self.context.cache().volume_is_gone(key),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        }
        Err(Stopped::Changed)
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
