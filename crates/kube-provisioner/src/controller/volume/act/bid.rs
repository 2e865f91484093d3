//! Takes a claim that does not wait for a pod, if each node has a replica: one replica selects its node for the claim,
//! and then provisions it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::guarded;

use super::attempt::Attempt;
use super::nodes::{CLAIM_CHECKERS, is_turn};
use super::{Actions, Step};
use crate::controller::volume::backend::UntypedRequest;
use crate::controller::volume::decision::Decision;
use crate::controller::volume::facts::Facts;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};

/// The shortest pause before a node that has no room is checked again, because bids may have no delay.
const NO_ROOM: Duration = Duration::from_secs(5);

impl Actions {
    /// Waits for a random time first, so that not all nodes take the claim at once. The wait does not occupy a worker,
    /// and if another node takes the claim, the work on the key starts again.
    pub(super) async fn bid(
        &self,
        claim: Option<Arc<PersistentVolumeClaim>>,
        facts: &Facts,
        step: &Step<'_>,
    ) -> Outcome {
        let rules = &self.rules;
        let (Some(node), Some(delays)) = (&rules.node, &rules.bids) else { return Err(Stopped::Changed) };
        let waits = step.work().waits();
        let after = delays.delay(waits.saturating_add(1), self.chance(&format!("bid {waits} for {}", step.key())));
        if waits == 0 {
            return Ok(Done::CheckAgain { after });
        }
        let Attempt { pending, claim, parameters, permit: _permit, .. } =
            self.attempt(Decision::Bid, claim, facts, step)?;
        let (token, _guard) = step.token();
        let request = self.request_of(&pending, claim, parameters.parsed, step.key(), &token);
        let request = UntypedRequest { selected_node: Some(node.to_string()), resumed: false, ..request };
        let asking = async { self.backend.has_room(request).await };
        let has_room = guarded(self.limits.provision, &token, asking).await;
        if !has_room.map_err(|aborted| Stopped::ProvisionAborted { method: "has_room", aborted })? {
            let after = after.max(NO_ROOM);
            let (place, count) = self.cache().node_position_after(&step.key().to_string());
            let tells = is_turn(waits, CLAIM_CHECKERS, place, count);
            return if tells { Err(Stopped::NoRoom { after }) } else { Ok(Done::CheckAgain { after }) };
        }
        match self.select_node(&pending.claim.facts, node).await {
            Ok(Some(claim)) => {
                self.cache().observe_claim(claim);
                Err(Stopped::Changed)
            }
            // Another node was faster, or the claim is deleted. The watch will show it.
            Ok(None) | Err(CallError::NotFound) => Err(Stopped::WatchBehind),
            Err(error) => Err(Stopped::CallFailed { doing: "selecting this node for the claim", error }),
        }
    }

    fn chance(&self, purpose: &str) -> f64 {
        self.runtime.environment().number(purpose) as f64 / u64::MAX as f64
    }
}
