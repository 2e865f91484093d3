//! The rules: a pure function from the facts about a key to a decision.

use std::sync::Arc;

use provisioner_runtime::Backoff;

use super::decision::{Decision, Deletion, NoAction, Refusal};
use super::facts::{
    ClaimFacts, ClaimState, ClassState, DataSource, Facts, OurClass, Phase, Progress, ReclaimPolicy, UnreadableClaim,
    VolumeFacts, VolumeState,
};
use super::names::VolumeNames;
use super::node_topology::NodeTopology;
use super::partial::{self, ClaimRef};
use super::safeguards::{Safeguard, Safeguards};
use crate::capabilities::{AccessMode, Capabilities};
use crate::controller::shared::class_parameters::BadParameters;
use crate::controller::shared::names::ProvisionerNames;

/// The provisioner's own properties that the rules need.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) names: ProvisionerNames,
    pub(crate) volume_names: VolumeNames,
    pub(crate) capabilities: Capabilities,
    /// New volumes receive our finalizer, so that a volume cannot be deleted before its asset.
    pub(crate) finalizer: bool,
    /// The identity of this installation. Volumes of another installation are not ours. `None` for the sidecar of a CSI
    /// driver, since the driver's name already identifies the installation.
    pub(crate) identity: Option<Box<str>>,
    /// The ID of this cluster. Volumes of another cluster are not ours.
    pub(crate) cluster_id: Arc<str>,
    /// The node whose claims and volumes are ours, if every node has its own replica.
    pub(crate) node: Option<Box<str>>,
    /// The place of that node, if it decides which volumes are ours. In that case our identity is the identity of the
    /// place.
    pub(crate) node_topology: Option<NodeTopology>,
    /// The delays before bids for claims that do not wait for a pod, if this node takes such claims.
    pub(crate) bids: Option<Backoff>,
    pub(crate) safeguards: Safeguards,
}

impl Rules {
    /// Reads the facts about a volume. Returns `None` if the object lacks fields that every stored object has.
    pub(crate) fn read(&self, volume: &partial::VolumeFields) -> Option<VolumeFacts> {
        let mut facts = VolumeFacts::read(volume)?;
        if let Some(place) = &self.node_topology {
            let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
            facts.identity = Some(place.identity_of(affinity));
        }
        Some(facts)
    }

    /// Returns the identity to record on new volumes.
    pub(crate) fn identity_to_record(&self) -> Option<&str> {
        self.identity.as_deref().filter(|_| self.node_topology.is_none())
    }

    /// Returns whether another installation, or another node's replica, created this volume.
    pub(crate) fn created_elsewhere(&self, volume: &VolumeFacts) -> bool {
        if !self.safeguards.include(Safeguard::Identity) {
            return false;
        }
        if self.in_other_cluster(volume) {
            return true;
        }
        match &volume.identity {
            Some(identity) => self.identity.as_ref().is_some_and(|own| own != identity),
            // A volume without an identity may be on any node.
            None => self.node.is_some(),
        }
    }

    /// Returns whether the volume was created in another cluster. A volume without a cluster ID was created by a
    /// version that did not record it. An empty ID was unknown at creation; then only the record of the object's
    /// creation shows a copy.
    fn in_other_cluster(&self, volume: &VolumeFacts) -> bool {
        let known = volume.cluster_id.as_deref().filter(|id| !id.is_empty() && !self.cluster_id.is_empty());
        let other = known.is_some_and(|id| *id != *self.cluster_id);
        other && self.safeguards.include(Safeguard::Cluster)
    }

    /// Returns whether the identity of an installation is the name of its node.
    fn is_named_by_node(&self) -> bool {
        self.node.is_some() && self.node == self.identity
    }

    /// Returns whether the annotations name this provisioner as the volume's creator.
    pub(crate) fn named_in(&self, annotations: &partial::Annotations) -> bool {
        annotations.provisioned_by.as_deref().is_some_and(|name| self.names.include(name))
    }

    /// Returns whether this provisioner created the volume, according to the annotation. Without the annotation, the
    /// CSI driver decides, or the driver that the volume was migrated to.
    pub(crate) fn owns(&self, volume: &partial::VolumeFields) -> bool {
        if !self.safeguards.include(Safeguard::Ownership) {
            return true;
        }
        let annotations = &volume.metadata.annotations;
        let migrated = annotations.migrated_to.as_deref().is_some_and(|name| self.names.include(name));
        if let Some(by) = &annotations.provisioned_by {
            return self.names.include(by) || migrated;
        }
        match volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
            Some(csi) => self.names.include(&csi.driver),
            None => migrated,
        }
    }
}

pub(crate) fn decide(facts: &Facts, rules: &Rules) -> Decision {
    match (&facts.progress, &facts.volume) {
        (Progress::AwaitsAdoption, _) => Decision::NoAction(NoAction::AwaitsAdoption),
        (Progress::Surplus(_), _) => Decision::DeleteSurplus,
        (Progress::Unsaved(_), VolumeState::Absent) => Decision::Save,
        // Another installation's volume has the name. Continuing the attempt finds and removes what it has created.
        (Progress::Background(_) | Progress::Unsaved(_), VolumeState::Ours(volume))
            if rules.created_elsewhere(&volume.facts) =>
        {
            about_attempt(facts)
        }
        (Progress::Unsaved(unsaved), VolumeState::Ours(volume))
            if volume.facts.deleting && unsaved.after.as_ref() == Some(&volume.facts.uid) =>
        {
            about_volume(&volume.facts, facts, rules)
        }
        // The asset may differ from the volume's asset. Saving it compares the two.
        (Progress::Unsaved(_), VolumeState::Ours(_)) => Decision::Save,
        (Progress::Background(_), VolumeState::Ours(_)) => Decision::ConfirmVolume,
        (_, VolumeState::Unreadable(volume)) => {
            Decision::Refuse(Refusal::UnreadableVolume { problem: volume.problem.clone() })
        }
        (_, VolumeState::Ours(volume)) => about_volume(&volume.facts, facts, rules),
        // An attempt whose claim no longer exists waits as well: the foreign volume may contain its asset.
        (_, VolumeState::Unmanaged) => match (&facts.claim, facts.attempt()) {
            (ClaimState::Waiting(_), _) | (ClaimState::Absent, Some(_)) => Decision::Refuse(Refusal::NameTaken),
            _ => Decision::NoAction(NoAction::Unrelated),
        },
        (_, VolumeState::Absent) => about_claim(facts, rules),
    }
}

/// Decides about an attempt that may have left something in the backend. It continues while its claim requests the
/// volume, with the class as it was when the attempt began.
fn about_attempt(facts: &Facts) -> Decision {
    let Progress::Background(pending) = &facts.progress else { return Decision::Save };
    match (&facts.claim, &facts.class) {
        (ClaimState::Unreadable(claim), _) if !claim.facts.deleting => unreadable(claim),
        (ClaimState::Unreadable(_) | ClaimState::Absent | ClaimState::Bound { .. }, _) => Decision::CleanUp,
        (ClaimState::Waiting(claim), _) if claim.facts.deleting => Decision::CleanUp,
        (_, ClassState::Unmanaged) => Decision::CleanUp,
        (_, ClassState::Ours(class)) if class.replaces(&pending.class) => Decision::CleanUp,
        _ => Decision::Provision,
    }
}

fn unreadable(claim: &UnreadableClaim) -> Decision {
    Decision::Refuse(Refusal::Unreadable { problem: claim.problem.clone() })
}

fn about_claim(facts: &Facts, rules: &Rules) -> Decision {
    if matches!(facts.progress, Progress::Background(_)) {
        return about_attempt(facts);
    }
    let waiting = match &facts.claim {
        ClaimState::Absent => return Decision::NoAction(NoAction::Unrelated),
        ClaimState::Bound { .. } => return Decision::NoAction(NoAction::Bound),
        ClaimState::Unreadable(claim) => return unreadable(claim),
        ClaimState::Waiting(claim) => claim,
    };
    let claim = &waiting.facts;
    let class = match &facts.class {
        ClassState::Missing => {
            return Decision::Refuse(Refusal::ClassMissing(claim.class.as_deref().map(str::to_owned)));
        }
        ClassState::Unmanaged => return Decision::NoAction(NoAction::ForeignClass),
        ClassState::Ours(class) => class,
    };
    if let Some(node) = &rules.node {
        match &claim.selected_node {
            Some(selected) if selected == node => {}
            None if !class.waits_for_consumer && !claim.deleting => {
                return match (&rules.bids, &rules.node_topology) {
                    (Some(_), _) => Decision::Bid,
                    // Another program selects the node.
                    (None, Some(_)) => Decision::NoAction(NoAction::AwaitsNode),
                    (None, None) => Decision::Refuse(Refusal::ImmediateClass),
                };
            }
            // Only replicas on other nodes can detect that the selected node no longer exists or has no replica.
            Some(selected) if !claim.deleting => return Decision::CheckNode { name: selected.to_string() },
            _ => return Decision::NoAction(NoAction::OtherNode),
        }
    }
    if class.waits_for_consumer && claim.selected_node.is_none() {
        return Decision::NoAction(NoAction::AwaitsNode);
    }
    if claim.deleting {
        return Decision::NoAction(NoAction::ClaimTerminating);
    }
    if let Some(refusal) = refusal(claim, class, &rules.capabilities) {
        return Decision::Refuse(refusal);
    }
    if let Some(rival) = &facts.rival {
        return Decision::Refuse(Refusal::NameShared { rival: rival.clone() });
    }
    match facts.progress {
        Progress::Confirm => Decision::Confirm,
        _ => Decision::Provision,
    }
}

/// Refuses a request that the provisioner does not support, since Kubernetes would bind the claim to an unsuitable
/// volume.
pub(crate) fn refusal(claim: &ClaimFacts, class: &OurClass, can: &Capabilities) -> Option<Refusal> {
    if claim.bind_completed {
        return Some(Refusal::BindCompleted);
    }
    if let Err(error) = &claim.request {
        return Some(Refusal::Request(error.clone()));
    }
    if claim.block && !can.block {
        return Some(Refusal::Block);
    }
    if let Some(supported) = &can.access_modes {
        let unsupported = |mode: &&String| !supported.iter().any(|one| one.as_str() == mode.as_str());
        if let Some(_first) = claim.access_modes.iter().find(unsupported) {
            return Some(Refusal::AccessModes(
                supported.iter().copied().map(AccessMode::as_str).map(Into::into).collect(),
            ));
        }
    }
    if claim.selector && !can.selectors {
        return Some(Refusal::Selector);
    }
    // An empty volume would replace the one that the source's own provisioner creates.
    if let Some(source) = &claim.data_source
        && !can.data_sources.contains(&source.type_name())
    {
        let (kind, name) = (source.type_name(), source.name.clone());
        let populated = source.needs_populator();
        return Some(if populated { Refusal::Populator { kind, name } } else { Refusal::DataSource { kind, name } });
    }
    // Only a ReferenceGrant gives access to a source in another namespace, and only the author's code can check it.
    if let Some(DataSource { namespace: Some(namespace), name, .. }) = &claim.data_source
        && **namespace != *claim.namespace
        && !can.sources_of_other_namespaces
    {
        return Some(Refusal::SourceNamespace { namespace: namespace.clone(), name: name.clone() });
    }
    let of_class = &class.object;
    if !can.allowed_topologies && of_class.allowed_topologies.as_ref().is_some_and(|terms| !terms.is_empty()) {
        return Some(Refusal::AllowedTopologies);
    }
    if !can.mount_options && of_class.mount_options.as_ref().is_some_and(|options| !options.is_empty()) {
        return Some(Refusal::MountOptions);
    }
    if let (Some(name), false) = (&claim.attributes_class, can.volume_attributes_classes) {
        return Some(Refusal::AttributesClass(name.to_string()));
    }
    match &class.parameters {
        Ok(_) => None,
        Err(BadParameters::Invalid(problems)) => Some(Refusal::Parameters(problems.clone())),
        Err(BadParameters::Crashed(panic)) => Some(Refusal::ParametersCrash(panic.clone())),
    }
}

fn about_volume(volume: &VolumeFacts, facts: &Facts, rules: &Rules) -> Decision {
    if rules.created_elsewhere(volume) {
        let ends = volume.phase == Phase::Released || volume.is_deleted_unreleased();
        let released = ends && volume.policy == ReclaimPolicy::Delete;
        let here = rules.node.is_none() || volume.identity == rules.identity;
        if let Some(cluster) = volume.cluster_id.as_deref().filter(|_| here && rules.in_other_cluster(volume)) {
            return if released {
                Decision::Refuse(Refusal::OtherCluster { creator: cluster.to_owned() })
            } else {
                Decision::NoAction(NoAction::OtherCluster)
            };
        }
        return match &volume.identity {
            // Only this refusal shows the user that the node no longer exists.
            Some(identity) if released && (rules.is_named_by_node() || rules.node_topology.is_some()) => {
                Decision::CheckNode { name: identity.to_string() }
            }
            None if rules.node.is_some() && growth(volume, facts).is_some() => Decision::Refuse(Refusal::Unadopted),
            // No replica considers the volume its own.
            None if released && rules.node.is_some() => Decision::Refuse(Refusal::Unowned),
            _ if rules.node.is_some() => Decision::NoAction(NoAction::OtherNode),
            Some(identity) if released => {
                Decision::Refuse(Refusal::OtherInstallation { creator: identity.to_string() })
            }
            _ => Decision::NoAction(NoAction::OtherInstallation),
        };
    }
    if let Progress::BackendDeleted { uid, finished } = &facts.progress
        && *uid == volume.uid
    {
        return if *finished { Decision::NoAction(NoAction::VolumeTerminating) } else { Decision::FinishDelete };
    }
    if let ClaimState::Waiting(claim) = &facts.claim
        && volume.claim.as_ref().is_none_or(|other| *other.uid != *claim.facts.uid)
    {
        return Decision::Refuse(Refusal::NameTaken);
    }
    let can = &rules.capabilities;
    match (reclaim(volume, facts, rules), growth(volume, facts).filter(|_| !can.expanded_elsewhere)) {
        (Decision::NoAction(NoAction::Bound | NoAction::Retained), Some(_)) if !can.expansion => {
            Decision::Refuse(Refusal::Expansion)
        }
        (Decision::NoAction(NoAction::Bound | NoAction::Retained), Some(bytes)) => Decision::Expand { bytes },
        (decision, _) => decision,
    }
}

/// Returns the size to which the volume has to grow, if it and its claim are bound to each other and the claim requests
/// more. The API server accepts such a request only if the class allows expansion.
fn growth(volume: &VolumeFacts, facts: &Facts) -> Option<u64> {
    let growing = facts.growing()?;
    let ClaimFacts { uid, namespace, name, deleting, .. } = &growing.claim;
    let bound = |claim: &ClaimRef| *claim.uid == **uid && *claim.namespace == **namespace && *claim.name == **name;
    let grows =
        volume.phase == Phase::Bound && !deleting && !volume.deleting && volume.claim.as_ref().is_some_and(bound);
    grows.then(|| growing.target(volume.capacity))
}

/// Decides whether to keep, protect or delete the volume.
fn reclaim(volume: &VolumeFacts, facts: &Facts, rules: &Rules) -> Decision {
    let released = volume.phase == Phase::Released;
    match volume.policy {
        // Only the object leads to the asset, and only the finalizer keeps the object.
        ReclaimPolicy::Keep if volume.protected && volume.deleting && released => {
            Decision::Refuse(Refusal::RetainedTooLate)
        }
        ReclaimPolicy::Keep if volume.protected => Decision::Unprotect,
        ReclaimPolicy::Keep => Decision::NoAction(NoAction::Retained),
        ReclaimPolicy::Delete if released => release(volume, facts, rules),
        ReclaimPolicy::Delete if volume.deleting && volume.protected && is_awaited(volume, facts) => {
            Decision::Delete(Deletion::NeverBound)
        }
        ReclaimPolicy::Delete if volume.protected && volume.is_deleted_unreleased() => {
            if volume.confirmed {
                Decision::Delete(Deletion::Protected)
            } else {
                Decision::Refuse(Refusal::Unreleased { uid: volume.uid.to_string() })
            }
        }
        ReclaimPolicy::Delete if volume.deleting => Decision::NoAction(NoAction::VolumeTerminating),
        ReclaimPolicy::Delete if volume.phase == Phase::Bound && rules.finalizer && !volume.protected => {
            Decision::Protect
        }
        ReclaimPolicy::Delete if volume.protected && !rules.finalizer => Decision::Unprotect,
        ReclaimPolicy::Delete if volume.phase == Phase::Bound => Decision::NoAction(NoAction::Bound),
        ReclaimPolicy::Delete if matches!(facts.claim, ClaimState::Waiting(_)) => {
            Decision::NoAction(NoAction::Provisioned)
        }
        ReclaimPolicy::Delete => Decision::NoAction(NoAction::NotReleased),
    }
}

/// Returns whether a claim waits to be bound to this volume.
fn is_awaited(volume: &VolumeFacts, facts: &Facts) -> bool {
    let ClaimState::Waiting(claim) = &facts.claim else { return false };
    let for_claim = volume.claim.as_ref().is_some_and(|other| *other.uid == *claim.facts.uid);
    for_claim && matches!(volume.phase, Phase::Pending | Phase::Available)
}

fn release(volume: &VolumeFacts, facts: &Facts, rules: &Rules) -> Decision {
    // A controller-manager with an old cache may release the volume of an existing claim.
    if facts.owner_exists {
        return Decision::NoAction(NoAction::ClaimStillExists);
    }
    if volume.unproven && rules.safeguards.include(Safeguard::Copies) {
        return Decision::Refuse(Refusal::Copy { uid: volume.uid.to_string() });
    }
    match (volume.protected, volume.deleting) {
        (true, _) => Decision::Delete(Deletion::Protected),
        (false, true) => Decision::NoAction(NoAction::VolumeTerminating),
        (false, false) => Decision::Delete(Deletion::Checked),
    }
}
