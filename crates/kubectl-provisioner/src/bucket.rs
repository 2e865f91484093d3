//! `bucket`: bucket claims.

use kube_provisioner::explain::AssumedCapabilities;
use kube_provisioner::explain::bucket::{
    Decision, Delivery, Judgement, NoAction, Objects, Refusal, about_claim, delivered_names, shard_text,
};
use kube_provisioner::protocol;
use serde_json::Value;

use crate::CommandContext;
use crate::answer::Answer;
use crate::common::{
    EventSummary, add_events, add_failure, add_finalizers, add_responsible_replica, events, fleets, installation,
    newest_first, select_by_events, set_explanation,
};
use crate::explanation::{bucket_action, bucket_no_action, bucket_refusal};
use crate::fleets::{Fleets, provisioner_of};
use crate::object::{annotation, is_being_deleted, items, label, name, optional_text, text, uid};
use crate::reader::{BUCKET, BUCKET_CLAIM, CLASS, CONFIG_MAP, Lookup, SECRET};

struct Case {
    claim: Value,
    class: Lookup,
    buckets: Vec<Value>,
    /// The claim whose bucket this claim requests.
    owner: Lookup,
    /// That claim's ObjectBuckets, and the ObjectBuckets of claims that use this claim's own bucket.
    related: Vec<Value>,
    secret: Lookup,
    config_map: Lookup,
    provisioner: Option<String>,
    fleets: Fleets,
}

pub(crate) async fn explain(context: &CommandContext<'_>, claim: &str) -> Answer {
    let subject = format!("ObjectBucketClaim {}/{claim}", context.namespace);
    let claim = match context.reader.get(&BUCKET_CLAIM, context.namespace, claim).await {
        Lookup::Present(claim) => claim,
        Lookup::Absent => return missing(context, claim, subject).await,
        Lookup::Unknown => return Answer::new(subject, "unknown, because it cannot be read"),
    };
    let case = Case::gather(context, claim).await;
    let mut recorded = events(context, "ObjectBucketClaim", &case.claim).await;
    for bucket in &case.buckets {
        recorded.extend(events(context, "ObjectBucket", bucket).await);
    }
    newest_first(&mut recorded);
    let mut answer = Answer::new(subject, "");
    case.add_decision(context, &mut answer, &recorded).await;
    case.describe(&mut answer);
    add_finalizers(&mut answer, &case.claim, context.environment.now());
    add_events(&mut answer, &recorded, context.environment.now());
    answer
}

impl Case {
    async fn gather(context: &CommandContext<'_>, claim: Value) -> Self {
        let namespace = context.namespace;
        let class = match optional_text(&claim, &["spec", "storageClassName"]) {
            Some(class) => context.reader.get(&CLASS, "", class).await,
            None => Lookup::Absent,
        };
        let buckets = object_buckets(context, &claim).await;
        let owner = match optional_text(&claim, &["spec", "additionalConfig", protocol::BUCKET_CLAIM_NAME]) {
            Some(owner) => context.reader.get(&BUCKET_CLAIM, namespace, owner).await,
            None => Lookup::Absent,
        };
        let mut related = match owner.object() {
            Some(owner) => object_buckets(context, owner).await,
            None => Vec::new(),
        };
        if buckets.iter().any(|bucket| annotation(bucket, protocol::SHARED).is_some()) {
            let selector = format!("{}={}", protocol::USES_BUCKET_OF, uid(&claim));
            related.extend(context.reader.list(&BUCKET, "", ("labelSelector", &selector)).await.unwrap_or_default());
        }
        // Read only the metadata of the Secret, because the explanation does not need the keys.
        let names = delivered_names(&claim, class.object(), &buckets);
        let secret = context.reader.get_metadata(&SECRET, namespace, &names[0]).await;
        let config_map = context.reader.get(&CONFIG_MAP, namespace, &names[1]).await;
        let of_class = class.object().map(provisioner_of);
        let of_bucket = buckets.iter().find_map(|bucket| annotation(bucket, protocol::BUCKET_PROVISIONER));
        // An ObjectBucket belongs to the provisioner that created it, even if the class now names another one.
        let provisioner = of_bucket.or(of_class).map(str::to_owned);
        let fleets = match &provisioner {
            Some(provisioner) => fleets(context, provisioner).await,
            None => Fleets::default(),
        };
        Self { claim, class, buckets, owner, related, secret, config_map, provisioner, fleets }
    }

    /// Returns the key of the claim in the controller's queue.
    fn key(&self) -> String {
        let claim = &self.claim;
        format!("{}/{}/{}", text(claim, &["metadata", "namespace"]), name(claim), uid(claim))
    }

    async fn add_decision(&self, context: &CommandContext<'_>, answer: &mut Answer, recorded: &[EventSummary]) {
        let provisioner = self.provisioner.as_deref().unwrap_or_default();
        if self.buckets.is_empty() && self.fleets.serves_another(provisioner, protocol::SERVES_BUCKETS) {
            answer.state = "its class is for volumes".to_owned();
            answer.why = vec![format!(
                "{provisioner}, which the claim's StorageClass names, provisions volumes for PersistentVolumeClaims, but no buckets."
            )];
            answer.remedy = vec![
                "delete the claim and create it with a StorageClass for buckets; for a volume, create a PersistentVolumeClaim"
                    .to_owned(),
            ];
            return;
        }
        let Some(judgement) = self.judgement(context, recorded, answer) else { return };
        let Judgement { decision, message } = judgement;
        answer.decision = Some(format!("{decision:?}"));
        match &decision {
            Decision::NoAction(NoAction::ClassMissing) if !self.class.is_absent() => {
                answer.state = "unknown, because its class cannot be read".to_owned();
                return;
            }
            Decision::NoAction(why) => set_explanation(answer, bucket_no_action(*why), None),
            Decision::Refuse(refusal) => {
                set_explanation(answer, bucket_refusal(refusal), message);
                let next = match refusal {
                    Refusal::FormerBucket => "it is provisioned as soon as the former bucket is deleted",
                    _ => "the provisioner retries when the claim, its class or the conflicting object changes",
                };
                answer.add_fact("Next", next);
            }
            _ => {
                if let Some(explanation) = bucket_action(&decision) {
                    set_explanation(answer, explanation, None);
                    add_failure(answer, recorded);
                    self.add_failed_phase(answer);
                }
            }
        }
        if let Some(provisioner) = &self.provisioner
            && !matches!(decision, Decision::NoAction(NoAction::Bound))
        {
            add_responsible_replica(context, answer, provisioner, &self.fleets, &shard_text(&self.key())).await;
        }
    }

    /// Explains the phase `Failed`, in which the controller does not retry until the claim or its class changes. The
    /// explanation is from the condition, because the events may have expired.
    fn add_failed_phase(&self, answer: &mut Answer) {
        if text(&self.claim, &["status", "phase"]) != "Failed" {
            return;
        }
        let conditions = items(&self.claim, &["status", "conditions"]);
        let ready = conditions.iter().find(|condition| text(condition, &["type"]) == "Ready");
        answer.state = "failed; no retry until the claim or its class changes".to_owned();
        answer.why = ready.map(|ready| text(ready, &["message"]).to_owned()).into_iter().collect();
        answer.remedy = vec![
            "correct the claim as the message says; if the claim is correct, fix the cause, then delete the claim and create it again"
                .to_owned(),
            "administrator: correct the backend, or delete the class and create it with other parameters, if the message names them"
                .to_owned(),
        ];
        answer.facts.retain(|fact| fact.about != "Next");
        answer.add_fact("Next", "no retry until the claim or its class changes");
    }

    fn judgement(
        &self,
        context: &CommandContext<'_>,
        recorded: &[EventSummary],
        answer: &mut Answer,
    ) -> Option<Judgement> {
        let provisioner = self.provisioner.as_deref().unwrap_or_default();
        let fleets = self.fleets.for_provisioner(provisioner);
        let made = self.buckets.iter().find(|bucket| annotation(bucket, protocol::IDENTITY).is_some());
        let installation = installation(context, provisioner, fleets.first().copied(), None, made);
        // The controller's watches only see objects with its label.
        let delivery = |found| match found {
            &Lookup::Unknown => Delivery::Unknown,
            Lookup::Present(object) if label(object, objectbucket_api::names::PROVISIONER_LABEL).is_some() => {
                Delivery::Present(object)
            }
            _ => Delivery::Absent,
        };
        let [secret, config_map] = [&self.secret, &self.config_map].map(delivery);
        let buckets: Vec<Value> = self.buckets.iter().chain(&self.related).cloned().collect();
        let (class, owner) = (self.class.object(), self.owner.object());
        let objects = Objects { claim: &self.claim, class, owner, buckets: &buckets, secret, config_map };
        let all = about_claim(&installation, AssumedCapabilities::All, &objects)?;
        let least = about_claim(&installation, AssumedCapabilities::Least, &objects)?;
        Some(select_by_events(answer, recorded, [all, least], |judgement| judgement.message.as_deref()))
    }

    fn describe(&self, answer: &mut Answer) {
        let claim = &self.claim;
        match (optional_text(claim, &["spec", "storageClassName"]), self.class.object()) {
            (Some(class), Some(object)) => {
                let policy = optional_text(object, &["reclaimPolicy"]).unwrap_or("Delete");
                answer.add_fact("Class", format!("{class}: {}, {policy}", provisioner_of(object)));
            }
            (Some(class), None) if self.class.is_absent() => {
                answer.add_fact("Class", format!("{class}, which does not exist"));
            }
            (Some(class), None) => answer.add_fact("Class", class),
            (None, _) => answer.add_fact("Class", "none"),
        }
        answer.add_fact("Phase", optional_text(claim, &["status", "phase"]).unwrap_or("none yet"));
        for condition in items(claim, &["status", "conditions"]) {
            let part = |field| text(condition, &[field]);
            answer.add_fact(
                "Condition",
                format!("{} is {}, {}: {}", part("type"), part("status"), part("reason"), part("message")),
            );
        }
        for bucket in &self.buckets {
            let of = text(bucket, &["spec", "claimRef", "uid"]);
            let whose = if of.is_empty() || of == uid(claim) { "" } else { ", of an earlier claim" };
            let going = if is_being_deleted(bucket) { ", is being deleted" } else { "" };
            let phase = optional_text(bucket, &["status", "phase"]).unwrap_or("without a phase");
            answer.add_fact("ObjectBucket", format!("{} is {phase}{whose}{going}", name(bucket)));
        }
        for (kind, found) in [("Secret", &self.secret), ("ConfigMap", &self.config_map)] {
            let Some(object) = found.object() else { continue };
            let own = self.owns(object);
            let state = if own { "exists" } else { "exists and does not belong to the claim" };
            answer.add_fact(kind, format!("{} {state}", name(object)));
            if !own {
                answer.add_obstacle(format!(
                    "The {kind} {} does not belong to the claim, but has the name that the claim's {kind} needs.",
                    name(object)
                ));
                let rename =
                    if self.is_served() { "" } else { ", or set another name in the claim's additionalConfig" };
                answer.remedy.push(format!("find the owner of the {kind} {}; delete it{rename}", name(object)));
            }
        }
    }

    /// Returns true if this Secret or ConfigMap belongs to the claim.
    fn owns(&self, object: &Value) -> bool {
        let owners = items(object, &["metadata", "ownerReferences"]);
        owners.iter().any(|owner| text(owner, &["uid"]) == uid(&self.claim))
    }

    /// Returns true once the claim's Secret was delivered. Then the names of its Secret and ConfigMap are fixed.
    fn is_served(&self) -> bool {
        let is_bound = |object: &Value| text(object, &["status", "phase"]) == "Bound";
        let is_own = |bucket: &&Value| text(bucket, &["spec", "claimRef", "uid"]) == uid(&self.claim);
        let is_delivered = self.secret.object().is_some_and(|secret| self.owns(secret));
        is_delivered || is_bound(&self.claim) || self.buckets.iter().filter(is_own).any(is_bound)
    }
}

/// Returns the existing ObjectBuckets that may belong to a claim.
async fn object_buckets(context: &CommandContext<'_>, claim: &Value) -> Vec<Value> {
    let usual = objectbucket_api::names::object_bucket_name(context.namespace, name(claim));
    let mut names = vec![usual, format!("obc-{}", uid(claim))];
    let pointed = optional_text(claim, &["spec", "objectBucketName"]).map(str::to_owned);
    names.extend(pointed.filter(|pointed| !names.contains(pointed)));
    let mut buckets = Vec::new();
    for bucket in names {
        if let Lookup::Present(bucket) = context.reader.get(&BUCKET, "", &bucket).await {
            buckets.push(bucket);
        }
    }
    // An ObjectBucket that the claim points at blocks the claim, unless its uid proves that it is another claim's.
    let blocks = |bucket: &Value| {
        let points = optional_text(claim, &["spec", "objectBucketName"]) == Some(name(bucket));
        points && text(bucket, &["spec", "claimRef", "uid"]).is_empty()
    };
    buckets.retain(|bucket| blocks(bucket) || !names_another(bucket, context.namespace, name(claim)));
    buckets
}

/// Returns true if the ObjectBucket names another claim. The names of two claims' ObjectBuckets can be equal: `a/b-c`
/// and `a-b/c` both have `obc-a-b-c`.
fn names_another(bucket: &Value, namespace: &str, claim: &str) -> bool {
    let of = |field| text(bucket, &["spec", "claimRef", field]);
    !of("name").is_empty() && (of("namespace"), of("name")) != (namespace, claim)
}

/// Explains a claim that does not exist: its ObjectBucket may still exist.
async fn missing(context: &CommandContext<'_>, claim: &str, subject: String) -> Answer {
    let mut answer = Answer::new(subject, "does not exist");
    let object = objectbucket_api::names::object_bucket_name(context.namespace, claim);
    match context.reader.get(&BUCKET, "", &object).await {
        Lookup::Present(bucket) if !names_another(&bucket, context.namespace, claim) => {
            answer.why = vec![format!("Its ObjectBucket {object} still exists.")];
            let provisioner = annotation(&bucket, protocol::BUCKET_PROVISIONER);
            let creator = provisioner.or(label(&bucket, objectbucket_api::names::PROVISIONER_LABEL));
            answer.add_fact("Provisioner", creator.unwrap_or("not named"));
            if let Some(provisioner) = provisioner {
                let key = format!("{}/{claim}/{}", context.namespace, text(&bucket, &["spec", "claimRef", "uid"]));
                add_responsible_replica(
                    context,
                    &mut answer,
                    provisioner,
                    &fleets(context, provisioner).await,
                    &shard_text(&key),
                )
                .await;
            }
            add_finalizers(&mut answer, &bucket, context.environment.now());
            let recorded = events(context, "ObjectBucket", &bucket).await;
            add_events(&mut answer, &recorded, context.environment.now());
        }
        Lookup::Present(_) | Lookup::Absent => {
            answer.remedy = vec!["create it, or correct the name or the namespace (-n)".to_owned()];
        }
        Lookup::Unknown => {}
    }
    answer
}
