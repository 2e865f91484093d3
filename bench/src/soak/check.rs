//! Checks of the final state, and the report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use testbed::progress::{SharedProgress, seconds};
use tokio::time::{Instant, sleep};

use super::faults::InjectedFaults;
use super::ledger::{Ledger, volume_of};
use super::replica::Totals;
use super::view::View;
use super::{LEASE, Soak};
use crate::cluster::NAMESPACE;

/// Time limit for the final state.
const SETTLING: Duration = Duration::from_secs(240);
/// Time for which the final state must last.
const STAYING: Duration = Duration::from_secs(8);

/// Problems, by kind.
pub(super) type Findings = BTreeMap<Kind, Vec<String>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Leaked,
    Double,
    Lost,
    Unbound,
    NotGone,
    Outside,
    Journal,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Leaked, "leaked: directories without a volume"),
    (Kind::Double, "double: claims with two volumes"),
    (Kind::Lost, "lost: data or directories of claims that live, or of retained volumes"),
    (Kind::Unbound, "unbound: claims that live and have no volume"),
    (Kind::NotGone, "claims and volumes that should be gone"),
    (Kind::Outside, "changes outside the root directory"),
    (Kind::Journal, "journal entries left"),
];

/// Waits until there are no problems for a while; returns the problems that remain at the time limit.
pub(super) async fn settled(soak: &Soak, progress: &SharedProgress) -> anyhow::Result<Findings> {
    let deadline = Instant::now() + SETTLING;
    let mut good_since = None;
    loop {
        let findings = find_problems(soak).await;
        let now = Instant::now();
        match findings {
            Ok(findings) if findings.is_empty() => {
                if now.duration_since(*good_since.get_or_insert(now)) > STAYING {
                    return Ok(findings);
                }
            }
            Ok(findings) => {
                good_since = None;
                // Permanent problems are not waited for.
                let all = findings.values().map(Vec::len).sum::<usize>();
                let for_good = soak.ledger().broken();
                progress.status(&format!("calm; {all} things are not yet as they should be"));
                if now > deadline || (all == for_good && now + SETTLING > deadline + STAYING) {
                    for (kind, texts) in &findings {
                        texts.iter().for_each(|text| soak.log.write_line(format_args!("BROKEN: {kind:?}: {text}")));
                    }
                    return Ok(findings);
                }
            }
            Err(error) if now > deadline => return Err(error),
            Err(_) => {}
        }
        sleep(Duration::from_secs(1)).await;
    }
}

async fn find_problems(soak: &Soak) -> anyhow::Result<Findings> {
    // Directories are read first: a directory created in the meantime would have no volume in an older list.
    let directories = soak.disk.names()?;
    let view = View::read(&soak.cluster).await?;
    let journal = journal(soak).await?;
    let around = soak.disk.changes_around()?;
    let ledger = soak.ledger();
    let mut found = Findings::new();
    let mut add = |kind, text: String| found.entry(kind).or_default().push(text);
    ledger.lost.iter().for_each(|text| add(Kind::Lost, text.clone()));
    ledger.double.iter().for_each(|text| add(Kind::Double, text.clone()));
    around.into_iter().for_each(|text| add(Kind::Outside, text));
    journal.into_iter().for_each(|text| add(Kind::Journal, text));
    for name in &directories {
        if !view.volumes.contains_key(name) && !was_kept(&ledger, name) {
            add(Kind::Leaked, name.clone());
        }
    }
    for (uid, seen) in &view.claims {
        if !ledger.is_alive(uid) {
            add(Kind::NotGone, format!("claim {}", seen.name));
        }
    }
    for (uid, claim) in ledger.claims.iter().filter(|(uid, _)| ledger.is_alive(uid)) {
        let volume = volume_of(uid);
        let seen = view.claims.get(uid);
        if seen.and_then(|seen| seen.volume.as_deref()) != Some(&volume) {
            add(Kind::Unbound, format!("claim {} {uid}", claim.name));
        } else if !directories.contains(&volume) {
            add(Kind::Lost, format!("directory {volume} of claim {}", claim.name));
        }
    }
    for (name, volume) in &view.volumes {
        if !ledger.is_alive(&volume.claim) && !volume.retain {
            add(Kind::NotGone, format!("volume {name}, {}", volume.phase));
        } else if !directories.contains(name) {
            add(Kind::Lost, format!("directory of volume {name}"));
        }
        if volume.path != soak.disk.root().join(name).to_string_lossy() {
            add(Kind::Outside, format!("volume {name} has its directory at {}", volume.path));
        }
    }
    Ok(found)
}

/// Returns true if its volume was to be retained, and the object was deleted.
fn was_kept(ledger: &Ledger, directory: &str) -> bool {
    let claim = directory.strip_prefix("pvc-").and_then(|uid| ledger.claims.get(uid));
    claim.is_some_and(|claim| claim.retain && claim.volume_deleted)
}

/// Counts volumes that were saved again: a replica killed before its journal recorded the volume as saved leaves this
/// to the next one, which cannot know that the object was deleted meanwhile. It finds the directory with all data and
/// saves the volume again.
fn count_resaved(soak: &Soak, ledger: &Ledger) -> usize {
    let view = soak.view.borrow();
    let deleted = |uid: &str| ledger.claims.get(uid).is_some_and(|claim| claim.volume_deleted);
    let gone = |uid: &str| !ledger.is_alive(uid);
    view.volumes.values().filter(|volume| volume.retain && deleted(&volume.claim) && gone(&volume.claim)).count()
}

async fn journal(soak: &Soak) -> anyhow::Result<Vec<String>> {
    let api: Api<ConfigMap> = Api::namespaced(soak.cluster.client(), NAMESPACE);
    let journals = api.list(&ListParams::default().labels("app.kubernetes.io/component=journal")).await?;
    let entries = |journal: &ConfigMap| {
        let lines = journal.data.as_ref().and_then(|data| data.get("entries")).cloned().unwrap_or_default();
        lines.lines().map(|line| format!("{}: {line}", journal.name_any())).collect::<Vec<_>>()
    };
    Ok(journals.items.iter().flat_map(entries).collect())
}

/// One run, for its report.
pub(super) struct Run<'a> {
    pub(super) faults: &'a InjectedFaults,
    pub(super) replicas: &'a Totals,
    pub(super) findings: &'a Findings,
    pub(super) took: Duration,
    /// Time since the end of the last fault.
    pub(super) settled: Duration,
}

pub(super) fn report(soak: &Soak, run: &Run<'_>) -> anyhow::Result<String> {
    let Run { faults, replicas, findings, took, settled } = run;
    let ledger = soak.ledger();
    let directories = soak.disk.made();
    let again = directories.values().filter(|times| **times > 1).count();
    let living = ledger.claims.keys().filter(|uid| ledger.is_alive(uid)).count();
    let mut table = String::from("| fault | times |\n|---|---|\n");
    for (kind, times) in &faults.by_kind {
        writeln!(table, "| {kind} | {times} |")?;
    }
    writeln!(table, "| **all** | **{}** |\n", faults.by_kind.values().sum::<usize>())?;
    let mut row = |what: &str, figure: String| writeln!(table, "| {what} | {figure} |").context("no memory");
    row("measured", "figure".to_owned())?;
    row("---", "---".to_owned())?;
    row("seed", soak.seed.to_string())?;
    row("duration; from the last fault until all was settled", format!("{}; {}", seconds(*took), seconds(*settled)))?;
    row("Leases", LEASE.join(" "))?;
    row("claims created; still existing at the end", format!("{}, {living}", ledger.claims.len()))?;
    row("decisions to provision, to delete", format!("{}, {}", replicas.provisions, replicas.deletions))?;
    row("directories created, of these more than once", format!("{}, {again}", directories.len()))?;
    row("faults that hit a directory without a saved volume", faults.without_volume.to_string())?;
    row("directories without a saved volume at that time", faults.unsaved.to_string())?;
    row("claims deleted while no replica that knew the directory was running", faults.orphaned.to_string())?;
    row("starts of replicas; unexpected ends", format!("{}; {}", replicas.starts, replicas.ended_by_themselves))?;
    row("SIGTERM and no end within 15 s", faults.too_slow.to_string())?;
    row("panics", replicas.panics.to_string())?;
    row(
        "retained volumes that were deleted manually and restored from a journal",
        count_resaved(soak, &ledger).to_string(),
    )?;
    for (kind, what) in KINDS {
        row(what, findings.get(&kind).map_or(0, Vec::len).to_string())?;
    }
    Ok(table)
}
