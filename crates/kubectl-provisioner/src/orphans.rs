//! `orphans`: objects without a responsible provisioner.

use std::collections::BTreeSet;

use kube_provisioner::explain::journal::EntryObjects;
use kube_provisioner::explain::volume::Decision;
use kube_provisioner::protocol;
use serde_json::{Value, json};

use crate::CommandContext;
use crate::answer::{Answer, table};
use crate::common::creator;
use crate::fleets::{Fleets, claim_uid, unreadable_lines};
use crate::object::{annotation, is_being_deleted, label, name, optional_text, text, uid};
use crate::overview::all_fleets;
use crate::reader::{BUCKET, BUCKET_CLAIM, CLAIM, Lookup, NODE, VOLUME};
use crate::volume::judgement;

/// The reason for an attempt of a restored journal, which the provisioner does not continue.
const RESTORED: &str =
    "the attempt was restored; end it with the provisioner's command `journal accept` or `journal drop`";

struct Orphan {
    kind: &'static str,
    name: String,
    why: String,
}

pub(crate) async fn find(context: &CommandContext<'_>) -> Answer {
    let (fleets, _) = all_fleets(context).await;
    let claims = context.reader.list(&CLAIM, "", ("", "")).await;
    let volumes = context.reader.list(&VOLUME, "", ("", "")).await;
    let mut orphans = orphaned_entries(&fleets, claims.as_deref());
    let nodes = context.reader.list(&NODE, "", ("", "")).await;
    for volume in volumes.iter().flatten() {
        let is_of = |node: &Value| annotation(volume, protocol::IDENTITY) == Some(name(node));
        let node_is_gone = nodes.as_ref().is_some_and(|nodes| !nodes.iter().any(is_of));
        orphans.extend(orphaned_volume(context, &fleets, volume, claims.as_deref(), node_is_gone));
    }
    let buckets = context.reader.list(&BUCKET, "", ("", "")).await;
    let bucket_claims = context.reader.list(&BUCKET_CLAIM, "", ("", "")).await;
    if let (Some(buckets), Some(claims)) = (&buckets, &bucket_claims) {
        orphans.extend(buckets.iter().filter_map(|bucket| orphaned_bucket(bucket, claims, &fleets)));
    }
    let rows: Vec<[String; 3]> =
        orphans.iter().map(|Orphan { kind, name, why }| [(*kind).to_owned(), name.clone(), why.clone()]).collect();
    let items = orphans.iter().map(|Orphan { kind, name, why }| json!({"kind": kind, "name": name, "why": why}));
    let volumes_read = claims.is_some() && volumes.is_some() && nodes.is_some();
    let unreadable = unreadable_lines(fleets.all.iter());
    let all_read = volumes_read && buckets.is_some() && bucket_claims.is_some() && unreadable.is_none();
    if let Some(note) = unreadable {
        context.reader.record(note);
    }
    let state = match (rows.is_empty(), all_read && fleets.leases_known && fleets.journals_known) {
        (false, _) => "",
        (true, true) => "no orphans were found",
        (true, false) => "nothing was found, but not everything could be read",
    };
    let items = items.collect::<Vec<_>>().into();
    let table = if rows.is_empty() { String::new() } else { table(["KIND", "NAME", "WHY"], &rows) };
    Answer { items, table, ..Answer::new("", state) }
}

/// Returns attempts whose claim no longer exists. The holder of the journal removes their leftovers. Without a holder,
/// or if the attempt was restored with the journal, the leftovers remain.
fn orphaned_entries(fleets: &Fleets, claims: Option<&[Value]>) -> Vec<Orphan> {
    let Some(claims) = claims else { return Vec::new() };
    let live: BTreeSet<&str> = claims.iter().map(uid).collect();
    let mut orphans = Vec::new();
    for fleet in &fleets.all {
        let who = match (fleet.is_held(), fleet.is_abandoned()) {
            (true, _) => "its provisioner removes the leftovers of the attempt",
            (false, false) => "whether its provisioner runs is unknown",
            (false, true) => "no replica of its provisioner works",
        };
        for journal in &fleet.journals {
            let entries = journal.entries.iter().map(|entry| (entry, who));
            let restored = journal.restored.iter().map(|entry| (entry, RESTORED));
            for (entry, who) in entries.chain(restored) {
                let objects = EntryObjects::read(entry);
                // A CSI plugin may give volumes another prefix, and shorten the uid.
                if live.contains(objects.uid().unwrap_or_else(|| claim_uid(entry))) {
                    continue;
                }
                let why = format!("the claim {} of this attempt does not exist; {who}", objects.claim());
                orphans.push(Orphan {
                    kind: "Entry",
                    name: format!("{}/{} {}", fleet.namespace, journal.name, entry.key),
                    why,
                });
            }
        }
    }
    orphans
}

fn orphaned_volume(
    context: &CommandContext<'_>,
    fleets: &Fleets,
    volume: &Value,
    claims: Option<&[Value]>,
    node_is_gone: bool,
) -> Option<Orphan> {
    let provisioner = creator(volume)?;
    let of = fleets.for_provisioner(provisioner);
    let ours = annotation(volume, protocol::IDENTITY).is_some() || !of.is_empty();
    if !ours {
        return None;
    }
    let orphan = |why: String| Some(Orphan { kind: "PersistentVolume", name: name(volume).to_owned(), why });
    let owner = text(volume, &["spec", "claimRef", "uid"]);
    // The volume was deleted after its claimRef was removed.
    let is_unclaimed = is_being_deleted(volume) && owner.is_empty();
    let released = optional_text(volume, &["status", "phase"]) == Some("Released") || is_unclaimed;
    let deletes = optional_text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == Some("Delete");
    let released = released && deletes;
    let state = if released { "it is released, and " } else { "" };
    if of.is_empty() && fleets.leases_known && fleets.journals_known {
        return orphan(format!("{state}there is no Lease and no journal of its provisioner {provisioner}"));
    }
    if !of.is_empty() && of.iter().all(|fleet| fleet.is_abandoned()) {
        return orphan(format!("{state}no replica of its provisioner {provisioner} works"));
    }
    if !released {
        return None;
    }
    let claim = match claims {
        None => Lookup::Unknown,
        Some(claims) => claims
            .iter()
            .find(|claim| uid(claim) == owner)
            .map_or(Lookup::Absent, |claim| Lookup::Present(claim.clone())),
    };
    match judgement(context, fleets, provisioner, volume, &claim, &[], node_is_gone)? {
        of if matches!(of.decision, Decision::Delete(_) | Decision::FinishDelete) => None,
        of => orphan(of.message.unwrap_or_else(|| format!("it is released, and not deleted: {:?}", of.decision))),
    }
}

fn orphaned_bucket(bucket: &Value, claims: &[Value], fleets: &Fleets) -> Option<Orphan> {
    let of = |field| text(bucket, &["spec", "claimRef", field]);
    let owns = |claim: &Value| {
        let points = text(claim, &["spec", "objectBucketName"]) == name(bucket);
        if of("uid").is_empty() { points } else { uid(claim) == of("uid") }
    };
    if claims.iter().any(owns) {
        return None;
    }
    let made_by = annotation(bucket, protocol::BUCKET_PROVISIONER);
    let held =
        made_by.is_some_and(|provisioner| fleets.for_provisioner(provisioner).iter().any(|fleet| fleet.is_held()));
    let creator =
        made_by.or(label(bucket, objectbucket_api::names::PROVISIONER_LABEL)).unwrap_or("its unnamed provisioner");
    // The absence of a claim does not prove its deletion, so the provisioner keeps a bucket without either mark.
    let is_released = is_being_deleted(bucket) || annotation(bucket, protocol::ABANDON) == Some("true");
    let deletion = if is_being_deleted(bucket) { "it is being deleted, and " } else { "" };
    let who = match (held, is_released) {
        (true, true) => format!("{creator} releases the bucket"),
        (true, false) => {
            format!("{creator} keeps the bucket until an administrator deletes or assigns it; see its events")
        }
        (false, _) if !fleets.leases_known => format!("{deletion}whether {creator} runs is unknown"),
        (false, _) => format!("{deletion}no running replica of {creator} was found"),
    };
    let claim = if of("name").is_empty() {
        "names no claim".to_owned()
    } else {
        format!("claim {}/{} does not exist", of("namespace"), of("name"))
    };
    Some(Orphan { kind: "ObjectBucket", name: name(bucket).to_owned(), why: format!("{claim}; {who}") })
}
