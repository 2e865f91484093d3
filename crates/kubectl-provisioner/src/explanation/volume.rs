//! Decisions about claims and their volumes.

use kube_provisioner::explain::volume::{Decision, Deletion, NoAction, Refusal};

use super::{Explanation, state_only, with_remedy, without_remedy};

/// Explains why the controller does nothing.
pub(crate) fn no_action(why: NoAction) -> Explanation {
    match why {
        NoAction::Unrelated => without_remedy(
            "no provisioner is assigned",
            "The claim has no annotation that assigns a provisioner, and no volume with its name exists.",
        ),
        NoAction::Bound => without_remedy("bound", "The claim has its volume, and no action is needed."),
        NoAction::Provisioned => with_remedy(
            "its volume was created and is not bound yet",
            "The volume is saved. kube-controller-manager binds the claim to it.",
            "administrator: check kube-controller-manager if this lasts for more than a few seconds",
        ),
        NoAction::Vetoed => with_remedy(
            "the provisioner does not accept it",
            "The provisioner's own code has declined this claim.",
            "see the provisioner's documentation for the claims that it accepts",
        ),
        NoAction::AwaitsAdoption => with_remedy(
            "waits until its attempt is taken over",
            "An attempt was begun by a replica with another number of shards, and the journal that takes it over is full.",
            "wait until other attempts end; `kubectl provisioner journal` names them",
        ),
        NoAction::ForeignClass => with_remedy(
            "its class is another provisioner's",
            "The claim is assigned to one provisioner, and its class names another one, so the first one ignores the claim.",
            "delete the claim and create it again, so that kube-controller-manager assigns the class's provisioner",
        ),
        NoAction::OtherNode => with_remedy(
            "managed by the replica on another node",
            "Every node has a replica of this provisioner, and this claim or volume is for another node.",
            "administrator: check whether the replica of that node runs",
        ),
        NoAction::OtherCluster => with_remedy(
            "created in another cluster",
            "The volume records that it was created in another cluster, whose provisioner may still use its data. This provisioner does not change it.",
            "administrator: delete the volume if it is not needed here; its data is kept",
        ),
        NoAction::OtherInstallation => without_remedy(
            "managed by another installation",
            "The volume records that another installation of this provisioner created it. Only that installation changes it.",
        ),
        NoAction::AwaitsNode => without_remedy(
            "waits for a node",
            "Its class has volumeBindingMode WaitForFirstConsumer, and the scheduler has chosen no node yet.",
        ),
        NoAction::ClaimTerminating => with_remedy(
            "is being deleted without ever having had a volume",
            "The provisioner creates no volume for a claim that is being deleted.",
            "delete the pods that use the claim, and remove the causes of its other finalizers",
        ),
        NoAction::NotReleased => without_remedy(
            "not released",
            "The volume is in use, or no claim was ever bound to it. It is deleted only after its claim is deleted.",
        ),
        NoAction::Retained => without_remedy(
            "kept",
            "Its reclaim policy keeps it. The provisioner deletes neither the object nor the data.",
        ),
        NoAction::ClaimStillExists => with_remedy(
            "released, but its claim still exists",
            "The provisioner never deletes a volume while the claim that it names exists, in any phase.",
            "delete the claim if the data may be deleted; otherwise check kube-controller-manager, which has released the volume",
        ),
        NoAction::VolumeTerminating => with_remedy(
            "is being deleted",
            "The provisioner has no data left to delete for it. Kubernetes removes the object with its last finalizer.",
            "administrator: check the controller that each remaining finalizer belongs to",
        ),
    }
}

/// Explains why a claim gets no volume, or why a volume is not deleted.
pub(crate) fn refusal(refusal: &Refusal) -> Explanation {
    state_only(match refusal {
        Refusal::AccessModes(_) => "refused: access modes",
        Refusal::AllowedTopologies => "refused: allowedTopologies",
        Refusal::AttributesClass(_) => "refused: VolumeAttributesClass",
        Refusal::BindCompleted => "lost, because an annotation was copied to it",
        Refusal::Block => "refused: block device",
        Refusal::ClassMissing(Some(_)) => "refused: its class does not exist",
        Refusal::ClassMissing(None) => "refused: it names no class",
        Refusal::Copy { .. } => "released, and its data is kept",
        Refusal::DataSource { .. } => "refused: data source",
        Refusal::Expansion => "bound, and cannot grow",
        Refusal::ImmediateClass => "refused: the scheduler selects no node",
        Refusal::MountOptions => "refused: mountOptions",
        Refusal::NameShared { .. } => "refused: another claim has the name of its volume",
        Refusal::NameTaken => "refused: the name of its volume is taken",
        Refusal::Unowned => "released, and no provisioner deletes it",
        Refusal::Unreadable { .. } => "cannot be read",
        Refusal::UnreadableVolume { .. } => "cannot be read",
        Refusal::NodeGone { .. } => "its node does not exist",
        Refusal::NoUsableNode { .. } => "no node has its driver",
        Refusal::OtherCluster { .. } => "released, and created in another cluster",
        Refusal::OtherInstallation { .. } => "released, and managed by another installation",
        Refusal::Parameters(_) => "refused: its class cannot be used",
        Refusal::ParametersCrash(_) => "refused: its class cannot be read",
        Refusal::Populator { .. } => "waits for a volume populator",
        Refusal::Request(_) => "refused: its size cannot be read",
        Refusal::RetainedTooLate => "kept after its deletion had begun",
        Refusal::SourceNamespace { .. } => "refused: data source of another namespace",
        Refusal::Unadopted => "bound, and no provisioner expands it",
        Refusal::Unreleased { .. } => "is being deleted, and its data is kept",
        Refusal::Selector => "refused: label selector",
    })
}

/// Explains what the controller does. Returns `None` if it does nothing or refuses.
pub(crate) fn action(decision: &Decision) -> Option<Explanation> {
    Some(match decision {
        Decision::NoAction(_) | Decision::Refuse(_) => return None,
        Decision::Provision => without_remedy(
            "waits for the provisioner to create its volume",
            "Kubernetes is not blocking this claim. The provisioner is creating the volume, or retries after a failure.",
        ),
        Decision::Bid => without_remedy(
            "waits until a node takes it",
            "Each node has a replica of the provisioner, and one of those with enough space takes the claim after a random delay.",
        ),
        Decision::CleanUp => without_remedy(
            "the leftovers of its attempt are being removed",
            "The attempt will not produce a volume, because its claim or class was deleted or recreated.",
        ),
        Decision::DeleteSurplus => without_remedy(
            "a second asset is being removed",
            "Another process has saved the volume with another asset.",
        ),
        Decision::Confirm => without_remedy(
            "is read again",
            "Its volume was deleted while the claim looked unbound, so the provisioner reads it again before it creates another volume.",
        ),
        Decision::ConfirmVolume => without_remedy(
            "its volume is read again",
            "A volume exists, and an attempt is still recorded. The provisioner compares the two and ends the attempt.",
        ),
        Decision::Save => {
            without_remedy("its volume is being saved", "The storage exists, and the provisioner writes its object.")
        }
        Decision::CheckNode { .. } => with_remedy(
            "left to the replica of its node",
            "The node's replica creates the volume, or deletes the data. The others check whether the node still exists.",
            "administrator: check whether the node exists and its replica runs",
        ),
        Decision::Protect => without_remedy(
            "bound; the provisioner adds its finalizer",
            "A finalizer keeps the object until its data is deleted.",
        ),
        Decision::Unprotect => without_remedy(
            "kept; the provisioner removes its finalizer",
            "The volume is not deleted with its claim, so it needs no finalizer.",
        ),
        Decision::Expand { .. } => without_remedy(
            "is being expanded",
            "The claim requests more than its volume has, and the provisioner expands the volume.",
        ),
        Decision::Delete(Deletion::Protected | Deletion::Checked) => without_remedy(
            "released; the provisioner deletes it",
            "Its claim is deleted and its reclaim policy is Delete.",
        ),
        Decision::Delete(Deletion::NeverBound) => without_remedy(
            "deleted by a user before it was bound",
            "The provisioner deletes its data, and the claim receives another volume.",
        ),
        Decision::FinishDelete => without_remedy("its data is deleted", "The provisioner removes the object now."),
    })
}
