//! `list` and `journal`: running provisioners, and the entries of journals.

use std::collections::{BTreeMap, BTreeSet};

use kube_provisioner::explain::journal;
use kube_provisioner::protocol;
use provisioner_runtime::journal::Listing;
use serde_json::json;

use crate::CommandContext;
use crate::answer::{Answer, table};
use crate::fleets::{Fleet, Fleets, or_none, provisioner_of};
use crate::object::{annotation, name};
use crate::reader::{CLASS, VOLUME};

/// Lists provisioners, their shards, and the holders.
pub(crate) async fn list(context: &CommandContext<'_>) -> Answer {
    let (fleets, in_classes) = all_fleets(context).await;
    let names = provisioner_names(context, in_classes).await;
    let name_of = |fleet: &Fleet| names.iter().find(|name| fleet.is_named(name)).unwrap_or(&fleet.name).clone();
    let mut rows: Vec<[String; 7]> = Vec::new();
    for fleet in &fleets.all {
        let entries = |shard: Option<(u32, u32)>| {
            let is_of = |journal: &&Listing| match shard {
                None | Some((_, 1)) => true,
                // Names of some provisioners cannot be names of objects, so the journal's name ends with a hash.
                Some((number, of)) => {
                    journal.layout == of.to_string() && journal.name.contains(&format!("-journal-{number}-of-{of}"))
                }
            };
            fleet.journals.iter().filter(is_of).map(|journal| journal.entries.len()).sum::<usize>().to_string()
        };
        for shard in &fleet.shards {
            let holder = or_none(shard.holder.as_deref().unwrap_or_default()).to_owned();
            let place = format!("{} of {}", shard.number, shard.shard_count);
            let (state, of) = (shard.state().to_owned(), Some((shard.number, shard.shard_count)));
            rows.push([
                name_of(fleet),
                fleet.namespace.clone(),
                place,
                holder,
                state,
                shard.renewed.clone(),
                entries(of),
            ]);
        }
        if fleet.shards.is_empty() || fleet.is_per_node() {
            for journal in &fleet.journals {
                let (place, holder) = (journal.layout.replace("node", "per node"), or_none(&journal.holder).to_owned());
                let state = "unknown: no Lease".to_owned();
                let count = journal.entries.len().to_string();
                rows.push([name_of(fleet), fleet.namespace.clone(), place, holder, state, "-".to_owned(), count]);
            }
        }
    }
    for name in names.iter().filter(|name| fleets.for_provisioner(name).is_empty()) {
        let none = || "-".to_owned();
        let state = if fleets.leases_known { "no Lease" } else { "unknown" };
        rows.push([name.clone(), none(), none(), none(), state.to_owned(), none(), none()]);
    }
    rows.sort();
    let state = if rows.is_empty() { "no provisioner was found" } else { "" };
    let head = ["PROVISIONER", "NAMESPACE", "SHARD", "HOLDER", "STATE", "RENEWED", "RECORDED"];
    let items = rows.iter().map(|[provisioner, namespace, shard, holder, state, renewed, recorded]| {
        json!({"provisioner": provisioner, "namespace": namespace, "shard": shard, "holder": holder, "state": state,
            "renewed": renewed, "recorded": recorded})
    });
    let items = items.collect::<Vec<_>>().into();
    let table = if rows.is_empty() { String::new() } else { table(head, &rows) };
    Answer { items, table, ..Answer::new("", state) }
}

/// Lists the attempts recorded in the journals, by namespace.
pub(crate) async fn journal(context: &CommandContext<'_>) -> Answer {
    let fleets = Fleets::find(context, &BTreeSet::new()).await;
    let mut by_namespace: BTreeMap<String, Vec<Listing>> = BTreeMap::new();
    for fleet in fleets.all {
        by_namespace.entry(fleet.namespace).or_default().extend(fleet.journals);
    }
    by_namespace.retain(|_, journals| !journals.is_empty());
    let mut items = Vec::new();
    let mut text = String::new();
    for (namespace, journals) in &by_namespace {
        text.push_str(&format!("Namespace {namespace}\n{}", journal::table(journals)));
        for journal in journals {
            let all = journal.entries.iter().map(|entry| (entry, false));
            let all = all.chain(journal.restored.iter().map(|entry| (entry, true)));
            let entries = all.map(|(entry, restored)| {
                let objects = journal::EntryObjects::read(entry);
                json!({"entry": entry.key, "claim": objects.claim(), "class": objects.class_name(),
                    "claimSince": objects.since(), "restored": restored,
                    "dropping": journal.dropping.contains(&entry.key)})
            });
            items.push(json!({"namespace": namespace, "journal": journal.name, "holder": journal.holder,
                "entries": entries.collect::<Vec<_>>(), "unreadable": journal.unreadable.len()}));
        }
    }
    let state = match (by_namespace.is_empty(), fleets.journals_known) {
        (false, _) => "",
        (true, true) => "there is no journal",
        (true, false) => "the journals cannot be read",
    };
    Answer { items: items.into(), table: text, ..Answer::new("", state) }
}

/// Returns all fleets, and the provisioners that classes name.
pub(crate) async fn all_fleets(context: &CommandContext<'_>) -> (Fleets, BTreeSet<String>) {
    let classes = context.reader.list(&CLASS, "", ("", "")).await.unwrap_or_default();
    let in_classes: BTreeSet<String> = classes.iter().map(|class| provisioner_of(class).to_owned()).collect();
    let fleets = Fleets::find(context, &in_classes).await;
    (fleets, in_classes)
}

/// Returns the provisioners named by classes, or by volumes of this project.
async fn provisioner_names(context: &CommandContext<'_>, in_classes: BTreeSet<String>) -> BTreeSet<String> {
    // Kubernetes' built-in provisioners have no separate controller.
    let mut names: BTreeSet<String> =
        in_classes.into_iter().filter(|name| !name.starts_with("kubernetes.io/")).collect();
    let volumes = context.reader.list(&VOLUME, "", ("", "")).await.unwrap_or_default();
    let ours =
        volumes.iter().filter(|volume| annotation(volume, protocol::IDENTITY).is_some() && !name(volume).is_empty());
    names.extend(ours.filter_map(|volume| annotation(volume, protocol::PROVISIONED_BY)).map(str::to_owned));
    names
}
