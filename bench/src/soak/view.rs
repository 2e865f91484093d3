//! The state of the API server, read several times a second, and checks that apply at any time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::ListParams;
use tokio::sync::watch;

use super::ledger::{Stage, volume_of};
use super::{PROVISIONER, Soak};
use crate::cluster::Cluster;

const PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct View {
    /// By uid.
    pub(super) claims: HashMap<String, ClaimView>,
    /// By name.
    pub(super) volumes: HashMap<String, VolumeView>,
}

pub(super) struct ClaimView {
    pub(super) name: String,
    /// The volume that it is bound to.
    pub(super) volume: Option<String>,
}

pub(super) struct VolumeView {
    pub(super) claim: String,
    pub(super) retain: bool,
    pub(super) phase: String,
    pub(super) path: String,
}

impl View {
    /// Reads the current state.
    pub(super) async fn read(cluster: &Cluster) -> kube::Result<Self> {
        let (claims, volumes) = (cluster.claims(), cluster.volumes());
        let all = ListParams::default();
        let (claims, volumes) = tokio::try_join!(claims.list(&all), volumes.list(&all))?;
        Ok(Self {
            claims: claims.items.into_iter().map(seen_claim).collect(),
            volumes: volumes.items.into_iter().filter_map(seen_volume).collect(),
        })
    }
}

fn seen_claim(claim: PersistentVolumeClaim) -> (String, ClaimView) {
    let bound = testbed::cluster::is_bound(&claim);
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|_| bound);
    (claim.uid().unwrap_or_default(), ClaimView { name: claim.name_any(), volume })
}

fn seen_volume(volume: PersistentVolume) -> Option<(String, VolumeView)> {
    let maker = volume.annotations().get("pv.kubernetes.io/provisioned-by");
    maker.filter(|maker| *maker == PROVISIONER)?;
    let name = volume.name_any();
    let (spec, status) = (volume.spec.unwrap_or_default(), volume.status.unwrap_or_default());
    let seen = VolumeView {
        claim: spec.claim_ref.and_then(|claim| claim.uid).unwrap_or_default(),
        retain: spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain"),
        phase: status.phase.unwrap_or_default(),
        path: spec.host_path.map(|host_path| host_path.path).unwrap_or_default(),
    };
    Some((name, seen))
}

/// Keeps the view up to date, and checks for violations.
pub(super) async fn keep_updated(soak: Arc<Soak>, views: watch::Sender<Arc<View>>) {
    loop {
        // While the API server is down, the last view remains.
        if let Ok(view) = View::read(&soak.cluster).await {
            look_for_doubles(&soak, &view);
            views.send_replace(Arc::new(view));
        }
        look_for_losses(&soak);
        tokio::time::sleep(PAUSE).await;
    }
}

fn look_for_doubles(soak: &Soak, view: &View) {
    let mut by_claim: HashMap<&str, &str> = HashMap::new();
    for (name, volume) in &view.volumes {
        if let Some(other) = by_claim.insert(&volume.claim, name) {
            let text = format!("claim {} has the volumes {name} and {other}", volume.claim);
            let mut ledger = soak.ledger();
            if !ledger.double.contains(&text) {
                soak.log.write_line(format_args!("BROKEN: {text}"));
                ledger.double.push(text);
            }
        }
    }
}

/// Checks that a bound claim's data exists until its deletion is requested, and a retained volume's data forever.
fn look_for_losses(soak: &Soak) {
    let mut ledger = soak.ledger();
    let mut lost = Vec::new();
    for (uid, claim) in &mut ledger.claims {
        if !claim.marked || (claim.stage == Stage::Deleting && !claim.retain) {
            continue;
        }
        if let Err(problem) = soak.disk.check_marker(&volume_of(uid), uid) {
            // One report is enough.
            claim.marked = false;
            lost.push(format!("the data of claim {}: {problem}", claim.name));
        }
    }
    for text in lost {
        soak.log.write_line(format_args!("BROKEN: {text}"));
        ledger.lost.push(text);
    }
}
