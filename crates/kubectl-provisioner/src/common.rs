//! Common parts of all explanations: events, the replica in charge, and the words for a decision.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube_provisioner::explain::Installation;
use kube_provisioner::protocol;
use provisioner_runtime::journal::Listing;
use serde_json::Value;

use crate::CommandContext;
use crate::answer::Answer;
use crate::explanation::Explanation;
use crate::fleets::{Fleet, Fleets, Shard, unreadable_lines};
use crate::object::{ago, annotation, at, items, name, namespace, optional_text, text, time, uid};
use crate::reader::{EVENT, REPLICA};

/// Maximum number of events shown.
pub(crate) const SHOWN: usize = 8;

/// One event.
pub(crate) struct EventSummary {
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) count: u64,
    last: Option<Timestamp>,
    source: String,
}

/// Returns the events about an object, the latest one first.
pub(crate) async fn events(context: &CommandContext<'_>, kind: &str, object: &Value) -> Vec<EventSummary> {
    // Events about cluster-scoped objects are in this namespace.
    let place = Some(namespace(object)).filter(|place| !place.is_empty()).unwrap_or("default");
    let selector = format!("involvedObject.kind={kind},involvedObject.name={}", name(object));
    let found = context.reader.list(&EVENT, place, ("fieldSelector", &selector)).await;
    let about = |event: &Value| [uid(object), ""].contains(&text(event, &["involvedObject", "uid"]));
    let mut recorded: Vec<EventSummary> =
        found.iter().flatten().filter(|event| about(event)).map(EventSummary::read).collect();
    newest_first(&mut recorded);
    recorded
}

pub(crate) fn newest_first(recorded: &mut [EventSummary]) {
    recorded.sort_by(|a, b| (b.last, &a.reason, &a.message).cmp(&(a.last, &b.reason, &b.message)));
}

/// Returns the provisioner's last message about the result of its work. Messages from Kubernetes, about the start of a
/// call, and from replicas on other nodes are not results.
pub(crate) fn last_result(recorded: &[EventSummary]) -> Option<&EventSummary> {
    const NO_RESULTS: [&str; 3] =
        [" is provisioning a ", " is resizing volume ", " has not provisioned the volume yet; if no other event"];
    let is_result = |event: &EventSummary| !NO_RESULTS.iter().any(|part| event.message.contains(part));
    recorded.iter().find(|event| !event.is_of_kubernetes() && is_result(event))
}

impl EventSummary {
    pub(crate) fn read(event: &Value) -> Self {
        let times = [
            &["series", "lastObservedTime"][..],
            &["lastTimestamp"],
            &["eventTime"],
            &["metadata", "creationTimestamp"],
        ];
        let counts = [&["series", "count"][..], &["count"]];
        let source = optional_text(event, &["reportingComponent"]).unwrap_or(text(event, &["source", "component"]));
        Self {
            warning: text(event, &["type"]) == "Warning",
            reason: text(event, &["reason"]).to_owned(),
            message: text(event, &["message"]).to_owned(),
            count: counts.iter().find_map(|path| at(event, path).as_u64()).unwrap_or(1).max(1),
            last: times.iter().find_map(|path| optional_text(event, path).and_then(time)),
            source: source.to_owned(),
        }
    }

    pub(crate) fn line(&self, now: Timestamp) -> String {
        let Self { reason, message, source, .. } = self;
        let kind = if self.warning { "Warning" } else { "Normal" };
        let often = if self.count > 1 { format!(", {} times", self.count) } else { String::new() };
        let when = self.last.map(|last| format!(", {}", ago(now, last))).unwrap_or_default();
        let from = if source.is_empty() { String::new() } else { format!(", from {source}") };
        format!("{kind} {reason}{often}{when}{from}: {message}")
    }

    /// Returns true if a Kubernetes controller wrote the event, such as the volume controller, which also emits
    /// `ProvisioningFailed`.
    fn is_of_kubernetes(&self) -> bool {
        const REASONS: [&str; 3] = ["ExternalProvisioning", "WaitForFirstConsumer", "WaitForPodScheduled"];
        const SOURCES: [&str; 5] =
            ["persistentvolume-controller", "kubelet", "default-scheduler", "attachdetach-controller", "volume_expand"];
        REASONS.contains(&&*self.reason) || SOURCES.contains(&&*self.source)
    }

    /// Returns the remedy for a failure that the controllers report. Returns `None` if the message itself contains it.
    fn remedy(&self) -> Option<&'static str> {
        const GRANT: &str = "administrator: grant the provisioner's account the permission that the event names; the provisioner's command `rbac` prints all permissions";
        const AUTHORS: &str = "administrator: report it to the provisioner's authors";
        const CLASS: &str = "administrator: delete the class and create it with correct parameters; the provisioner's command `check-class` checks them first";
        if self.blames_class() {
            return Some(CLASS);
        }
        let known = [
            ("The API server does not allow this", GRANT),
            ("forbidden", GRANT),
            (
                "cannot write its journal",
                "administrator: fix the cause that the event names: the provisioner begins no attempt that it cannot record",
            ),
            (
                "at the moment, because",
                "administrator: read the reason in the provisioner's log or on /readyz, and remove it",
            ),
            ("crashed while reading", AUTHORS),
            ("additionalConfig cannot be used:", "correct additionalConfig of the claim"),
            (
                "; change the claim or its class to try again)",
                "fix the cause, then delete the claim and create it again; or let an administrator delete and create its class",
            ),
            (
                "` did not answer within",
                "administrator: check the backend; if it is only slow, raise --provision-timeout or --delete-timeout",
            ),
            (
                "(gave up after",
                "administrator: fix the cause, then restart the provisioner's pods, which try again when they start",
            ),
            ("crashed in", AUTHORS),
        ];
        known.into_iter().find(|(part, _)| self.message.contains(part)).map(|(_, remedy)| remedy)
    }

    /// Returns true if the message is about the parameters of the claim's class. Only the text about buckets contains
    /// the name of the class. The class's Secret may have a CA bundle or a key that "cannot be used" either.
    fn blames_class(&self) -> bool {
        let Some((_, text)) = self.message.split_once("claim's StorageClass ") else { return false };
        text.starts_with("cannot be used: ") || text.starts_with('"') && text.contains("\" cannot be used: ")
    }
}

/// Adds the events, and a summary of failed attempts.
pub(crate) fn add_events(answer: &mut Answer, recorded: &[EventSummary], now: Timestamp) {
    answer.events.extend(recorded.iter().take(SHOWN).map(|event| event.line(now)));
    let failed = |event: &&EventSummary| event.warning && event.reason.contains("Failed") && !event.is_of_kubernetes();
    let failures: u64 = recorded.iter().filter(failed).map(|event| event.count).sum();
    if failures > 0 {
        answer.add_fact("Attempts", format!("at least {failures} failed, as far as events are kept"));
    }
}

/// Adds the provisioner's last failure, or its last message about work in progress.
pub(crate) fn add_failure(answer: &mut Answer, recorded: &[EventSummary]) {
    let Some(last) = last_result(recorded) else { return };
    if !last.warning {
        // The backend is working, or still uses the object to be deleted.
        if ["Provisioning", "Resizing", "VolumeDelete", "BucketDelete"].contains(&&*last.reason) {
            answer.why.push(format!("In the provisioner's words: {}", last.message));
        }
        return;
    }
    if last.reason == "ProvisioningWarning" {
        return;
    }
    answer.state = format!("{}, and that fails", answer.state);
    answer.why = vec![format!("{}: {}", last.reason, last.message)];
    answer.remedy.extend(last.remedy().map(str::to_owned));
    let next = if last.message.contains("(gave up after ") {
        "no retry until something changes"
    } else {
        "the provisioner retries automatically, with delays that grow to 5 minutes by default, and immediately after a change"
    };
    answer.add_fact("Next", next);
}

/// Adds the explanation of a decision. `message` is the controller's text for it.
pub(crate) fn set_explanation(answer: &mut Answer, explanation: Explanation, message: Option<String>) {
    answer.state = explanation.state.to_owned();
    answer.why = Some(explanation.why).filter(|text| !text.is_empty()).map(str::to_owned).into_iter().collect();
    answer.why.extend(message.map(|message| format!("In the provisioner's words: {message}")));
    answer.remedy.extend(Some(explanation.remedy).filter(|text| !text.is_empty()).map(str::to_owned));
}

/// Chooses between the decision for a provisioner with all capabilities and the decision for one with the fewest.
/// Returns the latter if an event contains its message.
pub(crate) fn select_by_events<J: PartialEq>(
    answer: &mut Answer,
    recorded: &[EventSummary],
    [all, least]: [J; 2],
    message: impl Fn(&J) -> Option<&str>,
) -> J {
    let Some(message) = message(&least).filter(|_| all != least) else { return all };
    if recorded.iter().any(|event| event.message.contains(message)) {
        return least;
    }
    answer.add_fact("Maybe", format!("if the provisioner does not support the request, it reports: {message}"));
    all
}

/// Returns the fleets of a provisioner.
pub(crate) async fn fleets(context: &CommandContext<'_>, provisioner: &str) -> Fleets {
    Fleets::find(context, &BTreeSet::from([provisioner.to_owned()])).await
}

/// Returns the installation whose decision is explained.
pub(crate) fn installation(
    context: &CommandContext<'_>,
    provisioner: &str,
    fleet: Option<&Fleet>,
    node: Option<&str>,
    object: Option<&Value>,
) -> Installation {
    let noted = |key| object.and_then(|object| annotation(object, key));

    let per_node = fleet.is_some_and(Fleet::is_per_node);
    let node = node.filter(|_| per_node).map(str::to_owned);
    let given = context.args.identity.as_deref().or(node.as_deref());
    let identity = given.or(fleet.map(|fleet| &*fleet.namespace)).or(noted(protocol::IDENTITY));
    let identity = identity.unwrap_or("default").to_owned();
    // If the cluster is unknown, assume that the object belongs to it.
    let cluster_id = context.cluster_id.as_deref().or(noted(protocol::CLUSTER_ID)).unwrap_or_default().to_owned();
    Installation { provisioner: provisioner.to_owned(), identity, cluster_id, node }
}

/// Adds the replica that is responsible for the key, or reports that there is none.
pub(crate) async fn add_responsible_replica(
    context: &CommandContext<'_>,
    answer: &mut Answer,
    provisioner: &str,
    fleets: &Fleets,
    key: &str,
) {
    let of = fleets.for_provisioner(provisioner);
    for fleet in &of {
        answer.add_fact("Turn", fleet.describe_replica(key));
    }
    let readable = fleets.leases_known && fleets.journals_known;
    match of.first() {
        None if readable => {
            answer.add_fact("Turn", format!("none: there is no Lease and no journal of {provisioner}"));
            answer.add_obstacle(format!("No running instance of {provisioner} was found."));
            answer.remedy.push(format!(
                "administrator: check whether {provisioner} is installed; if it does not use kube-provisioner, only its pods show whether it runs"
            ));
        }
        None => answer.add_fact("Turn", format!("unknown: Leases or journals of {provisioner} cannot be read")),
        Some(fleet) if fleet.is_abandoned() || fleet.shard(key).is_some_and(|shard| !shard.alive) => {
            let reason = if fleet.is_abandoned() { "" } else { ": its shard has no holder" };
            answer.add_obstacle(format!("No replica of {provisioner} works on it{reason}."));
            answer
                .remedy
                .push(format!("administrator: check the pods of {provisioner} in namespace {}", fleet.namespace));
        }
        Some(fleet) => {
            let pod = fleet.shard(key).and_then(Shard::pod);
            if let Some(pod) = pod {
                add_readiness(context, answer, &fleet.namespace, pod).await;
            }
        }
    }
}

/// Reports that the replica that holds the Lease is not ready, for example because a permission was revoked.
async fn add_readiness(context: &CommandContext<'_>, answer: &mut Answer, namespace: &str, pod: &str) {
    let found = context.reader.get(&REPLICA, namespace, pod).await;
    let conditions = found.object().map(|pod| items(pod, &["status", "conditions"])).unwrap_or_default();
    let is_unready = |condition: &&Value| condition["type"] == "Ready" && condition["status"] == "False";
    let Some(condition) = conditions.iter().find(is_unready) else { return };
    let since = optional_text(condition, &["lastTransitionTime"]).and_then(time);
    let since = since.map(|since| format!(" (for {})", ago(context.environment.now(), since).replace(" ago", "")));
    answer.add_obstacle(format!(
        "Its pod {namespace}/{pod} is not ready{}: a permission is missing, or the backend or the API server is unavailable.",
        since.unwrap_or_default()
    ));
    answer.remedy.push(format!(
        "administrator: read the reason with `kubectl logs -n {namespace} {pod}`, or at /readyz of its --http-endpoint"
    ));
}

/// Adds the journal entries of the key.
pub(crate) fn add_journal(answer: &mut Answer, fleets: &[&Fleet], key: &str) {
    let is_dropping = |journal: &Listing| journal.dropping.iter().any(|one| one == key);
    for fleet in fleets {
        let moved = |other| if other { ", of another number of shards" } else { "" };
        let recorded = fleet.entry(key).map(|(journal, _, other)| (journal, moved(other)));
        let restored = fleet.restored_in(key);
        for (journal, origin) in recorded.into_iter().chain(restored.map(|journal| (journal, ", which was restored"))) {
            let dropping = if is_dropping(journal) { ", and an administrator dropped it" } else { "" };
            answer.add_fact(
                "Journal",
                format!("an attempt is recorded in {}/{}{origin}{dropping}", fleet.namespace, journal.name),
            );
        }
        if restored.is_some_and(|journal| !is_dropping(journal)) {
            answer.remedy.push(
                "administrator: end the restored attempt with the provisioner's command `journal accept` or `journal drop`"
                    .to_owned(),
            );
        }
    }
    if let Some(unreadable) = unreadable_lines(fleets.iter().copied()) {
        answer.add_fact("Journal", unreadable);
    }
}

/// Returns the provisioner requested for a claim, according to its annotation.
pub(crate) fn assigned_provisioner(claim: &Value) -> Option<&str> {
    annotation(claim, protocol::STORAGE_PROVISIONER).or(annotation(claim, protocol::BETA_STORAGE_PROVISIONER))
}

/// Returns the class named by a claim or volume.
pub(crate) fn class_name(object: &Value) -> Option<&str> {
    annotation(object, protocol::BETA_STORAGE_CLASS).or(optional_text(object, &["spec", "storageClassName"]))
}

/// Returns the provisioner that created a volume.
pub(crate) fn creator(volume: &Value) -> Option<&str> {
    annotation(volume, protocol::PROVISIONED_BY).or(optional_text(volume, &["spec", "csi", "driver"]))
}

/// Adds the finalizers of an object that is being deleted, and the condition for the removal of each.
pub(crate) fn add_finalizers(answer: &mut Answer, object: &Value, now: Timestamp) {
    let Some(since) = optional_text(object, &["metadata", "deletionTimestamp"]) else { return };
    let since = time(since).map_or_else(|| since.to_owned(), |since| ago(now, since));
    let finalizers = crate::object::finalizers(object);
    if finalizers.is_empty() {
        return answer.add_fact("Deletion", format!("requested {since}"));
    }
    let meanings: Vec<String> = finalizers.iter().map(|name| format!("{name} ({})", meaning(name))).collect();
    answer.add_fact("Deletion", format!("requested {since}; waits for {}", meanings.join(", ")));
}

fn meaning(finalizer: &str) -> &'static str {
    match finalizer {
        "kubernetes.io/pvc-protection" => "removed when no pod uses the claim",
        "kubernetes.io/pv-protection" => "removed when the volume is not bound",
        protocol::FINALIZER => "the provisioner removes it after it has deleted the data",
        objectbucket_api::names::FINALIZER => "the provisioner removes it after it has released the bucket",
        name if name.starts_with("external-attacher/") => {
            "the attacher removes it when the volume is detached from all nodes"
        }
        name if name.starts_with("snapshot.storage.kubernetes.io/") => {
            "the snapshotter removes it when its snapshot is done"
        }
        _ => "of another controller",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_texts_about_the_class_lead_to_another_class() {
        let remedy = |message: &str| EventSummary::read(&json!({"message": message})).remedy();
        for of_class in [
            "the claim's StorageClass cannot be used: parameter \"pool\" is missing",
            "The claim's StorageClass \"gold\" cannot be used: parameter \"pool\" is missing",
        ] {
            assert!(remedy(of_class).is_some_and(|remedy| remedy.contains("delete the class")), "{of_class}");
        }
        assert_eq!(remedy("The CA bundle cannot be used: x"), None);
        assert_eq!(remedy("the key of sa@example.com cannot be used: its private_key cannot sign"), None);
        let of_config = remedy("The claim's additionalConfig cannot be used: unknown key \"x\"; correct the claim");
        assert_eq!(of_config, Some("correct additionalConfig of the claim"));
    }
}
