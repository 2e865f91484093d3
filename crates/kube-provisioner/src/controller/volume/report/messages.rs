//! The messages of events. Each says what is wrong and what to do about it.

use provisioner_runtime::controller::NoAnswer;

use crate::controller::volume::decide::Refusal;
use crate::controller::volume::outcome::MissingInput;
use crate::protocol;

/// Why a claim gets no volume, or why a volume is not deleted.
pub(super) fn refusal_text(refusal: &Refusal, provisioner: &str, volume: &str, class: &str) -> String {
    match refusal {
        Refusal::AllowedTopologies => format!(
            "{provisioner} does not heed allowedTopologies; remove them from the StorageClass \"{class}\", or its volumes would be anywhere"
        ),
        Refusal::AttemptOfOtherClass => format!(
            "an attempt for this claim was begun with other parameters of the StorageClass \"{class}\"; make the class as it was, or look in the backend for what {volume} may have left there, remove it and then the finalizer {} from the claim",
            protocol::CLAIM_FINALIZER
        ),
        Refusal::ImmediateClass => format!(
            "{provisioner} makes volumes on the node that the scheduler has chosen, and the StorageClass \"{class}\" lets it choose none; create the class with volumeBindingMode: WaitForFirstConsumer"
        ),
        Refusal::MountOptions => {
            format!("{provisioner} does not support mountOptions; remove them from the StorageClass \"{class}\"")
        }
        Refusal::Populator { kind, name } => format!(
            "waiting for a volume populator: {provisioner} does not fill volumes from {kind} \"{name}\"; if nothing here does, remove the claim's dataSourceRef"
        ),
        Refusal::RetainedTooLate => format!(
            "the reclaim policy became Retain after the deletion of {volume} had begun; the object is kept, and some of its data may be gone: set the policy back to Delete to end it, or remove the finalizer {} to forget it",
            protocol::FINALIZER
        ),
        Refusal::AccessModes(supported) => format!(
            "{provisioner} supports the access modes {} only; create the claim with one of them",
            supported.join(", ")
        ),
        Refusal::AttributesClass(name) => format!(
            "{provisioner} cannot honour the VolumeAttributesClass \"{name}\"; remove volumeAttributesClassName from the claim"
        ),
        Refusal::Block => format!(
            "{provisioner} does not support block volume provisioning; create the claim with volumeMode: Filesystem"
        ),
        Refusal::ClassMissing(Some(class)) => {
            format!("storageClass \"{class}\" not found; create it, or create the claim with another class")
        }
        Refusal::ClassMissing(None) => "the claim names no StorageClass; create it with storageClassName".to_owned(),
        Refusal::DataSource { kind, name } => format!(
            "{provisioner} cannot fill a volume from {kind} \"{name}\"; remove the claim's data source, or use a class whose provisioner can"
        ),
        Refusal::Expansion => expansion_text(provisioner),
        Refusal::NameTaken => format!(
            "a PersistentVolume named {volume} exists already and is not this claim's; nothing is touched until it is gone"
        ),
        Refusal::NodeGone { node } => format!(
            "volume {volume} is on the node {node}, which does not exist any more, so nobody deletes its data; delete the volume by hand if they are gone, or bring the node back under its name"
        ),
        Refusal::OtherInstallation { maker } => format!(
            "volume {volume} was made by the installation \"{maker}\" of {provisioner} and is left alone; delete it there, or start this one with --identity {maker}"
        ),
        Refusal::Parameters(problems) => parameters_text(problems),
        Refusal::ParametersCrash(panic) => {
            parameters_text(&format!("the provisioner's code crashed while it read them: {panic}"))
        }
        Refusal::Request(problem) => format!("the claim's storage request cannot be read: {problem}"),
        Refusal::Selector => format!(
            "{provisioner} cannot provision a volume for a selector; remove spec.selector from the claim, or bind it to an existing volume"
        ),
    }
}

/// A claim's request never goes back to what the claim has.
pub(super) fn expansion_text(provisioner: &str) -> String {
    format!(
        "{provisioner} cannot expand volumes; for more space create a larger claim and copy the data, and remove allowVolumeExpansion from the StorageClass"
    )
}

/// `check-class` uses the same message.
pub(crate) fn parameters_text(problems: &str) -> String {
    format!("the claim's StorageClass cannot be used: {problems}")
}

pub(super) fn missing_input_text(missing: &MissingInput) -> String {
    match missing {
        MissingInput::Node(name) => format!("The selected node {name} does not exist any more"),
        MissingInput::Secret { namespace, name } => {
            format!("The Secret {namespace}/{name} does not exist; create it")
        }
        MissingInput::SecretName(problem) => sentence(problem),
    }
}

pub(crate) fn no_answer_text(no_answer: &NoAnswer, method: &str) -> String {
    match no_answer {
        NoAnswer::Panicked(text) => {
            format!(
                "The provisioner's code crashed in `{method}` and is called again: {text}; please report this to its authors"
            )
        }
        NoAnswer::CutOff => format!("`{method}` was cut off, because another replica goes on with it"),
        NoAnswer::TimedOut(limit) => {
            format!("The provisioner's `{method}` gave no answer within {} s and is called again", limit.as_secs())
        }
    }
}

/// The text with a capital letter at its start.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
