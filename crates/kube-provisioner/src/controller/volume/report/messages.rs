//! The messages of events. Each states a problem and its remedy.

use crate::controller::shared::texts::sentence;
use crate::controller::volume::decision::Refusal;
use crate::controller::volume::outcome::{MissingInput, NodeInactivity};
use crate::protocol;

/// Returns the reason why a claim does not receive a volume, or why a volume is not deleted.
pub(super) fn refusal_text(refusal: &Refusal, provisioner: &str, volume: &str, class: &str) -> String {
    match refusal {
        Refusal::AllowedTopologies => {
            format!(
                "{provisioner} does not support allowedTopologies; an administrator has to remove them from the StorageClass \"{class}\""
            )
        }
        Refusal::ImmediateClass => format!(
            "{provisioner} provisions volumes on the node that the scheduler selects; an administrator has to delete the StorageClass \"{class}\" and create it with volumeBindingMode: WaitForFirstConsumer"
        ),
        Refusal::MountOptions => {
            format!(
                "{provisioner} does not support mountOptions; an administrator has to remove them from the StorageClass \"{class}\""
            )
        }
        Refusal::Populator { kind, name } => format!(
            "waiting for a volume populator, because {provisioner} cannot fill volumes from {kind} \"{name}\"; if the cluster has no populator for it, delete the claim and create it without dataSourceRef"
        ),
        Refusal::RetainedTooLate => format!(
            "the reclaim policy of {volume} became Retain after its deletion began, so the object is kept although some of its data may be deleted; to finish the deletion, set the policy to Delete; to keep the rest of the data, remove the finalizer {}",
            protocol::FINALIZER
        ),
        Refusal::AccessModes(supported) => format!(
            "{provisioner} supports only the access modes {}; delete the claim and create it with one of them",
            supported.join(", ")
        ),
        Refusal::AttributesClass(name) => format!(
            "{provisioner} cannot honour the VolumeAttributesClass \"{name}\"; delete the claim and create it without volumeAttributesClassName"
        ),
        Refusal::BindCompleted => format!(
            "the claim has the annotation {}, which was copied from another claim, so Kubernetes considers the claim Lost and never binds a volume to it; delete the claim and create it without this annotation",
            protocol::BIND_COMPLETED
        ),
        Refusal::Block => format!(
            "{provisioner} does not support block volume provisioning; delete the claim and create it with volumeMode: Filesystem"
        ),
        Refusal::ClassMissing(Some(class)) => {
            format!(
                "storageClass \"{class}\" not found; an administrator can create it; otherwise delete the claim and create it with another class"
            )
        }
        Refusal::ClassMissing(None) => {
            "the claim names no StorageClass; delete it and create it with storageClassName".to_owned()
        }
        Refusal::DataSource { kind, name } => format!(
            "{provisioner} cannot fill a volume from {kind} \"{name}\"; delete the claim and create it without the data source, or with a class whose provisioner supports it"
        ),
        Refusal::Copy { uid } => format!(
            "the provisioner did not create the object {volume}, which may come from a backup, so its data is kept although its claim does not exist; to use the data again, remove spec.claimRef and create a claim with volumeName: {volume}; to delete the data, run: kubectl annotate pv {volume} {}={uid}",
            protocol::RELEASE
        ),
        Refusal::Expansion => expansion_text(provisioner),
        Refusal::NameShared { rival } => format!(
            "the volume name {volume} is already used by {rival}; this claim waits until that claim and its volume are deleted; to avoid the wait, delete this claim and create it again, or ask the administrator for a greater --volume-name-uuid-length"
        ),
        Refusal::NameTaken => format!(
            "a PersistentVolume named {volume} already exists and does not belong to this claim; the claim waits until an administrator deletes that object"
        ),
        Refusal::Unowned => format!(
            "another program created the released volume {volume}, so no node's replica deletes it; adopt it on its node with the provisioner's command `adopt --volume {volume}`, or delete its data and the object manually"
        ),
        Refusal::NodeGone { node } => format!(
            "volume {volume} is on the node {node}, which no longer exists, so no replica can delete its data; if the node has another name now, run the provisioner's command `root adopt` on it; if the node will return, it must keep its name; if its disk is lost, delete the volume manually"
        ),
        Refusal::NoUsableNode { place } => format!(
            "the CSI driver {provisioner} is not registered on any node with the labels {place}, so volume {volume} cannot be deleted; run the driver's pod on such a node; if the node will not return, delete the data and remove the finalizers of the volume"
        ),
        Refusal::OtherCluster { creator } => format!(
            "volume {volume} belongs to the cluster \"{creator}\", so this provisioner changes neither the volume nor its data; delete it there, or start the provisioner with --cluster-id {creator} if this cluster replaces that one"
        ),
        Refusal::OtherInstallation { creator } => format!(
            "volume {volume} belongs to the installation \"{creator}\" of {provisioner}, so this one does not change it; delete it there, or start this one with --identity {creator}"
        ),
        Refusal::Parameters(problems) => format!(
            "{}; an administrator has to delete the class and create it with correct parameters",
            parameters_text(problems)
        ),
        Refusal::ParametersCrash(_) => parameters_text(
            "the provisioner's code crashed while reading its parameters; please report this to its authors, with the provisioner's log",
        ),
        Refusal::Request(problem) => format!(
            "the provisioner cannot read the claim's storage request: {problem}; delete the claim and create it with a size such as 10Gi"
        ),
        Refusal::Unreadable { problem } => format!(
            "{provisioner} cannot read this claim, so it changes neither the claim nor its volume: {problem}; correct the claim, or delete it and create it again; if it is valid, an administrator has to upgrade the provisioner"
        ),
        Refusal::UnreadableVolume { problem } => format!(
            "{provisioner} cannot read volume {volume}, so it changes neither the volume nor its data: {problem}; correct the volume, or upgrade the provisioner if the volume is valid"
        ),
        Refusal::SourceNamespace { namespace, name } => format!(
            "{provisioner} cannot fill a volume from \"{name}\" in another namespace, {namespace}; delete the claim and create it there, or create it without the namespace in its dataSourceRef"
        ),
        Refusal::Unadopted => format!(
            "another program created the volume {volume}, so no node's replica expands it; an administrator can adopt it on its node with the provisioner's command `adopt --volume {volume}`"
        ),
        Refusal::Unreleased { uid } => format!(
            "volume {volume} is being deleted after its spec.claimRef was removed, so it is not Released and the provisioner keeps its data; to delete the data, run: kubectl annotate pv {volume} {}={uid}; to keep the data, set the reclaim policy to Retain",
            protocol::RELEASE
        ),
        Refusal::Selector => format!(
            "{provisioner} cannot provision a volume for a selector; delete the claim and create it without spec.selector, or ask the administrator for a volume that the selector matches"
        ),
    }
}

/// Returns the message about an unsupported expansion, which the user cannot withdraw: a claim's request cannot be
/// lowered to its current size.
pub(super) fn expansion_text(provisioner: &str) -> String {
    format!(
        "{provisioner} cannot expand volumes; to get more space, create a larger claim and copy the data; an administrator can remove allowVolumeExpansion from the StorageClass"
    )
}

/// `check-class` uses the same message.
pub(crate) fn parameters_text(problems: &str) -> String {
    format!("the claim's StorageClass cannot be used: {problems}")
}

pub(super) fn no_room_text(provisioner: &str) -> String {
    format!(
        "The claim waits for a node on which {provisioner} has room for the volume; at least one node has too little free space or is excluded by the allowedTopologies of the class; free space, change the class, or delete the claim and create it with a smaller size"
    )
}

pub(super) fn node_inactivity_text(provisioner: &str, node: &str, why: NodeInactivity, volume: &str) -> String {
    let other = format!("to use another node, remove the claim's annotation {}", protocol::SELECTED_NODE);
    match why {
        NodeInactivity::NotReady => format!(
            "The selected node {node} is not ready, and only the replica of {provisioner} there can provision the volume; the claim waits until the node is back; {other}"
        ),
        NodeInactivity::NoReplica => format!(
            "No replica of {provisioner} has run on the selected node {node}, and only a replica on that node can provision the volume; keep the claim's pod off that node, or ask the administrator to let the provisioner's pods run there (node selector, tolerations); {other}"
        ),
        NodeInactivity::MayHaveBegun => format!(
            "The selected node {node} does not exist or lacks the driver of {provisioner}, and the volume may have been created there; the claim waits until the node is back; if it will not return, remove the volume from its storage, drop the record with the command `journal drop {volume}`, and remove the claim's annotation {}",
            protocol::SELECTED_NODE
        ),
        NodeInactivity::Unrecorded => format!(
            "The selected node {node} does not exist or lacks the driver of {provisioner}, and the volume may have been created there, because attempts are not recorded; the claim waits until the node is back; if it will not return, remove the volume from its storage, and remove the claim's annotation {}",
            protocol::SELECTED_NODE
        ),
        NodeInactivity::Replica => format!(
            "The replica of {provisioner} on the selected node {node} has not provisioned the volume yet; if no other event on the claim gives the reason, an administrator can check whether the provisioner's pod runs on that node; {other}"
        ),
    }
}

pub(super) fn missing_input_text(missing: &MissingInput) -> String {
    match missing {
        MissingInput::Node(name) => format!("The selected node {name} does not exist"),
        MissingInput::Secret { namespace, name } => {
            format!("The Secret {namespace}/{name} does not exist; an administrator has to create it")
        }
        MissingInput::SecretName(problem) => sentence(problem),
    }
}
