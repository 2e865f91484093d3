//! Checks the node of a claim or a volume, if each node has its own replica. Replicas on other nodes detect that a node
//! no longer exists, or that no replica runs there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use provisioner_runtime::call::{CallError, found};
use provisioner_runtime::journal::{JournalKind, JournalObject, Listing, part_journal_name};

use super::{Actions, Step};
use crate::controller::volume::decide::refusal;
use crate::controller::volume::decision::Refusal;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, ClassState, Facts, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, NodeInactivity, Outcome, Stopped};

/// The time in which the replica on the volume's node should delete a released volume.
const DELETION_GRACE: Duration = Duration::from_secs(300);
/// The time in which the replica on the selected node should create a volume or report a problem. A waiting claim shows
/// the reason within two minutes.
const PROVISION_GRACE: Duration = Duration::from_secs(90);
/// The number of replicas that check a node at the same time: one for a volume, which can wait for the next replica if
/// that one is down, and more for a claim.
const VOLUME_CHECKERS: usize = 1;
pub(super) const CLAIM_CHECKERS: usize = 3;

impl Actions {
    /// Leaves the work to the replica on the other node. After a grace period, checks whether that node exists and has
    /// a replica.
    pub(super) async fn check_node(&self, name: String, facts: &Facts, step: &Step<'_>) -> Outcome {
        let claim = match (&facts.claim, &facts.volume) {
            (ClaimState::Waiting(claim), VolumeState::Absent) => Some(&claim.facts),
            _ => None,
        };
        let (after, checkers) = match claim {
            Some(_) => (PROVISION_GRACE, CLAIM_CHECKERS),
            None => (DELETION_GRACE, VOLUME_CHECKERS),
        };
        let (place, count) = self.cache().node_position_after(&name);
        if !is_turn(step.work().waits(), checkers, place, count) {
            return Ok(Done::CheckAgain { after });
        }
        if claim.is_none() && self.rules.node_topology.is_some() {
            let has_node = self.has_node(&name).await?;
            let gone = || Err(Stopped::Refused(Refusal::NoUsableNode { place: name }));
            return if has_node { Ok(Done::CheckAgain { after }) } else { gone() };
        }
        let node = found(self.request(Api::<Node>::all(self.client().clone()).get(&name)).await);
        let node = node.map_err(Stopped::call_failed("looking for the node that has to do this"))?;
        let Some(claim) = claim else {
            return match node {
                Some(_) => Ok(Done::CheckAgain { after }),
                None => Err(Stopped::Refused(Refusal::NodeGone { node: name })),
            };
        };
        if node.is_none() || !self.has_driver(&name).await? {
            return Err(if self.may_have_begun(&name, step.key()).await? {
                let is_recorded = self.journal != JournalKind::Memory;
                let why = if is_recorded { NodeInactivity::MayHaveBegun } else { NodeInactivity::Unrecorded };
                Stopped::NodeInactive { node: name, why }
            } else {
                self.request_other_node(claim, name, node.is_some(), step).await
            });
        }
        if node.as_ref().is_some_and(is_unready) {
            return Err(Stopped::NodeInactive { node: name, why: NodeInactivity::NotReady });
        }
        let why = match self.journal {
            // That replica does not store its journal.
            JournalKind::Memory => NodeInactivity::Replica,
            _ if self.journal_of(&name).await?.is_none() => NodeInactivity::NoReplica,
            _ => NodeInactivity::Replica,
        };
        // That replica has already reported the reason, which a later event about its silence would hide.
        if why == NodeInactivity::Replica && self.is_refused(facts) {
            return Ok(Done::CheckAgain { after });
        }
        Err(Stopped::NodeInactive { node: name, why })
    }

    fn is_refused(&self, facts: &Facts) -> bool {
        let (ClaimState::Waiting(claim), ClassState::Ours(class)) = (&facts.claim, &facts.class) else { return false };
        refusal(&claim.facts, class, &self.rules.capabilities).is_some()
    }

    /// Asks the scheduler for another node, since the selected one does not exist or lacks the driver.
    pub(super) async fn request_other_node(
        &self,
        claim: &ClaimFacts,
        node: String,
        exists: bool,
        step: &Step<'_>,
    ) -> Stopped {
        match self.reschedule(claim, &node, step).await {
            Ok(true) => Stopped::OtherNodeRequested { node, exists },
            // Another replica was faster.
            Ok(false) => Stopped::WatchBehind,
            Err(stopped) => stopped,
        }
    }

    /// Returns whether the driver is registered on a node in this place, given as label selectors.
    async fn has_node(&self, place: &str) -> Result<bool, Stopped> {
        let api = Api::<Node>::all(self.client().clone());
        for selector in place.split(';').filter(|selector| !selector.is_empty()) {
            let parameters = ListParams::default().labels(selector);
            let found = self.request(api.list_metadata(&parameters)).await;
            let found = found.map_err(Stopped::call_failed("looking for nodes that can use the volume"))?;
            for node in found.items {
                if self.has_driver(&node.name_any()).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether our CSI driver is registered on the node. Returns true if the provisioner is not a CSI driver.
    async fn has_driver(&self, node: &str) -> Result<bool, Stopped> {
        if self.rules.node_topology.is_none() {
            return Ok(true);
        }
        let api = Api::<CSINode>::all(self.client().clone());
        match self.request(api.get(node)).await {
            Ok(found) => Ok(found.spec.drivers.iter().any(|driver| self.rules.names.include(&driver.name))),
            Err(CallError::NotFound) => Ok(false),
            Err(error) => Err(Stopped::CallFailed { doing: "looking for the driver of another node", error }),
        }
    }

    /// Returns whether an attempt for the claim may have begun on a node that does not work. Volumes of a provisioner
    /// without a driver are lost with the node. Otherwise, only the node's journal proves that there is no attempt.
    async fn may_have_begun(&self, node: &str, key: &Key) -> Result<bool, Stopped> {
        if self.rules.node_topology.is_none() {
            return Ok(false);
        }
        if self.journal == JournalKind::Memory {
            return Ok(true);
        }
        let key = key.to_string();
        Ok(self.journal_of(node).await?.is_some_and(|Listing { entries, restored, unreadable, dropping, .. }| {
            let is_recorded = entries.iter().chain(&restored).any(|entry| entry.key == key) && !dropping.contains(&key);
            is_recorded || !unreadable.is_empty()
        }))
    }

    /// Returns the journal of another node, which its replica writes as soon as it runs.
    async fn journal_of(&self, node: &str) -> Result<Option<Listing>, Stopped> {
        let api: Api<JournalObject> = Api::namespaced_with(self.client().clone(), &self.namespace, &self.journal);
        let journal = self.request(api.get(&part_journal_name(&self.rules.names.own, node))).await;
        let journal = found(journal).map_err(Stopped::call_failed("looking for the journal of another node"))?;
        Ok(journal.as_ref().map(Listing::read))
    }
}

/// Returns whether it is our turn to check: of `count` replicas, `checkers` check in each round, and the next ones in
/// the next round. The first time, before any replica has waited, no replica checks.
pub(super) fn is_turn(waits: u32, checkers: usize, place: usize, count: usize) -> bool {
    let Some(turn) = waits.checked_sub(1).and_then(|turn| usize::try_from(turn).ok()) else { return false };
    let first = turn.wrapping_mul(checkers) % count.max(1);
    (place + count - first) % count.max(1) < checkers
}

/// Returns whether the node reports that it is not ready, in which case its replica cannot work.
fn is_unready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status != "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_take_turns() {
        let looking = |waits, checkers, count| -> Vec<usize> {
            (0..count).filter(|place| is_turn(waits, checkers, *place, count)).collect()
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
