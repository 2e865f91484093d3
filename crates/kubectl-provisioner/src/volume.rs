//! `explain pv`: PersistentVolumes.

use std::collections::BTreeSet;

use kube_provisioner::explain::AssumedCapabilities;
use kube_provisioner::explain::volume::{Decision, Judgement, NoAction, Objects, Refusal, about_volume};
use kube_provisioner::protocol;
use serde_json::Value;

use crate::CommandContext;
use crate::answer::Answer;
use crate::common::{
    EventSummary, add_events, add_failure, add_finalizers, add_journal, add_responsible_replica, creator, events,
    fleets, installation, set_explanation,
};
use crate::explanation::{volume_action, volume_no_action, volume_refusal};
use crate::fleets::{Fleet, Fleets};
use crate::object::{annotation, finalizers, is_being_deleted, name, optional_text, text, uid};
use crate::reader::{ATTACHMENT, CLAIM, Lookup, NODE, VOLUME};

pub(crate) async fn explain(context: &CommandContext<'_>, volume: &str) -> Answer {
    let subject = format!("PersistentVolume {volume}");
    let volume = match context.reader.get(&VOLUME, "", volume).await {
        Lookup::Present(volume) => volume,
        Lookup::Absent => return missing(context, volume, subject).await,
        Lookup::Unknown => return Answer::new(subject, "unknown, because it cannot be read"),
    };
    let now = context.environment.now();
    let recorded = events(context, "PersistentVolume", &volume).await;
    let mut answer = Answer::new(subject, "");
    let claim = referenced_claim(context, &volume).await;
    match creator(&volume) {
        None => {
            answer.state = "created manually or by another program".to_owned();
            answer.why =
                vec!["It has no annotation that names a provisioner, so no provisioner deletes it.".to_owned()];
        }
        Some(provisioner) => {
            let fleets = fleets(context, provisioner).await;
            add_decision(
                context,
                &mut answer,
                &Case { volume: &volume, claim: &claim, provisioner, fleets: &fleets, recorded: &recorded },
            )
            .await;
            answer.add_fact("Provisioner", provisioner);
            if !answer.state.starts_with("bound") || is_being_deleted(&volume) {
                add_responsible_replica(context, &mut answer, provisioner, &fleets, name(&volume)).await;
            }
            add_journal(&mut answer, &fleets.for_provisioner(provisioner), name(&volume));
        }
    }
    add_object(&mut answer, &volume, &claim);
    add_attachments(context, &mut answer, &volume).await;
    add_finalizers(&mut answer, &volume, now);
    add_events(&mut answer, &recorded, now);
    answer
}

struct Case<'a> {
    volume: &'a Value,
    claim: &'a Lookup,
    provisioner: &'a str,
    fleets: &'a Fleets,
    recorded: &'a [EventSummary],
}

/// Returns the claim that the volume names.
async fn referenced_claim(context: &CommandContext<'_>, volume: &Value) -> Lookup {
    let of = |field| text(volume, &["spec", "claimRef", field]);
    if of("name").is_empty() {
        return Lookup::Absent;
    }
    match context.reader.get(&CLAIM, of("namespace"), of("name")).await {
        // Another claim of the same name is not the owner.
        Lookup::Present(claim) if !of("uid").is_empty() && uid(&claim) != of("uid") => Lookup::Absent,
        found => found,
    }
}

async fn add_decision(context: &CommandContext<'_>, answer: &mut Answer, case: &Case<'_>) {
    let Case { volume, claim, provisioner, recorded, .. } = case;
    let is_gone = node_is_gone(context, volume).await;
    let Some(Judgement { decision, message }) =
        judgement(context, case.fleets, provisioner, volume, claim, recorded, is_gone)
    else {
        return;
    };
    answer.decision = Some(format!("{decision:?}"));
    match &decision {
        Decision::NoAction(why) => {
            set_explanation(answer, volume_no_action(*why), None);
            add_reason(answer, *why, volume);
        }
        Decision::Refuse(refusal) => set_explanation(answer, volume_refusal(refusal), message),
        Decision::CheckNode { name } => match context.reader.get(&NODE, "", name).await {
            Lookup::Absent => {
                let refusal = Refusal::NodeGone { node: name.clone() };
                set_explanation(answer, volume_refusal(&refusal), None);
                answer.why.push(format!("There is no node {name}."));
                answer.remedy.extend([
                    "administrator: if the node has another name now, run the provisioner's command `root adopt` on it".to_owned(),
                    "administrator: if the node returns, keep its name; if its disk is lost, delete the PersistentVolume".to_owned(),
                ]);
            }
            _ => explain_action(answer, &decision, recorded),
        },
        _ => explain_action(answer, &decision, recorded),
    }
    correct_for_unreadable_claim(answer, &decision, claim);
}

/// Corrects the answer if the claim is unreadable, because the rules treat such a claim as deleted.
fn correct_for_unreadable_claim(answer: &mut Answer, decision: &Decision, claim: &Lookup) {
    if let (Decision::Delete(_), Lookup::Unknown) = (decision, claim) {
        answer.state = "released; the provisioner deletes it if its claim does not exist".to_owned();
        answer.why = vec!["The plugin could not check whether its claim still exists.".to_owned()];
    }
}

fn explain_action(answer: &mut Answer, decision: &Decision, recorded: &[EventSummary]) {
    if let Some(explanation) = volume_action(decision) {
        set_explanation(answer, explanation, None);
        if !matches!(decision, Decision::Protect | Decision::Unprotect) {
            add_failure(answer, recorded);
        }
    }
}

/// Adds details that the general explanation of an idle state does not contain.
fn add_reason(answer: &mut Answer, why: NoAction, volume: &Value) {
    match why {
        NoAction::Retained => match optional_text(volume, &["status", "phase"]) {
            Some("Released") => {
                answer.state = "released and kept".to_owned();
                answer.remedy.push(
                    "administrator: set persistentVolumeReclaimPolicy to Delete if the data may be deleted; to use the data again, remove spec.claimRef".to_owned(),
                );
            }
            phase => {
                answer.state =
                    format!("{}, and kept when its claim is deleted", phase.unwrap_or("Pending").to_lowercase());
            }
        },
        NoAction::OtherCluster => answer
            .why
            .extend(annotation(volume, protocol::CLUSTER_ID).map(|id| format!("That cluster's id is \"{id}\"."))),
        NoAction::OtherInstallation => answer.why.extend(
            annotation(volume, protocol::IDENTITY)
                .map(|identity| format!("The identity of its creator is \"{identity}\".")),
        ),
        NoAction::VolumeTerminating if optional_text(volume, &["status", "phase"]) == Some("Bound") => {
            answer.why = vec![
                "It was deleted while it is in use. It is removed after its claim, together with its data.".to_owned(),
            ];
            answer.remedy.clear();
        }
        NoAction::VolumeTerminating if finalizers(volume).contains(&protocol::FINALIZER) => {
            let phase = optional_text(volume, &["status", "phase"]).unwrap_or("Pending");
            answer.why = vec![format!(
                "The provisioner deletes its data after Kubernetes has released it; its phase is {phase}."
            )];
            answer.remedy = vec![
                "administrator: check kube-controller-manager if this lasts for more than a few seconds".to_owned(),
            ];
        }
        _ => {}
    }
}

/// Returns true if the node that the volume names does not exist. If the provisioner does not run per node, the result
/// has no meaning.
async fn node_is_gone(context: &CommandContext<'_>, volume: &Value) -> bool {
    match annotation(volume, protocol::IDENTITY) {
        Some(node) => context.reader.get(&NODE, "", node).await.is_absent(),
        None => false,
    }
}

/// Returns the decision of the responsible installation. `is_gone` is true if the volume's node does not exist. A
/// decision of the author's code is known only from an event.
pub(crate) fn judgement(
    context: &CommandContext<'_>,
    fleets: &Fleets,
    provisioner: &str,
    volume: &Value,
    claim: &Lookup,
    recorded: &[EventSummary],
    is_gone: bool,
) -> Option<Judgement> {
    let identity = annotation(volume, protocol::IDENTITY);
    let of = fleets.for_provisioner(provisioner);
    // The namespace identifies the installation that created the volume, unless the installation has its own name.
    let made = of.iter().find(|fleet| Some(&*fleet.namespace) == identity).or(of.first()).copied();
    let node = identity.filter(|_| made.is_some_and(Fleet::is_per_node));
    // A journal remains after its node is deleted.
    let has_not_run = |node| made.is_none_or(|fleet| !fleet.may_have_run_on(node, provisioner));
    let gone = node.is_some_and(|node| is_gone || has_not_run(node));
    // The replicas of other nodes take over the volumes of a deleted node.
    let node = if gone { Some("another") } else { node };
    let installation = installation(context, provisioner, made, node, Some(volume));
    let attempt = fleets.attempt(provisioner, name(volume));
    let objects = Objects { claim: claim.object(), class: None, volume: Some(volume), attempt };
    let all = about_volume(&installation, AssumedCapabilities::All, &objects)?;
    let least = about_volume(&installation, AssumedCapabilities::Least, &objects)?;
    let is_recorded = |text: &String| recorded.iter().any(|event| event.message.contains(text));
    if least.message.as_ref().is_some_and(is_recorded) { Some(least) } else { Some(all) }
}

fn add_object(answer: &mut Answer, volume: &Value, claim: &Lookup) {
    let phase = optional_text(volume, &["status", "phase"]).unwrap_or("Pending");
    let policy = optional_text(volume, &["spec", "persistentVolumeReclaimPolicy"]).unwrap_or("Retain");
    answer.add_fact("Volume", format!("{phase}, reclaim policy {policy}"));
    let of = |field| text(volume, &["spec", "claimRef", field]);
    if !of("name").is_empty() {
        let exists = match claim {
            Lookup::Present(claim) if is_being_deleted(claim) => ", which is being deleted",
            Lookup::Present(_) => "",
            Lookup::Absent => ", which does not exist",
            Lookup::Unknown => ", whose state is unknown",
        };
        answer.add_fact("Claim", format!("{}/{}{exists}", of("namespace"), of("name")));
    }
    if let Some(identity) = annotation(volume, protocol::IDENTITY) {
        answer.add_fact("Created by", identity);
    }
}

/// Adds the nodes to which the volume is still attached.
async fn add_attachments(context: &CommandContext<'_>, answer: &mut Answer, volume: &Value) {
    let phase = optional_text(volume, &["status", "phase"]);
    if optional_text(volume, &["spec", "csi", "driver"]).is_none()
        || phase == Some("Bound") && !is_being_deleted(volume)
    {
        return;
    }
    let Some(all) = context.reader.list(&ATTACHMENT, "", ("", "")).await else { return };
    let of = |attachment: &&Value| text(attachment, &["spec", "source", "persistentVolumeName"]) == name(volume);
    for attachment in all.iter().filter(of) {
        let state = if attachment["status"]["attached"] == true { "attached" } else { "being attached or detached" };
        answer.add_fact("Attachment", format!("{state} on node {}", text(attachment, &["spec", "nodeName"])));
        answer
            .remedy
            .push("wait until the volume is detached from the node; pods that use it have to end first".to_owned());
    }
}

/// Explains a volume that does not exist: an attempt may still be recorded.
async fn missing(context: &CommandContext<'_>, volume: &str, subject: String) -> Answer {
    let mut answer = Answer::new(subject, "does not exist");
    let fleets = Fleets::find(context, &BTreeSet::new()).await;
    if fleets.all.iter().any(|fleet| fleet.entry(volume).is_some() || fleet.restored_in(volume).is_some()) {
        answer.why = vec!["An attempt to create it is recorded, so its storage may exist in the backend.".to_owned()];
    }
    // An unreadable line of any fleet may be the attempt.
    add_journal(&mut answer, &fleets.all.iter().collect::<Vec<_>>(), volume);
    answer
}
