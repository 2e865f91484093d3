//! Claims that are created and deleted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use testbed::cluster::is_bound;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::stage::Stage;
use super::zones;

/// Percentage of claims that are deleted early, mostly during CreateVolume.
const EARLY: u32 = 40;
const LOOK: Duration = Duration::from_millis(400);

/// Claims in progress until it is stopped.
pub(super) struct Traffic {
    stop: watch::Sender<bool>,
    places: JoinSet<anyhow::Result<Counts>>,
    looking: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) made: usize,
    pub(super) early: usize,
    pub(super) bound: usize,
}

impl Traffic {
    /// Keeps this number of claims in progress. If the driver has zones, each claim waits for a node, whose zone
    /// depends on the claim's place.
    pub(super) fn start(stage: &Arc<Stage>, at_a_time: usize, seed: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (seen, bound) = watch::channel(HashSet::new());
        let looking = tokio::spawn(look(stage.clone(), seen));
        let mut places = JoinSet::new();
        for place in 0..at_a_time {
            let rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(place as u64));
            places.spawn(one_after_the_other(stage.clone(), place, rng, stopped.clone(), bound.clone()));
        }
        Self { stop, places, looking }
    }

    /// Pending claims are left unchanged.
    pub(super) async fn stop(mut self) -> anyhow::Result<Counts> {
        self.stop.send_replace(true);
        let mut sum = Counts::default();
        while let Some(counts) = self.places.join_next().await {
            let counts = counts??;
            sum.made += counts.made;
            sum.early += counts.early;
            sum.bound += counts.bound;
        }
        self.looking.abort();
        Ok(sum)
    }
}

/// Lists the claims once for all waiting tasks.
async fn look(stage: Arc<Stage>, seen: watch::Sender<HashSet<String>>) {
    loop {
        if let Ok(claims) = stage.claims().list(&ListParams::default().match_any()).await {
            seen.send_replace(claims.iter().filter(|claim| is_bound(claim)).map(ResourceExt::name_any).collect());
        }
        sleep(LOOK).await;
    }
}

async fn one_after_the_other(
    stage: Arc<Stage>,
    place: usize,
    mut rng: Rng,
    mut stopped: watch::Receiver<bool>,
    mut bound: watch::Receiver<HashSet<String>>,
) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    // The tasks start at different times.
    sleep(Duration::from_millis(rng.u64(..2000))).await;
    while !*stopped.borrow() {
        let name = format!("claim-{place}-{}", counts.made);
        match zones::zone_of(&stage, place) {
            Some(zone) => stage.create_delayed_claim(&name, &zones::node(&stage, zone)).await?,
            None => stage.create_claim(&name).await?,
        };
        counts.made += 1;
        if rng.u32(..100) < EARLY {
            counts.early += 1;
            sleep(Duration::from_millis(rng.u64(..2000))).await;
        } else {
            tokio::select! {
                biased;
                _ = bound.wait_for(|bound| bound.contains(&name)) => counts.bound += 1,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let use_for = Duration::from_millis(rng.u64(..2000));
            let _ = timeout(use_for, stopped.wait_for(|stopped| *stopped)).await;
        }
        stage.claims().delete(&name, &DeleteParams::default()).await?;
    }
    Ok(counts)
}
