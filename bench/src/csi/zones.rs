//! Checks of a driver with topology: the zones of volumes, and the published capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::driver::ZONE;
use super::stage::Stage;

pub(super) const ZONES: [&str; 3] = ["a", "b", "c"];
/// The flags of both sidecars.
pub(super) const FLAGS: [&str; 4] =
    ["--strict-topology", "--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=2s"];
const INTERVAL: Duration = Duration::from_millis(300);

/// Creates one node in each zone.
pub(super) async fn create_nodes(stage: &Stage) -> anyhow::Result<()> {
    for zone in stage.zones() {
        stage.create_node(&node(stage, zone), zone).await?;
    }
    Ok(())
}

/// Deletes the nodes.
pub(super) async fn delete_nodes(stage: &Stage) -> anyhow::Result<()> {
    for zone in stage.zones() {
        stage.delete_node(&node(stage, zone)).await?;
    }
    Ok(())
}

pub(super) fn node(stage: &Stage, zone: &str) -> String {
    format!("{}-{zone}", stage.name)
}

/// The volumes seen so far.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) volumes: BTreeSet<String>,
    /// Volumes that are not in the zone of their claim's node.
    pub(super) wrong: BTreeSet<String>,
    /// The largest number of CSIStorageCapacity objects with the same class and segment.
    pub(super) most_of_one: usize,
    /// The number of CSIStorageCapacity objects when they were last listed.
    pub(super) published: usize,
}

/// Checks until it is dropped.
pub(super) struct Watch {
    seen: Arc<Mutex<Observations>>,
    task: JoinHandle<()>,
}

impl Watch {
    pub(super) fn start(stage: &Arc<Stage>) -> Self {
        let seen = Arc::<Mutex<Observations>>::default();
        let (stage, seen_by_task) = (stage.clone(), seen.clone());
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = check(&stage, &seen_by_task).await {
                    eprintln!("the check of zones failed: {error:#}");
                }
                sleep(INTERVAL).await;
            }
        });
        Self { seen, task }
    }

    /// Checks once more, and returns what was seen.
    pub(super) async fn finish(self, stage: &Stage) -> anyhow::Result<Observations> {
        check(stage, &self.seen).await?;
        Ok(std::mem::take(&mut *self.seen.lock().unwrap()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn check(stage: &Stage, seen: &Mutex<Observations>) -> anyhow::Result<()> {
    let volumes = stage.volumes().await?;
    let published = Api::<CSIStorageCapacity>::namespaced(stage.client.clone(), &stage.name)
        .list(&ListParams::default().match_any())
        .await?
        .items;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for object in &published {
        *counts.entry(json!([object.storage_class_name, object.node_topology]).to_string()).or_default() += 1;
    }
    let mut seen = seen.lock().unwrap();
    seen.published = published.len();
    seen.most_of_one = seen.most_of_one.max(counts.into_values().max().unwrap_or_default());
    for volume in volumes {
        if zone_of_claim(stage, &volume) != zone_of_affinity(&volume) {
            seen.wrong.insert(volume.name_any());
        }
        seen.volumes.insert(volume.name_any());
    }
    Ok(())
}

/// The zone that `Traffic` selects for a claim: `claim-PLACE-NUMBER`.
fn zone_of_claim<'a>(stage: &'a Stage, volume: &PersistentVolume) -> Option<&'a str> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?.name.as_ref()?;
    zone_of(stage, claim.split('-').nth(1)?.parse().ok()?)
}

pub(super) fn zone_of(stage: &Stage, place: usize) -> Option<&str> {
    stage.zones().get(place.checked_rem(stage.zones().len())?).map(String::as_str)
}

fn zone_of_affinity(volume: &PersistentVolume) -> Option<&str> {
    let terms = &volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let [term] = terms.as_slice() else { return None };
    let [requirement] = term.match_expressions.as_deref()? else { return None };
    let [zone] = requirement.values.as_deref()? else { return None };
    (requirement.key == ZONE).then_some(zone)
}
