//! The node of a claim or of a volume, where each node has a replica that serves it alone. Replicas of other nodes notice
//! that a node is gone, or that nobody works there.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::Api;
use provisioner_runtime::call::CallError;
use provisioner_runtime::journal::part_journal_name;

use super::Step;
use super::provision::Provisioning;
use crate::controller::volume::decide::refusal;
use crate::controller::volume::decision::Refusal;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, ClassState, Facts, VolumeState};
use crate::controller::volume::outcome::{Done, NodeSilence, Outcome, Stopped};

/// How long the replica of its node has to delete a released volume.
const DELETION_GRACE: Duration = Duration::from_secs(300);
/// How long the replica of the selected node has to make a volume or to say why not. A waiting claim shows the reason within
/// two minutes.
const PROVISION_GRACE: Duration = Duration::from_secs(90);
/// The number of replicas that look at the same time, of a thousand: one for a volume, which can wait for the next if that
/// one is down, and more for a claim.
const VOLUME_LOOKERS: usize = 1;
const CLAIM_LOOKERS: usize = 3;

impl Provisioning {
    /// Leaves the work to the replica of its node. After a while, looks whether the node exists and has a replica.
    pub(super) async fn look_for_node(&self, name: String, facts: &Facts, step: &Step<'_>) -> Outcome {
        let claim = match (&facts.claim, &facts.volume) {
            (ClaimState::Waiting(claim), VolumeState::Absent) => Some(&claim.facts),
            _ => None,
        };
        let (after, lookers) = match claim {
            Some(_) => (PROVISION_GRACE, CLAIM_LOOKERS),
            None => (DELETION_GRACE, VOLUME_LOOKERS),
        };
        let (place, count) = self.context.cache().place_after(&name);
        if !is_turn(step.work().waits(), lookers, place, count) {
            return Ok(Done::LooksAgain { after });
        }
        let node = match self.context.request(Api::<Node>::all(self.context.client().clone()).get(&name)).await {
            Ok(node) => node,
            Err(CallError::NotFound) => {
                return Err(match claim {
                    Some(claim) => self.leave_missing_node(claim, &name, step).await,
                    None => Stopped::Refused(Refusal::NodeGone { node: name }),
                });
            }
            Err(error) => return Err(Stopped::CallFailed { doing: "looking for the node that has to do this", error }),
        };
        match claim {
            None => Ok(Done::LooksAgain { after }),
            Some(_) if is_unready(&node) => Err(Stopped::NodeSilent { node: name, why: NodeSilence::NotReady }),
            Some(_) => match self.look_for_replica(name).await {
                // That replica has reported why. A later event about its silence would hide the reason.
                Stopped::NodeSilent { why: NodeSilence::Replica, .. } if self.is_refused(facts) => {
                    Ok(Done::LooksAgain { after })
                }
                stopped => Err(stopped),
            },
        }
    }

    fn is_refused(&self, facts: &Facts) -> bool {
        let (ClaimState::Waiting(claim), ClassState::Ours(class)) = (&facts.claim, &facts.class) else { return false };
        refusal(&claim.facts, class, &self.context.rules.capabilities).is_some()
    }

    /// Asks the scheduler for another node, since the selected one does not exist. Nothing was made there, or it is gone with
    /// the node.
    pub(super) async fn leave_missing_node(&self, claim: &ClaimFacts, node: &str, step: &Step<'_>) -> Stopped {
        match self.reschedule(claim, node, step).await {
            Ok(true) => Stopped::NodeMissing { node: node.to_owned() },
            // Another replica was faster.
            Ok(false) => Stopped::Behind,
            Err(stopped) => stopped,
        }
    }

    /// A replica writes its journal as soon as it runs.
    async fn look_for_replica(&self, node: String) -> Stopped {
        let api = Api::<ConfigMap>::namespaced(self.context.client().clone(), &self.namespace);
        match self.context.request(api.get_metadata(&part_journal_name(&self.context.rules.names.own, &node))).await {
            Ok(_) => Stopped::NodeSilent { node, why: NodeSilence::Replica },
            Err(CallError::NotFound) => Stopped::NodeSilent { node, why: NodeSilence::NoReplica },
            Err(error) => Stopped::CallFailed { doing: "looking for the journal of another node", error },
        }
    }
}

/// Whether it is our turn to look: of `count` replicas, as many as `lookers` look each time, and the next ones the next time.
/// The first time, before anybody has waited, nobody looks.
fn is_turn(waits: u32, lookers: usize, place: usize, count: usize) -> bool {
    let Some(turn) = waits.checked_sub(1).and_then(|turn| usize::try_from(turn).ok()) else { return false };
    let first = turn.wrapping_mul(lookers) % count.max(1);
    (place + count - first) % count.max(1) < lookers
}

/// Whether the node says that it is not ready. Its replica cannot work then.
fn is_unready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status != "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_take_turns() {
        let looking = |waits, lookers, count| -> Vec<usize> {
            (0..count).filter(|place| is_turn(waits, lookers, *place, count)).collect()
        };
        assert_eq!(
            (0..6).map(|waits| looking(waits, 1, 4)).collect::<Vec<_>>(),
            [vec![], vec![0], vec![1], vec![2], vec![3], vec![0]]
        );
        assert_eq!(
            [looking(1, 3, 4), looking(2, 3, 4), looking(3, 3, 4)],
            [vec![0, 1, 2], vec![0, 1, 3], vec![0, 2, 3]]
        );
        assert_eq!([looking(0, 3, 2), looking(1, 3, 2), looking(9, 3, 2)], [vec![], vec![0, 1], vec![0, 1]]);
        assert_eq!(looking(1_000_000, 3, 1_000).len(), 3);
    }
}
