//! Restarts of the driver while claims are created and deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use testbed::figures::Figures;
use tokio::sync::watch;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::Stage;
use super::traffic::{Counts, Traffic};
use crate::measurement::Measurement;

/// Time between two restarts, and time without the driver, in milliseconds.
const UP: std::ops::RangeInclusive<u64> = 2000..=5000;
const DOWN: std::ops::RangeInclusive<u64> = 700..=1300;
const PATIENCE: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(60);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of restarts of each driver
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Number of claims in progress at a time
    #[arg(long, default_value_t = 20)]
    claims: usize,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let programs = Programs::find().await?;
    let mut figures = Figures::default();
    for peer in Peer::BOTH {
        measure_peer(peer, &programs, settings, &mut figures).await?;
    }
    Ok(figures.into())
}

async fn measure_peer(
    peer: Peer,
    programs: &Programs,
    settings: Settings,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let name = format!("restarts-{}", peer.slug());
    let stage = Arc::new(Stage::set(programs, &name, Pace::SLOW, settings.seed).await?);
    let mut rng = Rng::with_seed(settings.seed);
    let (stop, stopped) = watch::channel(false);
    let supervisor = tokio::spawn(supervise(stage.clone(), peer, stopped));
    let traffic = Traffic::start(&stage, settings.claims, settings.seed);
    for _ in 0..settings.times {
        sleep(Duration::from_millis(rng.u64(UP))).await;
        stage.driver.stop_listening();
        sleep(Duration::from_millis(rng.u64(DOWN))).await;
        stage.driver.serve()?;
        let back = Instant::now();
        let next = stage.called(PATIENCE, |ledger| ledger.next_call(back)).await?;
        figures.record(peer.title(), "next CreateVolume after, s", (next - back).as_secs_f64());
    }
    let counts = traffic.stop().await?;
    let lost = stage.unbound(PATIENCE).await?;
    let (left, _) = stage.settle(PATIENCE, QUIET).await?;
    stop.send_replace(true);
    let Counts { made, bound, .. } = counts;
    let counts = [
        ("sidecar exits", supervisor.await??),
        ("claims created", made),
        ("claims bound", bound),
        ("claims never bound", lost),
        ("volumes left in the driver", left.in_driver),
    ];
    counts.iter().for_each(|(quantity, count)| figures.record(peer.title(), quantity, *count as f64));
    Ok(())
}

/// Restarts the sidecar whenever it exits, like a kubelet without back-off.
async fn supervise(stage: Arc<Stage>, peer: Peer, mut stopped: watch::Receiver<bool>) -> anyhow::Result<usize> {
    let mut ends = 0;
    loop {
        let mut sidecar = stage.start(peer, "sidecar", &["--leader-election=false"])?;
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(ends),
            _ = sidecar.ended(Duration::from_secs(3600)) => ends += 1,
        }
    }
}
