//! Metrics of this crate's parts, read at each scrape.
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `queue_keys` | `queue`, `state` | keys: `ready`, `delayed`, `awaiting_change`, `awaiting_permit`, `running` |
//! | `queue_oldest_ready_seconds` | `queue` | time since the oldest ready key became ready; 0 if there is none |
//! | `queue_longest_running_seconds` | `queue` | duration of the longest current run; 0 if there is none |
//! | `queue_adds_total` | `queue` | number of times a key became ready |
//! | `queue_retries_total` | `queue` | number of times an attempt was followed by a delay |
//! | `watch_synced` | `watch` | 1 when all objects have been listed |
//! | `watch_failing` | `watch` | 1 while the watch does not work |
//! | `watch_silence_seconds` | `watch` | time since the server last sent something |
//! | `events_queued` | | event lines that wait to be sent |
//! | `events_total` | `outcome` | events that were `sent`, `coalesced`, `dropped` or `failed` |
//! | `journal_entries`, `journal_bytes` | | attempts that have begun and are not known to have ended |
//! | `journal_capacity_bytes` | | maximum total size of the entries |
//! | `journals_in_memory` | | journals that exist only in the memory of this process |
//! | `journal_restored_entries` | | entries that were restored from a backup; no process acts on them |
//! | `journal_commits_total`, `journal_written_bytes_total` | | successful writes of a journal, and their size |
//! | `journal_checks_total`, `journal_failures_total` | | checks of the holder; failed attempts |
//! | `leases_held`, `lease_members` | | shards of this replica; replicas that share them |
//! | `leases_lost_total` | | terms that this replica lost involuntarily |
//!
//! A prefix can be set on the registry: [`Registry::with_prefix`].

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::events::EventRecorder;
use crate::journal::JournalStats;
use crate::lease::LeaseHealth;
use crate::queue::{Queue, QueueStats};
use crate::watch::WatchHealth;

/// The parts to measure.
///
/// ```
/// # use prometheus_client::registry::Registry;
/// # use provisioner_runtime::metrics::RuntimeMetrics;
/// # use provisioner_runtime::{Queue, QueueOptions};
/// let mut registry = Registry::with_prefix("example");
/// let queue = Queue::<u64>::new(QueueOptions::default());
/// RuntimeMetrics::new().queue("things", &queue).register(&mut registry);
/// ```
#[derive(Default)]
pub struct RuntimeMetrics {
    queues: Vec<(&'static str, Ask)>,
    watches: Vec<(&'static str, WatchHealth)>,
    events: Option<EventRecorder>,
    journal: Option<Box<dyn Fn() -> JournalStats + Send + Sync>>,
    leases: Option<LeaseHealth>,
}

/// Reads a queue's statistics, independently of its key type.
type Ask = Box<dyn Fn() -> QueueStats + Send + Sync>;

impl RuntimeMetrics {
    /// Creates an empty set of parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a queue with a unique name.
    pub fn queue<K>(mut self, name: &'static str, queue: &Queue<K>) -> Self
    where
        K: Clone + Eq + Hash + Debug + Send + Sync + 'static,
    {
        let queue = queue.clone();
        self.queues.push((name, Box::new(move || queue.stats())));
        self
    }

    /// Adds a watch with a unique name.
    pub fn watch(mut self, name: &'static str, health: &WatchHealth) -> Self {
        self.watches.push((name, health.clone()));
        self
    }

    /// Adds the events.
    pub fn events(self, recorder: &EventRecorder) -> Self {
        Self { events: Some(recorder.clone()), ..self }
    }

    /// Adds the journals of this process.
    pub fn journal(self, stats: impl Fn() -> JournalStats + Send + Sync + 'static) -> Self {
        Self { journal: Some(Box::new(stats)), ..self }
    }

    /// Adds the Leases.
    pub fn leases(self, health: &LeaseHealth) -> Self {
        Self { leases: Some(health.clone()), ..self }
    }

    /// Registers all added parts with `registry`.
    pub fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }

    fn encode_queues(&self, page: &mut Page<'_>) -> fmt::Result {
        let stats: Vec<(&str, QueueStats)> = self.queues.iter().map(|(name, stats)| (*name, stats())).collect();
        let keys: Vec<_> = stats.iter().flat_map(|(name, stats)| by_state(name, stats)).collect();
        page.gauges("queue_keys", "Keys in the queue by state.", &keys)?;

        let times = |time: fn(&QueueStats) -> Option<Duration>| {
            let seconds = move |stats| time(stats).unwrap_or_default().as_secs_f64();
            stats.iter().map(|(name, stats)| ([("queue", *name)], seconds(stats))).collect::<Vec<_>>()
        };
        let oldest = times(|stats| stats.oldest_ready);
        page.gauges("queue_oldest_ready_seconds", "Time since the oldest ready key became ready.", &oldest)?;
        let longest = times(|stats| stats.longest_running);
        page.gauges("queue_longest_running_seconds", "Duration of the longest current run.", &longest)?;

        let counts = |count: fn(&QueueStats) -> u64| {
            stats.iter().map(|(name, stats)| ([("queue", *name)], count(stats))).collect::<Vec<_>>()
        };
        page.counters("queue_adds", "Times that a key became ready.", &counts(|stats| stats.adds))?;
        let retries = counts(|stats| stats.retries);
        page.counters("queue_retries", "Attempts after which the next one is delayed.", &retries)
    }

    fn encode_watches(&self, page: &mut Page<'_>) -> fmt::Result {
        let facts = |fact: fn(&WatchHealth) -> bool| {
            let each = |(name, health): &(&'static str, WatchHealth)| ([("watch", *name)], i64::from(fact(health)));
            self.watches.iter().map(each).collect::<Vec<_>>()
        };
        page.gauges("watch_synced", "1 after all objects were listed, otherwise 0.", &facts(WatchHealth::synced))?;
        let failing = facts(|health| health.problem().is_some());
        page.gauges("watch_failing", "1 while the watch fails, otherwise 0.", &failing)?;
        let silence =
            |(name, health): &(&'static str, WatchHealth)| ([("watch", *name)], health.last_progress().as_secs_f64());
        let silence: Vec<_> = self.watches.iter().map(silence).collect();
        page.gauges("watch_silence_seconds", "Time since the last message from the server.", &silence)
    }

    fn encode_events(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(stats) = self.events.as_ref().map(EventRecorder::stats) else { return Ok(()) };
        page.gauges("events_queued", "Events that wait to be sent.", &[([], whole(stats.queued))])?;
        let outcomes = [
            ([("outcome", "sent")], stats.sent),
            ([("outcome", "coalesced")], stats.coalesced),
            ([("outcome", "dropped")], stats.dropped),
            ([("outcome", "failed")], stats.failed),
        ];
        page.counters("events", "Events by outcome.", &outcomes)
    }

    fn encode_journal(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(stats) = self.journal.as_ref().map(|stats| stats()) else { return Ok(()) };
        let help = "Attempts that have begun and are not known to have ended.";
        page.gauges("journal_entries", help, &[([], whole(stats.entries))])?;
        page.gauges("journal_bytes", "Size of these entries.", &[([], whole(stats.bytes))])?;
        page.gauges("journal_capacity_bytes", "Maximum size of the journal.", &[([], whole(stats.capacity))])?;
        let help = "Journals that exist only in the memory of this process.";
        page.gauges("journals_in_memory", help, &[([], whole(stats.in_memory))])?;
        let help = "Entries that were restored from a backup.";
        page.gauges("journal_restored_entries", help, &[([], whole(stats.restored))])?;
        page.counters("journal_commits", "Successful writes of a journal.", &[([], stats.commits)])?;
        page.counters("journal_written_bytes", "Bytes in these writes.", &[([], stats.bytes_written)])?;
        page.counters("journal_checks", "Checks of a journal's holder.", &[([], stats.checks)])?;
        page.counters("journal_failures", "Failed writes and checks.", &[([], stats.failures)])
    }

    fn encode_leases(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(health) = &self.leases else { return Ok(()) };
        page.gauges("leases_held", "Shards of this replica.", &[([], whole(health.held().len()))])?;
        page.gauges("lease_members", "Replicas that share the shards.", &[([], whole(health.members()))])?;
        page.counters("leases_lost", "Terms that ended because the Lease was lost.", &[([], health.lost_terms())])
    }
}

impl Collector for RuntimeMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        if !self.queues.is_empty() {
            self.encode_queues(&mut page)?;
        }
        if !self.watches.is_empty() {
            self.encode_watches(&mut page)?;
        }
        self.encode_events(&mut page)?;
        self.encode_journal(&mut page)?;
        self.encode_leases(&mut page)
    }
}

impl Debug for RuntimeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeMetrics").finish_non_exhaustive()
    }
}

/// The page of one scrape, as far as it has been written.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn gauges<const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: &[(Labels<N>, V)],
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        values.iter().try_for_each(|(labels, value)| match N {
            0 => metric.encode_gauge(value),
            _ => metric.encode_family(labels)?.encode_gauge(value),
        })
    }

    /// Encodes a counter; `name` excludes the suffix `_total`, which is added.
    fn counters<const N: usize>(&mut self, name: &str, help: &str, values: &[(Labels<N>, u64)]) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.iter().try_for_each(|(labels, value)| match N {
            0 => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
            _ => metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None),
        })
    }
}

type Labels<const N: usize> = [(&'static str, &'static str); N];

fn by_state(name: &'static str, stats: &QueueStats) -> [(Labels<2>, i64); 5] {
    [
        ("ready", stats.ready),
        ("delayed", stats.delayed),
        ("awaiting_change", stats.awaiting_change),
        ("awaiting_permit", stats.awaiting_permit),
        ("running", stats.running),
    ]
    .map(|(state, count)| ([("queue", name), ("state", state)], whole(count)))
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;
    use crate::events::EventOptions;
    use crate::testing::{client, object};
    use crate::{Next, Priority, QueueOptions};

    #[tokio::test(start_paused = true)]
    async fn exposes_the_metrics_of_all_parts() {
        let queue = Queue::new(QueueOptions::default());
        for key in ["a", "b", "c"] {
            queue.wake(key, 0, Priority::Change);
        }
        let take = || queue.next().now_or_never().flatten().unwrap();
        take().finish(Next::RetryAfter(Duration::from_secs(60)));
        let _running = take();
        let other = Queue::<u8>::new(QueueOptions::default());
        let client = client(|_| async { object(&json!({})) });
        let recorder = EventRecorder::new(client, EventOptions::new("tester", "one"));
        let mut registry = Registry::default();
        RuntimeMetrics::new()
            .queue("first", &queue)
            .queue("second", &other)
            .watch("things", &WatchHealth::new())
            .events(&recorder)
            .journal(|| JournalStats {
                entries: 2,
                bytes: 400,
                capacity: 500,
                in_memory: 0,
                restored: 0,
                commits: 3,
                bytes_written: 900,
                checks: 1,
                failures: 0,
            })
            .leases(&LeaseHealth::default())
            .register(&mut registry);
        tokio::time::advance(Duration::from_secs(2)).await;

        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        assert_eq!(page, PAGE);
    }

    const PAGE: &str = r#"# HELP queue_keys Keys in the queue by state.
# TYPE queue_keys gauge
queue_keys{queue="first",state="ready"} 1
queue_keys{queue="first",state="delayed"} 1
queue_keys{queue="first",state="awaiting_change"} 0
queue_keys{queue="first",state="awaiting_permit"} 0
queue_keys{queue="first",state="running"} 1
queue_keys{queue="second",state="ready"} 0
queue_keys{queue="second",state="delayed"} 0
queue_keys{queue="second",state="awaiting_change"} 0
queue_keys{queue="second",state="awaiting_permit"} 0
queue_keys{queue="second",state="running"} 0
# HELP queue_oldest_ready_seconds Time since the oldest ready key became ready.
# TYPE queue_oldest_ready_seconds gauge
queue_oldest_ready_seconds{queue="first"} 2.0
queue_oldest_ready_seconds{queue="second"} 0.0
# HELP queue_longest_running_seconds Duration of the longest current run.
# TYPE queue_longest_running_seconds gauge
queue_longest_running_seconds{queue="first"} 2.0
queue_longest_running_seconds{queue="second"} 0.0
# HELP queue_adds Times that a key became ready.
# TYPE queue_adds counter
queue_adds_total{queue="first"} 3
queue_adds_total{queue="second"} 0
# HELP queue_retries Attempts after which the next one is delayed.
# TYPE queue_retries counter
queue_retries_total{queue="first"} 1
queue_retries_total{queue="second"} 0
# HELP watch_synced 1 after all objects were listed, otherwise 0.
# TYPE watch_synced gauge
watch_synced{watch="things"} 0
# HELP watch_failing 1 while the watch fails, otherwise 0.
# TYPE watch_failing gauge
watch_failing{watch="things"} 0
# HELP watch_silence_seconds Time since the last message from the server.
# TYPE watch_silence_seconds gauge
watch_silence_seconds{watch="things"} 2.0
# HELP events_queued Events that wait to be sent.
# TYPE events_queued gauge
events_queued 0
# HELP events Events by outcome.
# TYPE events counter
events_total{outcome="sent"} 0
events_total{outcome="coalesced"} 0
events_total{outcome="dropped"} 0
events_total{outcome="failed"} 0
# HELP journal_entries Attempts that have begun and are not known to have ended.
# TYPE journal_entries gauge
journal_entries 2
# HELP journal_bytes Size of these entries.
# TYPE journal_bytes gauge
journal_bytes 400
# HELP journal_capacity_bytes Maximum size of the journal.
# TYPE journal_capacity_bytes gauge
journal_capacity_bytes 500
# HELP journals_in_memory Journals that exist only in the memory of this process.
# TYPE journals_in_memory gauge
journals_in_memory 0
# HELP journal_restored_entries Entries that were restored from a backup.
# TYPE journal_restored_entries gauge
journal_restored_entries 0
# HELP journal_commits Successful writes of a journal.
# TYPE journal_commits counter
journal_commits_total 3
# HELP journal_written_bytes Bytes in these writes.
# TYPE journal_written_bytes counter
journal_written_bytes_total 900
# HELP journal_checks Checks of a journal's holder.
# TYPE journal_checks counter
journal_checks_total 1
# HELP journal_failures Failed writes and checks.
# TYPE journal_failures counter
journal_failures_total 0
# HELP leases_held Shards of this replica.
# TYPE leases_held gauge
leases_held 0
# HELP lease_members Replicas that share the shards.
# TYPE lease_members gauge
lease_members 1
# HELP leases_lost Terms that ended because the Lease was lost.
# TYPE leases_lost counter
leases_lost_total 0
# EOF
"#;
}
