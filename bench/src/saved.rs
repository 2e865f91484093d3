//! An observer of saved volumes, the same for every measured program.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use tokio::sync::oneshot;

use crate::cluster::Cluster;
use crate::wait::until_rest;

/// Watches volumes being saved.
pub(crate) struct Saved {
    span: oneshot::Receiver<anyhow::Result<Span>>,
}

/// The time from the first volume to the last.
pub(crate) struct Span {
    count: usize,
    pub(crate) first: Moment,
    pub(crate) last: Moment,
}

pub(crate) struct Moment {
    pub(crate) at: Instant,
    /// CPU time of all processes on the machine so far.
    busy: Duration,
}

impl Saved {
    /// Waits for this number of volumes in the background.
    pub(crate) async fn watch(cluster: &Cluster, count: usize) -> anyhow::Result<Self> {
        let api: Api<PersistentVolume> = cluster.volumes();
        let version = api.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
        let (sender, span) = oneshot::channel();
        tokio::spawn(async move {
            // The receiver no longer exists if the measurement failed.
            let _ = sender.send(wait(&api, version, count).await);
        });
        Ok(Self { span })
    }

    /// The times when the first and the last volume were saved.
    pub(crate) async fn all(self) -> anyhow::Result<Span> {
        tokio::time::timeout(Duration::from_secs(280), self.span).await??
    }
}

async fn wait(api: &Api<PersistentVolume>, mut version: String, count: usize) -> anyhow::Result<Span> {
    let (mut seen, mut first) = (0, None);
    loop {
        // The server may end a watch at any time; the next watch continues where it ended.
        let Ok(events) = api.watch_metadata(&WatchParams::default().timeout(290), &version).await else { continue };
        let mut events = Box::pin(events);
        while let Some(Ok(event)) = events.next().await {
            let (added, volume) = match event {
                WatchEvent::Added(volume) => (true, volume),
                WatchEvent::Modified(volume) | WatchEvent::Deleted(volume) => (false, volume),
                _ => continue,
            };
            version = volume.resource_version().unwrap_or(version);
            seen += usize::from(added);
            if added && seen == 1 {
                first = Some(Moment::now()?);
            }
            if let Some(first) = first.take_if(|_| seen == count) {
                return Ok(Span { count, first, last: Moment::now()? });
            }
        }
    }
}

impl Span {
    /// Volumes per second.
    pub(crate) fn rate(&self) -> f64 {
        (self.count - 1) as f64 / (self.last.at - self.first.at).as_secs_f64()
    }

    /// The CPU time of the whole machine per volume.
    pub(crate) fn machine(&self) -> Duration {
        (self.last.busy - self.first.busy).div_f64((self.count - 1) as f64)
    }
}

impl Moment {
    fn now() -> anyhow::Result<Self> {
        Ok(Self { at: Instant::now(), busy: busy()? })
    }
}

/// Waits until all processes together use less than half a processor for a second.
pub(crate) async fn wait_idle() -> anyhow::Result<()> {
    until_rest("ms of processor time", 499, async || Ok(u64::try_from(busy()?.as_millis())?)).await
}

/// Reads `/proc/stat`, in ticks of 10 ms: everything except idle time, I/O wait and time of other guests.
fn busy() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("an empty /proc/stat")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|text| text.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        anyhow::bail!("{line} is not a line of /proc/stat");
    };
    Ok(Duration::from_millis(10 * (user + nice + system + irq + softirq)))
}
