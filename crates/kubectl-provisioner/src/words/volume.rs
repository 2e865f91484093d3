//! Decisions about claims and their volumes.

use kube_provisioner::explain::volume::{Decision, Deletion, NoAction, Refusal};

use super::{Words, mendable, title, words};

/// Explains why the controller does nothing.
pub(crate) fn rest(why: NoAction) -> Words {
    match why {
        NoAction::NothingHere => words(
            "no provisioner is asked",
            "The claim has no annotation that asks a provisioner, and there is no volume of its name.",
        ),
        NoAction::Bound => words("bound", "The claim has its volume, and nothing is to be done."),
        NoAction::Provisioned => mendable(
            "its volume is made and not bound yet",
            "The volume is saved. kube-controller-manager binds the claim to it.",
            "administrator: look at kube-controller-manager if this lasts for more than some seconds",
        ),
        NoAction::Vetoed => mendable(
            "the provisioner does not accept it",
            "The provisioner's own code has declined this claim.",
            "look at the provisioner's documentation for the claims that it accepts",
        ),
        NoAction::AwaitsAdoption => mendable(
            "waits until its attempt is taken over",
            "An attempt was begun by a replica with another number of shards, and the journal that takes it over has no room yet.",
            "wait until other attempts end; `kubectl provisioner journal` names them",
        ),
        NoAction::ClassOfAnother => mendable(
            "its class is another provisioner's",
            "The claim asks one provisioner, and its class names another one, so the first leaves it alone.",
            "delete the claim and create it again, so that kube-controller-manager asks the class's provisioner",
        ),
        NoAction::OtherNode => mendable(
            "another node's replica looks after it",
            "Every node has a replica of this provisioner, and this claim or volume is for another node.",
            "administrator: check whether the replica of that node runs",
        ),
        NoAction::OtherCluster => mendable(
            "made in another cluster",
            "The volume says that it was made in another cluster, whose provisioner may still use its data. Nothing is touched.",
            "administrator: delete the volume if it is of no use here; its data stay",
        ),
        NoAction::OtherInstallation => words(
            "another installation looks after it",
            "The volume says that another installation of this provisioner made it. Nobody else touches it.",
        ),
        NoAction::AwaitsNode => words(
            "waits for a node",
            "Its class has volumeBindingMode WaitForFirstConsumer, and the scheduler has chosen no node yet.",
        ),
        NoAction::ClaimTerminating => mendable(
            "is being deleted, and nothing was made for it",
            "Nothing is made any more for a claim that is being deleted.",
            "end the pods that use the claim, or what else its finalizers stand for",
        ),
        NoAction::NotReleased => words(
            "not released",
            "The volume is in use, or no claim was ever bound to it. It is deleted only after its claim is gone.",
        ),
        NoAction::Retained => {
            words("kept", "Its reclaim policy keeps it. The provisioner deletes neither the object nor the data.")
        }
        NoAction::ClaimStillSeen => mendable(
            "released, but its claim still exists",
            "A volume is never deleted while the claim that it names exists, whatever its phase says.",
            "delete the claim if the data may go; otherwise look at kube-controller-manager, which has released the volume",
        ),
        NoAction::VolumeTerminating => mendable(
            "is being deleted",
            "No data of the provisioner depends on it any more. Kubernetes removes the object with its last finalizer.",
            "administrator: look at the program that each remaining finalizer belongs to",
        ),
    }
}

/// Explains why a claim gets no volume, or why a volume is not deleted.
pub(crate) fn refusal(refusal: &Refusal) -> Words {
    title(match refusal {
        Refusal::AccessModes(_) => "refused: access modes",
        Refusal::AllowedTopologies => "refused: allowedTopologies",
        Refusal::AttributesClass(_) => "refused: VolumeAttributesClass",
        Refusal::BindCompleted => "lost, because an annotation was copied to it",
        Refusal::Block => "refused: block device",
        Refusal::ClassMissing(Some(_)) => "refused: its class does not exist",
        Refusal::ClassMissing(None) => "refused: it names no class",
        Refusal::Copy { .. } => "released, and its data are kept",
        Refusal::DataSource { .. } => "refused: data source",
        Refusal::Expansion => "bound, and cannot grow",
        Refusal::ImmediateClass => "refused: no node will be chosen",
        Refusal::MountOptions => "refused: mountOptions",
        Refusal::NameShared { .. } => "refused: another claim has the name of its volume",
        Refusal::NameTaken => "refused: the name of its volume is taken",
        Refusal::Nobodys => "released, and no provisioner deletes it",
        Refusal::Unreadable { .. } => "cannot be read",
        Refusal::UnreadableVolume { .. } => "cannot be read",
        Refusal::NodeGone { .. } | Refusal::PlaceGone { .. } => "its node is gone",
        Refusal::OtherCluster { .. } => "released, and made in another cluster",
        Refusal::OtherInstallation { .. } => "released, and left to another installation",
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
pub(crate) fn action(decision: &Decision) -> Option<Words> {
    Some(match decision {
        Decision::NoAction(_) | Decision::Refuse(_) => return None,
        Decision::Provision => words(
            "the provisioner is asked to make its volume",
            "Kubernetes is not blocking this claim. The provisioner is creating the volume, or retries after a failure.",
        ),
        Decision::Bid => words(
            "waits until a node takes it",
            "Each node has a replica of the provisioner, and one of those with enough space takes the claim after a random delay.",
        ),
        Decision::CleanUp => words(
            "what its attempt left is being removed",
            "An attempt began that will have no volume: its claim or its class was deleted, or created again.",
        ),
        Decision::DeleteSurplus => {
            words("a second asset is being removed", "Another process has saved the volume with another asset.")
        }
        Decision::Confirm => words(
            "is read once more",
            "Its volume was deleted while the claim looked unbound, so the provisioner asks before it makes another one.",
        ),
        Decision::ConfirmVolume => words(
            "its volume is read once more",
            "A volume exists, and an attempt is still recorded. The provisioner compares the two and ends the attempt.",
        ),
        Decision::Save => words("its volume is being saved", "The storage is made, and its object is written now."),
        Decision::LookForNode { .. } => mendable(
            "left to the replica of its node",
            "The node's replica makes the volume, or deletes the data. The others check whether the node still exists.",
            "administrator: check whether the node is there and its replica runs",
        ),
        Decision::Protect => words(
            "bound; the provisioner adds its finalizer",
            "A finalizer keeps the object until its data are deleted.",
        ),
        Decision::Unprotect => words(
            "kept; the provisioner takes its finalizer off",
            "The volume is not to be deleted with its claim, so nothing needs to hold the object.",
        ),
        Decision::Expand { .. } => words(
            "is being expanded",
            "The claim asks for more than its volume has, and the provisioner makes it larger.",
        ),
        Decision::Delete(Deletion::Protected | Deletion::Checked) => {
            words("released; the provisioner deletes it", "Its claim is gone and its reclaim policy is Delete.")
        }
        Decision::Delete(Deletion::NeverBound) => words(
            "deleted by a user before it was bound",
            "The provisioner deletes its data, and the claim gets another volume.",
        ),
        Decision::FinishDelete => words("its data are deleted", "The provisioner removes the object now."),
    })
}
