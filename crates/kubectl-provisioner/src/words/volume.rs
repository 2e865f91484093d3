//! Decisions about claims and their volumes.

use kube_provisioner::explain::volume::{Decision, Deletion, NoAction, Refusal};

use super::{CLASS, Words, mendable, words};

/// Why the controller rests.
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

/// Why a claim gets no volume, or a volume is not deleted. The provisioner's message says what to do.
pub(crate) fn refusal(refusal: &Refusal) -> Words {
    match refusal {
        Refusal::AccessModes(_) => {
            words("refused: access modes", "A volume would be bound without the access mode that was asked for.")
        }
        Refusal::AllowedTopologies => {
            words("refused: allowedTopologies", "The volume might be where the class does not allow it.")
        }
        Refusal::AttributesClass(_) => {
            words("refused: VolumeAttributesClass", "The volume would not have the attributes that were asked for.")
        }
        Refusal::BindCompleted => words(
            "lost, because an annotation was copied to it",
            "Its annotations say that it was bound, and it names no volume. Kubernetes never binds such a claim.",
        ),
        Refusal::Block => words("refused: block device", "A file system would be where the claim wants a device."),
        Refusal::ClassMissing(Some(_)) => {
            words("refused: its class does not exist", "Only the class says how the volume is made.")
        }
        Refusal::ClassMissing(None) => words("refused: it names no class", "Only a class says how the volume is made."),
        Refusal::Copy { .. } => words(
            "released, and its data are kept",
            "Somebody else created the object, perhaps from a backup, so nobody knows whether its claim was ever here.",
        ),
        Refusal::DataSource { .. } => {
            words("refused: data source", "The claim would get an empty volume instead of a copy.")
        }
        Refusal::Expansion => {
            words("bound, and cannot grow", "The claim asks for more than its volume has. The volume stays usable.")
        }
        Refusal::ImmediateClass => words(
            "refused: no node will be chosen",
            "Each node makes its own volumes, and only the scheduler can say which node it is.",
        ),
        Refusal::MountOptions => {
            words("refused: mountOptions", "The volume would be mounted without the options of its class.")
        }
        Refusal::NameShared { .. } => words(
            "refused: another claim has the name of its volume",
            "Volumes are named after a part of the claim's uid, and both uids begin with the same part.",
        ),
        Refusal::NameTaken => words(
            "refused: the name of its volume is taken",
            "Each claim's volume has one name, and a volume of that name is somebody else's.",
        ),
        Refusal::Nobodys => words(
            "released, and nobody deletes it",
            "It names no installation, and each node's replica serves only what it has made or adopted.",
        ),
        Refusal::Unreadable { .. } => {
            words("cannot be read", "Nothing is done about a claim that the provisioner does not understand.")
        }
        Refusal::UnreadableVolume { .. } => {
            words("cannot be read", "Nothing is done about a volume that the provisioner does not understand.")
        }
        Refusal::NodeGone { .. } => words("its node is gone", "Only that node's replica can delete the data."),
        Refusal::OtherCluster { .. } => words(
            "released, and made in another cluster",
            "Two clusters may share a backend, so nobody deletes what the other one has made.",
        ),
        Refusal::OtherInstallation { .. } => words(
            "released, and left to another installation",
            "Two installations may share a backend, so nobody deletes what the other one has made.",
        ),
        Refusal::Parameters(_) => {
            mendable("refused: its class cannot be used", "The parameters of the class are wrong.", CLASS)
        }
        Refusal::ParametersCrash(_) => {
            words("refused: its class cannot be read", "The provisioner's code crashes on the parameters of the class.")
        }
        Refusal::Populator { .. } => words(
            "waits for a volume populator",
            "Another program fills the volume, and this provisioner makes none meanwhile.",
        ),
        Refusal::Request(_) => words("refused: its size cannot be read", "Nobody knows how large the volume is to be."),
        Refusal::RetainedTooLate => words(
            "kept after its deletion had begun",
            "Only the object leads to what is left in the backend, so it stays.",
        ),
        Refusal::SourceNamespace { .. } => words(
            "refused: data source of another namespace",
            "Only a ReferenceGrant would permit the copy, and this provisioner does not look for one.",
        ),
        Refusal::Unadopted => words(
            "bound, and nobody expands it",
            "Its volume names no installation, and each node's replica serves only what it has made or adopted.",
        ),
        Refusal::Unreleased { .. } => words(
            "is being deleted, and its data is kept",
            "Its claimRef was removed, so it is not Released. An administrator has to confirm that the data may be deleted.",
        ),
        Refusal::Selector => words("refused: label selector", "A new volume would not be one that the claim selects."),
    }
}

/// What the controller does. `None` where it rests or refuses.
pub(crate) fn action(decision: &Decision) -> Option<Words> {
    Some(match decision {
        Decision::NoAction(_) | Decision::Refuse(_) => return None,
        Decision::Provision => words(
            "the provisioner is asked to make its volume",
            "Nothing stands in the way on Kubernetes' side. The provisioner makes the volume now, or tries again after a failure.",
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
