//! Cost of the journal: writes, bytes and throughput.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::ensure;
use testbed::figures::Figures;

use crate::cluster::Cluster;
use crate::contender::in_turns;
use crate::etcd::Etcd;
use crate::measurement::Measurement;
use crate::metrics::Page;
use crate::process::{Provisioner, WITH_METRICS};
use crate::saved::Saved;
use crate::waiting::RATE;

/// Maximum number of bytes that the journal may write per second.
const MAX_PER_SECOND: f64 = 1e6;
/// Minimum share of the throughput without a journal.
const MIN_SHARE: f64 = 0.85;
const WITH: &str = "with the journal";
const WITHOUT: &str = "without";
const MAX_WRITTEN: &str = "most bytes in a second";
const SAMPLES: Duration = Duration::from_millis(20);
/// Time limit for the journal to become empty after the work.
const EMPTYING: Duration = Duration::from_secs(60);
/// An entry leaves the count before its removal is written.
const QUIET: Duration = Duration::from_secs(3);

pub(crate) async fn run(rounds: usize, claims: usize) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let mut figures = Figures::default();
    for count in [1, 10, 100, 1000] {
        cost(&cluster, count, &format!("{count} at once"), &[], &mut figures).await?;
    }
    // Enough concurrency for all calls to be in progress together.
    let slow = ["--delay", "5000", "--api-concurrency", "1000"];
    cost(&cluster, 1000, "1000 at once, a backend of 5 s", &slow, &mut figures).await?;
    for round in 0..rounds {
        for (journal, name) in in_turns(round, &[(true, WITH), (false, WITHOUT)]) {
            let (rate, bytes) = throughput(&cluster, claims, *journal).await?;
            figures.record(name, RATE, rate);
            figures.record(name, "bytes in etcd's log per claim", bytes);
        }
    }
    let share = figures.median(WITH, RATE) / figures.median(WITHOUT, RATE);
    let most = figures.rows.iter().filter_map(|row| row.summary(MAX_WRITTEN)).map(|all| all.most).fold(0.0, f64::max);
    Ok(Measurement::from(figures)
        .limit(most <= MAX_PER_SECOND, format!("{most} bytes were written in a second"))
        .limit(share >= MIN_SHARE, "the journal costs more than 15 % of the throughput"))
}

/// Provisions this number of claims at once.
async fn cost(cluster: &Cluster, count: usize, name: &str, more: &[&str], figures: &mut Figures) -> anyhow::Result<()> {
    cluster.clear().await?;
    let arguments: Vec<String> = WITH_METRICS.iter().chain(more).map(ToString::to_string).collect();
    let mut provisioner = Provisioner::start(cluster, "journal", &arguments).await?;
    provisioner.wait_ready().await?;
    provisioner.wait_for_lease().await?;
    cluster.create_waiting_claims(count).await?;
    let before = Costs::read(cluster, &provisioner).await?;
    let saved = Saved::watch(cluster, count).await?;
    let mut samples = Samples::default();
    samples.take(&provisioner).await?;
    cluster.open_class().await?;
    let mut all = Box::pin(saved.all());
    loop {
        samples.take(&provisioner).await?;
        if let Ok(answer) = tokio::time::timeout(SAMPLES, &mut all).await {
            answer?;
            break;
        }
    }
    // Removals are written together with other changes, for which they wait.
    let deadline = Instant::now() + EMPTYING;
    while samples.take(&provisioner).await? > 0.0 && Instant::now() < deadline {
        tokio::time::sleep(SAMPLES).await;
    }
    tokio::time::sleep(QUIET).await;
    samples.take(&provisioner).await?;
    let after = Costs::read(cluster, &provisioner).await?;
    ensure!(after.entries == 0.0, "{} entries stay in the journal", after.entries);
    let each = |now: f64, then: f64| (now - then) / count as f64;
    figures.record(name, "writes per claim", each(after.writes, before.writes));
    figures.record(name, "bytes per claim", each(after.bytes, before.bytes));
    figures.record(name, MAX_WRITTEN, samples.most_written);
    figures.record(name, "most entries", samples.most_entries);
    drop(provisioner);
    cluster.close_class().await?;
    cluster.clear().await
}

struct Costs {
    /// As counted by the API server.
    writes: f64,
    bytes: f64,
    entries: f64,
}

impl Costs {
    async fn read(cluster: &Cluster, provisioner: &Provisioner) -> anyhow::Result<Self> {
        let own = provisioner.metrics().await?;
        let server = Page::read(&cluster.client()).await?;
        let of_verb = |verb: &str| {
            let verb = format!("verb=\"{verb}\"");
            server.sum("apiserver_request_total", &["resource=\"configmaps\"", &verb])
        };
        Ok(Self {
            writes: ["POST", "PUT", "PATCH", "DELETE"].map(of_verb).iter().sum(),
            bytes: own.sum("provisioner_journal_written_bytes_total", &[]),
            entries: own.sum("provisioner_journal_entries", &[]),
        })
    }
}

/// Samples of the journal's size and writes, many per second.
#[derive(Default)]
struct Samples {
    /// The samples of the last second.
    window: VecDeque<(Instant, f64)>,
    most_written: f64,
    most_entries: f64,
}

impl Samples {
    /// Takes a sample, and returns the number of entries.
    async fn take(&mut self, provisioner: &Provisioner) -> anyhow::Result<f64> {
        let page = provisioner.metrics().await?;
        let (now, written) = (Instant::now(), page.sum("provisioner_journal_written_bytes_total", &[]));
        self.window.push_back((now, written));
        while self.window.front().is_some_and(|(then, _)| now.duration_since(*then) > Duration::from_secs(1)) {
            self.window.pop_front();
        }
        let first = self.window.front().map_or(written, |(_, written)| *written);
        self.most_written = self.most_written.max(written - first);
        let entries = page.sum("provisioner_journal_entries", &[]);
        self.most_entries = self.most_entries.max(entries);
        Ok(entries)
    }
}

/// Volumes per second for claims that are pending when the provisioner starts, and the bytes that etcd wrote for each
/// volume.
async fn throughput(cluster: &Cluster, count: usize, journal: bool) -> anyhow::Result<(f64, f64)> {
    cluster.clear().await?;
    cluster.create_handed_over_claims(count).await?;
    let log = etcd_log(cluster).await?;
    let saved = Saved::watch(cluster, count).await?;
    let more: &[String] = if journal { &[] } else { &["--without-journal".to_owned()] };
    let mut provisioner = Provisioner::start(cluster, "journal", more).await?;
    let span = match saved.all().await {
        Ok(span) => span,
        Err(error) => {
            provisioner.wait_ready().await?;
            return Err(error);
        }
    };
    cluster.wait_claims(count, "bound", testbed::cluster::is_bound).await?;
    let log = etcd_log(cluster).await? - log;
    Ok((span.rate(), log / count as f64))
}

/// The number of bytes that etcd has written to its log.
async fn etcd_log(cluster: &Cluster) -> anyhow::Result<f64> {
    Ok(Page::read(&Etcd::of(cluster.state())?.0).await?.sum("etcd_disk_wal_write_bytes_total", &[]))
}
