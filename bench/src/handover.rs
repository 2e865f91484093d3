//! Time that claims are pending when the replica that provisions them is stopped or killed.

use std::time::Duration;

use testbed::control_plane::Signal;
use testbed::figures::Figures;

use crate::cluster::Cluster;
use crate::measurement::Measurement;
use crate::process::Provisioner;
use crate::replicas::{Election, KILL_LIMIT, Pair, SIGNALS, Takeover, within};
use crate::saved::Saved;

/// Twenty claims per second, so that many are still pending.
const SLOW: [&str; 4] = ["--delay", "50", "--max-concurrent-calls", "1"];
const STOP_LIMIT: Duration = Duration::from_secs(1);
const CLAIMS: usize = 600;
const FIRST: &str = "first volume of the next replica after, s";

pub(crate) async fn run(rounds: usize) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let mut figures = Figures::default();
    for number in 0..rounds {
        for (signal, name) in SIGNALS {
            let Takeover { time, before } = round(&cluster, signal, &format!("{name}-{number}")).await?;
            eprintln!("{name}: {:.2} s", time.as_secs_f64());
            figures.record(name, FIRST, time.as_secs_f64());
            figures.record(name, "claims waiting", (CLAIMS - before) as f64);
        }
    }
    let holds = within(&figures, "SIGTERM", FIRST, STOP_LIMIT) && within(&figures, "SIGKILL", FIRST, KILL_LIMIT);
    Ok(Measurement::from(figures).limit(holds, format!("claims waited longer than {STOP_LIMIT:?} and {KILL_LIMIT:?}")))
}

async fn round(cluster: &Cluster, signal: Signal, name: &str) -> anyhow::Result<Takeover> {
    cluster.clear().await?;
    let arguments = SLOW.map(str::to_owned);
    let start = async |replica: &str| Provisioner::start(cluster, &format!("{name}-{replica}"), &arguments).await;
    let pair = Pair::start(cluster, Election::Lease, start).await?;
    cluster.create_waiting_claims(CLAIMS).await?;
    let saved = Saved::watch(cluster, CLAIMS / 10).await?;
    cluster.open_class().await?;
    saved.all().await?;
    let takeover = pair.take_over(cluster, signal).await?;
    drop(pair);
    cluster.close_class().await?;
    cluster.clear().await?;
    Ok(takeover)
}
