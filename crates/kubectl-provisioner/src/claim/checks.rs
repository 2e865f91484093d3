//! Checks of a claim's class, node, pods, data source and size.

use kube_provisioner::protocol;
use serde_json::Value;

use super::Case;
use crate::CommandContext;
use crate::answer::Answer;
use crate::common::class_name;
use crate::fleets::{controller_manager_problem, provisioner_of};
use crate::object::{annotation, at, is_being_deleted, items, name, optional_text, text, texts};
use crate::reader::{CLAIM, CLASS, Lookup, POD};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Adds the class, or the default class if the claim names none. If kube-controller-manager has to
/// act next, also checks whether it runs.
pub(super) async fn add_class(context: &CommandContext<'_>, answer: &mut Answer, case: &Case) {
    match (class_name(&case.claim), case.class.object()) {
        (Some(named), Some(class)) => {
            answer.add_fact("Class", format!("{named}: {}", describe_class(class)));
            add_topology(answer, case, class);
        }
        (Some(named), None) if case.class.is_absent() => {
            answer.add_fact("Class", format!("{named}, which does not exist"));
        }
        (Some(named), None) => answer.add_fact("Class", named),
        (None, _) if case.claim["spec"]["storageClassName"].is_null() && !case.is_bound() => {
            add_default_class(context, answer).await;
        }
        (None, _) => {}
    }
    let awaits_manager = answer.state == "no provisioner is assigned yet" || answer.state.contains("not bound yet");
    if awaits_manager && let Some(sign) = controller_manager_problem(context).await {
        answer.why.push(format!("{sign}."));
    }
}

fn describe_class(class: &Value) -> String {
    let mode = optional_text(class, &["volumeBindingMode"]).unwrap_or("Immediate");
    let policy = optional_text(class, &["reclaimPolicy"]).unwrap_or("Delete");
    let grows = if class["allowVolumeExpansion"] == true { ", volumes may grow" } else { "" };
    format!("{}, {mode}, {policy}{grows}", provisioner_of(class))
}

async fn add_default_class(context: &CommandContext<'_>, answer: &mut Answer) {
    let Some(classes) = context.reader.list(&CLASS, "", ("", "")).await else { return };
    let is_default = |class: &&Value| annotation(class, DEFAULT_CLASS) == Some("true");
    let defaults: Vec<&str> = classes.iter().filter(is_default).map(name).collect();
    match defaults.as_slice() {
        [] => {
            answer.add_fact("Class", "none, and there is no default class");
            answer.remedy.push("delete the claim and create it with storageClassName".to_owned());
            answer.remedy.push("administrator: or set a default class".to_owned());
        }
        names => {
            answer.add_fact("Class", format!("none yet; the default class is {}", names.join(", ")));
            answer.remedy.push("wait a few seconds: kube-controller-manager sets the default class".to_owned());
        }
    }
}

/// Adds the class's allowed topologies, and checks that the selected node matches them.
fn add_topology(answer: &mut Answer, case: &Case, class: &Value) {
    let terms = items(class, &["allowedTopologies"]);
    if terms.is_empty() || case.is_bound() {
        return;
    }
    let rule = |rule: &Value| format!("{} is one of {}", text(rule, &["key"]), texts(rule, &["values"]).join(", "));
    let term =
        |term: &Value| items(term, &["matchLabelExpressions"]).iter().map(rule).collect::<Vec<_>>().join(" and ");
    answer.add_fact("Topology", terms.iter().map(term).collect::<Vec<_>>().join("; or "));
    let Some((selected, Lookup::Present(node))) = &case.node else { return };
    let fits = |rule: &Value| {
        let value = optional_text(node, &["metadata", "labels", text(rule, &["key"])]);
        value.is_some_and(|value| texts(rule, &["values"]).contains(&value))
    };
    let allowed = terms.iter().any(|term| items(term, &["matchLabelExpressions"]).iter().all(fits));
    if !allowed {
        answer.add_obstacle(format!("The selected node {selected} is not where the class allows volumes."));
        answer.remedy.push(
            "delete the pod and the claim, and create both again, so that the scheduler chooses another node"
                .to_owned(),
        );
    }
}

pub(super) fn add_volume(answer: &mut Answer, case: &Case) {
    if let Some(volume) = case.volume.object() {
        let phase = optional_text(volume, &["status", "phase"]).unwrap_or("Pending");
        answer.add_fact("Volume", format!("{} is {phase}", name(volume)));
    }
}

/// Checks the selected node.
pub(super) fn add_node(answer: &mut Answer, case: &Case) {
    let Some((selected, node)) = &case.node else { return };
    answer.add_fact("Node", format!("the scheduler has chosen {selected}"));
    if node.is_absent() {
        answer.add_obstacle(format!("The selected node {selected} does not exist."));
        answer.remedy.push(format!(
            "wait two minutes: the provisioner asks the scheduler for another node, unless it has an attempt on that \
             node; otherwise remove the claim's annotation {}",
            protocol::SELECTED_NODE
        ));
        return;
    }
    let Some(provisioner) = case.provisioner.as_deref().filter(|_| case.fleets.journals_known) else { return };
    let fleets = case.fleets.for_provisioner(provisioner);
    let of_nodes = fleets.iter().filter(|fleet| fleet.is_per_node()).collect::<Vec<_>>();
    let has_run = of_nodes.iter().any(|fleet| fleet.may_have_run_on(selected, provisioner));
    if !of_nodes.is_empty() && !has_run {
        answer.add_obstacle(format!("No replica of {provisioner} has run on the selected node {selected}."));
        answer.remedy.push(format!(
            "keep the claim's pod off that node, and remove the claim's annotation {}",
            protocol::SELECTED_NODE
        ));
        answer.remedy.push(
            "administrator: or let the provisioner's pods run on that node (node selector, tolerations)".to_owned(),
        );
    }
}

/// Adds the pods that use the claim, if the claim or its deletion waits for them.
pub(super) async fn add_pods(context: &CommandContext<'_>, answer: &mut Answer, case: &Case) {
    let awaits_node = !case.is_bound() && case.waits_for_consumer() && case.selected_node().is_none();
    if !awaits_node && !is_being_deleted(&case.claim) {
        return;
    }
    let Some(pods) = context.reader.list(&POD, context.namespace, ("", "")).await else { return };
    let uses = |pod: &&Value| {
        let of_claim = |volume: &Value| text(volume, &["persistentVolumeClaim", "claimName"]) == name(&case.claim);
        // The claim of a generic ephemeral volume is named after the pod and the volume.
        let ephemeral = |volume: &Value| {
            !volume["ephemeral"].is_null() && format!("{}-{}", name(pod), text(volume, &["name"])) == name(&case.claim)
        };
        items(pod, &["spec", "volumes"]).iter().any(|volume| of_claim(volume) || ephemeral(volume))
    };
    let users: Vec<&Value> = pods.iter().filter(uses).collect();
    for pod in &users {
        answer.add_fact("Pod", format!("{} {}", name(pod), describe_pod(pod)));
    }
    if !awaits_node || is_being_deleted(&case.claim) {
        return;
    }
    match users.as_slice() {
        [] => {
            answer.why.push("No pod uses the claim.".to_owned());
            answer.remedy.push("create a pod that uses the claim".to_owned());
        }
        pods if pods.iter().all(|pod| optional_text(pod, &["spec", "nodeName"]).is_some()) => {
            answer.why.push(
                "The pods were assigned to a node without the scheduler, so no node is selected for the claim."
                    .to_owned(),
            );
            answer.remedy.push("create the pods with a node selector instead of spec.nodeName".to_owned());
        }
        _ => answer.remedy.push("find out why the scheduler places no pod".to_owned()),
    }
}

fn describe_pod(pod: &Value) -> String {
    if let Some(node) = optional_text(pod, &["spec", "nodeName"]) {
        return format!("is on node {node}");
    }
    let conditions = items(pod, &["status", "conditions"]);
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
    let why = scheduled.and_then(|condition| optional_text(condition, &["message"]));
    let gates: Vec<&str> = items(pod, &["spec", "schedulingGates"]).iter().map(|gate| text(gate, &["name"])).collect();
    match (why, gates.as_slice()) {
        (_, [_, ..]) => format!("has no node: the scheduler waits for its gates {}", gates.join(", ")),
        (Some(why), []) => format!("has no node: {why}"),
        (None, []) => "has no node yet".to_owned(),
    }
}

/// Checks the data source of the volume.
pub(super) async fn add_source(context: &CommandContext<'_>, answer: &mut Answer, case: &Case) {
    let spec = |field| at(&case.claim, &["spec", field]);
    let source = Some(spec("dataSourceRef")).filter(|source| !source.is_null()).unwrap_or(spec("dataSource"));
    let (kind, source_name) = (text(source, &["kind"]), text(source, &["name"]));
    if kind.is_empty() || case.is_bound() {
        return;
    }
    let place = optional_text(source, &["namespace"]);
    let exists = match kind {
        "PersistentVolumeClaim" => context.reader.get(&CLAIM, place.unwrap_or(context.namespace), source_name).await,
        _ => Lookup::Unknown,
    };
    let source_name = place.map_or_else(|| source_name.to_owned(), |place| format!("{place}/{source_name}"));
    match exists {
        Lookup::Present(claim) if optional_text(&claim, &["spec", "volumeName"]).is_none() => {
            answer.add_fact("Source", format!("{kind} {source_name}"));
            answer.add_obstacle(format!("The {kind} {source_name} is not bound itself."));
        }
        Lookup::Absent => {
            answer.add_fact("Source", format!("{kind} {source_name}"));
            answer.add_obstacle(format!("There is no {kind} {source_name} to copy."));
            answer
                .remedy
                .push(format!("create {kind} {source_name}, or delete the claim and create it without a data source"));
        }
        _ => answer.add_fact("Source", format!("{kind} {source_name}")),
    }
}

/// Adds the requested and the actual size if they differ.
pub(super) fn add_size(answer: &mut Answer, claim: &Value) {
    let wanted = optional_text(claim, &["spec", "resources", "requests", "storage"]);
    let has = optional_text(claim, &["status", "capacity", "storage"]);
    let bytes = |text: &str| kube_provisioner::quantity::parse_bytes(text).ok();
    if let (Some(wanted), Some(has)) = (wanted, has)
        && bytes(wanted) > bytes(has)
    {
        answer.add_fact("Size", format!("the claim asks for {wanted} and has {has}"));
    }
    for condition in items(claim, &["status", "conditions"]).iter().filter(|condition| condition["status"] == "True") {
        let message = optional_text(condition, &["message"]).unwrap_or("no message");
        answer.add_fact("Condition", format!("{}: {message}", text(condition, &["type"])));
    }
}
