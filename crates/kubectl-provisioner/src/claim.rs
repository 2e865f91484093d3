//! `explain pvc`: PersistentVolumeClaims.

mod checks;
mod missing;

use kube_provisioner::explain::volume::{Decision, Judgement, NoAction, Objects, Refusal, about_claim, about_volume};
use kube_provisioner::explain::{AssumedCapabilities, Installation};
use kube_provisioner::protocol;
use serde_json::Value;

use crate::CommandContext;
use crate::answer::Answer;
use crate::common::{
    EventSummary, add_events, add_failure, add_finalizers, add_journal, add_responsible_replica, assigned_provisioner,
    class_name, creator, events, fleets, installation, last_result, select_by_events, set_explanation,
};
use crate::explanation::{volume_action, volume_no_action, volume_refusal};
use crate::fleets::{Fleets, provisioner_of};
use crate::object::{annotation, is_being_deleted, name, optional_text, text, uid};
use crate::reader::{CLAIM, CLASS, Lookup, NODE, VOLUME};

/// The provisioner in classes whose volumes are created manually.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The objects found for a claim.
pub(crate) struct Case {
    claim: Value,
    class: Lookup,
    volume: Lookup,
    /// The selected node, until the claim is bound.
    node: Option<(String, Lookup)>,
    /// The provisioner assigned to the claim; otherwise the provisioner that its class or volume names.
    provisioner: Option<String>,
    fleets: Fleets,
}

pub(crate) async fn explain(context: &CommandContext<'_>, claim: &str) -> Answer {
    let subject = format!("PersistentVolumeClaim {}/{claim}", context.namespace);
    let claim = match context.reader.get(&CLAIM, context.namespace, claim).await {
        Lookup::Present(claim) => claim,
        Lookup::Absent => return missing::explain(context, claim, subject).await,
        Lookup::Unknown => return Answer::new(subject, "unknown, because it cannot be read"),
    };
    let recorded = events(context, "PersistentVolumeClaim", &claim).await;
    let case = Case::gather(context, claim).await;
    let mut answer = Answer::new(subject, "");
    case.add_decision(context, &mut answer, &recorded);
    checks::add_class(context, &mut answer, &case).await;
    if let Some(provisioner) = &case.provisioner {
        let is_done = case.is_bound() && !answer.state.starts_with("is being");
        if !is_done && provisioner != NO_PROVISIONER && !case.has_bucket_provisioner() {
            add_responsible_replica(context, &mut answer, provisioner, &case.fleets, &case.key()).await;
        }
        add_journal(&mut answer, &case.fleets.for_provisioner(provisioner), &case.key());
    }
    checks::add_volume(&mut answer, &case);
    checks::add_node(&mut answer, &case);
    checks::add_pods(context, &mut answer, &case).await;
    checks::add_source(context, &mut answer, &case).await;
    checks::add_size(&mut answer, &case.claim);
    add_finalizers(&mut answer, &case.claim, context.environment.now());
    add_events(&mut answer, &recorded, context.environment.now());
    answer
}

impl Case {
    async fn gather(context: &CommandContext<'_>, claim: Value) -> Self {
        let class = match class_name(&claim) {
            Some(class) => context.reader.get(&CLASS, "", class).await,
            None => Lookup::Absent,
        };
        let volume = optional_text(&claim, &["spec", "volumeName"]).map(str::to_owned);
        let volume = volume.unwrap_or_else(|| format!("pvc-{}", uid(&claim)));
        let volume = context.reader.get(&VOLUME, "", &volume).await;
        let of_class = class.object().map(provisioner_of);
        let of_volume = volume.object().and_then(creator);
        let provisioner = assigned_provisioner(&claim).or(of_class).or(of_volume).map(str::to_owned);
        let fleets = match &provisioner {
            Some(provisioner) => fleets(context, provisioner).await,
            None => Fleets::default(),
        };
        let is_bound = optional_text(&claim, &["spec", "volumeName"]).is_some();
        let node = match annotation(&claim, protocol::SELECTED_NODE).filter(|_| !is_bound).map(str::to_owned) {
            Some(node) => Some((node.clone(), context.reader.get(&NODE, "", &node).await)),
            None => None,
        };
        Self { claim, class, volume, node, provisioner, fleets }
    }

    /// Returns the name of the claim's volume, which is its key in the controller's queue. A CSI plugin may use another
    /// name prefix, and shorten the uid.
    fn key(&self) -> String {
        let uid = uid(&self.claim);
        let recorded = self.provisioner.as_deref().and_then(|provisioner| self.fleets.key_of(provisioner, uid));
        let is_own = |volume: &&Value| optional_text(volume, &["spec", "claimRef", "uid"]) == Some(uid);
        let saved = self.volume.object().filter(is_own).map(name);
        recorded.or(saved).map_or_else(|| format!("pvc-{uid}"), str::to_owned)
    }

    fn is_bound(&self) -> bool {
        optional_text(&self.claim, &["spec", "volumeName"]).is_some()
    }

    /// Returns true if the claim's provisioner creates buckets.
    fn has_bucket_provisioner(&self) -> bool {
        let serves_another = |provisioner| self.fleets.serves_another(provisioner, protocol::SERVES_VOLUMES);
        !self.is_bound() && self.provisioner.as_deref().is_some_and(serves_another)
    }

    /// Returns true if Kubernetes has bound the claim, as far as the claim shows. A user may set only
    /// `spec.volumeName`.
    fn is_complete(&self) -> bool {
        let phase = optional_text(&self.claim, &["status", "phase"]);
        annotation(&self.claim, protocol::BIND_COMPLETED).is_some() || matches!(phase, Some("Bound" | "Lost"))
    }

    /// Returns true if the volume that the claim names is bound to another claim.
    fn names_volume_of_another(&self) -> bool {
        let holder = self.volume.object().and_then(|volume| optional_text(volume, &["spec", "claimRef", "uid"]));
        self.is_bound() && holder.is_some_and(|holder| holder != uid(&self.claim))
    }

    fn waits_for_consumer(&self) -> bool {
        let mode = self.class.object().map(|class| text(class, &["volumeBindingMode"]));
        mode == Some(protocol::WAIT_FOR_FIRST_CONSUMER)
    }

    fn selected_node(&self) -> Option<&str> {
        annotation(&self.claim, protocol::SELECTED_NODE)
    }

    /// Adds the controller's decision in words.
    fn add_decision(&self, context: &CommandContext<'_>, answer: &mut Answer, recorded: &[EventSummary]) {
        if self.is_bound() && self.volume.is_absent() && !self.is_complete() {
            let volume = text(&self.claim, &["spec", "volumeName"]);
            answer.state = "waits for the volume that it names".to_owned();
            answer.why = vec![format!(
                "Its spec.volumeName is {volume}, which does not exist. Kubernetes binds the claim only to that volume, and assigns no provisioner."
            )];
            answer.remedy = vec![
                "delete the claim and create it without volumeName".to_owned(),
                format!("administrator: or create the PersistentVolume {volume}"),
            ];
            return;
        }
        if self.names_volume_of_another() {
            let is_lost = optional_text(&self.claim, &["status", "phase"]) == Some("Lost");
            answer.state = if is_lost { "lost" } else { "waits for the volume that it names" }.to_owned();
            answer.why = vec![format!(
                "It names the volume {}, which belongs to another claim. Kubernetes never binds this claim.",
                text(&self.claim, &["spec", "volumeName"])
            )];
            answer.remedy = vec![format!(
                "delete the claim and create it without volumeName and without the annotation {}",
                protocol::BIND_COMPLETED
            )];
            return;
        }
        if self.is_bound() && self.volume.is_absent() {
            answer.state = "lost".to_owned();
            answer.why = vec![format!(
                "It is bound to the volume {}, which does not exist. Kubernetes never binds it to another volume.",
                text(&self.claim, &["spec", "volumeName"])
            )];
            answer.remedy = vec![
                "delete the claim and create it again, if the data may be lost".to_owned(),
                "administrator: or restore the volume's object, if the data still exists".to_owned(),
            ];
            return;
        }
        let Some(provisioner) = self.provisioner.clone() else { return self.without_provisioner(answer) };
        if self.has_bucket_provisioner() {
            let class = class_name(&self.claim).unwrap_or_default();
            answer.state = "its class is for buckets".to_owned();
            answer.why = vec![format!(
                "{provisioner}, which the StorageClass \"{class}\" names, provisions buckets for ObjectBucketClaims, but no volumes."
            )];
            answer.remedy = vec![
                "delete the claim and create it with a StorageClass for volumes; for a bucket, create an ObjectBucketClaim"
                    .to_owned(),
            ];
            return;
        }
        if !self.is_bound() && assigned_provisioner(&self.claim).is_none() {
            return self.explain_unassigned(context, answer, &provisioner);
        }
        if self.is_bound() && self.volume.object().is_some_and(|volume| creator(volume).is_none()) {
            return explain_foreign_volume(answer);
        }
        let Some(judgement) = self.judgement(context, &provisioner, &self.claim, recorded, answer) else { return };
        self.add_judgement(answer, judgement, recorded);
    }

    fn add_judgement(
        &self,
        answer: &mut Answer,
        Judgement { decision, message }: Judgement,
        recorded: &[EventSummary],
    ) {
        answer.decision = Some(format!("{decision:?}"));
        match &decision {
            Decision::NoAction(NoAction::Provisioned) if is_being_deleted(&self.claim) => {
                set_explanation(answer, volume_no_action(NoAction::ClaimTerminating), None);
            }
            Decision::NoAction(why) => set_explanation(answer, volume_no_action(*why), None),
            // The rules cannot represent a class that cannot be read.
            Decision::Refuse(Refusal::ClassMissing(Some(_))) if !self.class.is_absent() => {
                answer.state = "unknown, because its class cannot be read".to_owned();
                return;
            }
            Decision::Refuse(refusal) => {
                set_explanation(answer, volume_refusal(refusal), message);
                answer.add_fact("Next", "the provisioner retries when the claim or its class changes");
            }
            _ => {
                if let Some(explanation) = volume_action(&decision) {
                    set_explanation(answer, explanation, None);
                    add_failure(answer, recorded);
                }
            }
        }
        if is_being_deleted(&self.claim) && self.is_bound() {
            answer.state = format!("is being deleted; {}", answer.state);
        }
    }

    /// Returns the decision for this version of the claim. A decision of the author's code is known only from an event.
    fn judgement(
        &self,
        context: &CommandContext<'_>,
        provisioner: &str,
        claim: &Value,
        recorded: &[EventSummary],
        answer: &mut Answer,
    ) -> Option<Judgement> {
        let all = self.decide(context, provisioner, claim, AssumedCapabilities::All)?;
        if let (Decision::Provision, Some(problem)) = (&all.decision, last_result(recorded).and_then(bad_parameters)) {
            let message = last_result(recorded).map(|event| event.message.clone());
            return Some(Judgement { decision: Decision::Refuse(Refusal::Parameters(problem)), message });
        }
        let least = self.decide(context, provisioner, claim, AssumedCapabilities::Least)?;
        Some(select_by_events(answer, recorded, [all, least], |judgement| judgement.message.as_deref()))
    }

    fn decide(
        &self,
        context: &CommandContext<'_>,
        provisioner: &str,
        claim: &Value,
        able: AssumedCapabilities,
    ) -> Option<Judgement> {
        let fleet = self.fleets.for_provisioner(provisioner).first().copied();
        let made_by = self.volume.object().and_then(|volume| annotation(volume, protocol::IDENTITY));
        // With an Immediate class, the replicas of all nodes refuse the claim, so any name will do. With
        // WaitForFirstConsumer, no replica decides before a node is selected.
        let node = self.selected_node().or(made_by).or((!self.waits_for_consumer()).then_some("any"));
        let installation: Installation = installation(context, provisioner, fleet, node, self.volume.object());
        let attempt = self.fleets.attempt(provisioner, &self.key());
        let (class, volume) = (self.class.object(), self.volume.object());
        let objects = Objects { claim: Some(claim), class, volume, attempt };
        if self.is_bound() && volume.is_some() {
            about_volume(&installation, able, &objects)
        } else {
            about_claim(&installation, able, &objects)
        }
    }

    /// Explains a claim without a provisioner.
    fn without_provisioner(&self, answer: &mut Answer) {
        if self.is_bound() {
            explain_foreign_volume(answer);
        } else if is_being_deleted(&self.claim) {
            set_explanation(answer, volume_no_action(NoAction::ClaimTerminating), None);
        } else if let Some(class) = class_name(&self.claim) {
            if self.class.is_absent() {
                let refusal = Refusal::ClassMissing(Some(class.to_owned()));
                set_explanation(answer, volume_refusal(&refusal), None);
                answer.why.push(format!("There is no StorageClass \"{class}\"."));
                answer.remedy.push("delete the claim and create it with another class".to_owned());
                answer.remedy.push(format!("administrator: or create the StorageClass \"{class}\""));
            } else {
                answer.state = "unknown, because its class cannot be read".to_owned();
            }
        } else if self.claim["spec"]["storageClassName"] == "" {
            answer.state = "waits for a manually created volume".to_owned();
            answer.why = vec!["It has storageClassName \"\", so no provisioner is assigned.".to_owned()];
            answer.remedy = vec![
                "delete the claim and create it with a storageClassName".to_owned(),
                "administrator: or create a PersistentVolume that fits".to_owned(),
            ];
        } else {
            answer.state = "names no class".to_owned();
            answer.why = vec!["Without a class, no provisioner is assigned.".to_owned()];
        }
    }

    /// Explains a claim to which kube-controller-manager has not assigned the provisioner yet.
    fn explain_unassigned(&self, context: &CommandContext<'_>, answer: &mut Answer, provisioner: &str) {
        let hand_made = provisioner == NO_PROVISIONER;
        if is_being_deleted(&self.claim) {
            return set_explanation(answer, volume_no_action(NoAction::ClaimTerminating), None);
        }
        let mut claim = self.claim.clone();
        claim["metadata"]["annotations"][protocol::STORAGE_PROVISIONER] = provisioner.into();
        match self.judgement(context, provisioner, &claim, &[], answer) {
            Some(judgement) if judgement.decision == Decision::NoAction(NoAction::AwaitsNode) => {
                answer.decision = Some(format!("{:?}", judgement.decision));
                set_explanation(answer, volume_no_action(NoAction::AwaitsNode), None);
            }
            _ if hand_made => {
                answer.state = "waits for a manually created volume".to_owned();
                answer.why =
                    vec!["The provisioner of its class creates no volumes: kubernetes.io/no-provisioner.".to_owned()];
                answer.remedy = vec![format!(
                    "administrator: create a PersistentVolume of the class {}",
                    class_name(&self.claim).unwrap_or_default()
                )];
            }
            judgement => {
                answer.state = "no provisioner is assigned yet".to_owned();
                answer.why = vec![format!(
                    "kube-controller-manager assigns {provisioner} by an annotation, and the claim {} has none.",
                    name(&self.claim)
                )];
                let refused = judgement.and_then(|judgement| judgement.message);
                answer.why.extend(refused.map(|message| format!("The provisioner will refuse the claim: {message}")));
                answer.remedy = vec![
                    "administrator: check kube-controller-manager if this lasts for more than a few seconds".to_owned(),
                ];
            }
        }
    }
}

fn explain_foreign_volume(answer: &mut Answer) {
    answer.state = "bound".to_owned();
    answer.why = vec!["Its volume was created manually or by another program. No provisioner manages it.".to_owned()];
}

/// Returns the problem with the class's parameters, which only the author's code can detect.
fn bad_parameters(last: &EventSummary) -> Option<String> {
    let (_, problem) = last.message.split_once("StorageClass cannot be used: ")?;
    last.warning.then(|| problem.to_owned())
}
