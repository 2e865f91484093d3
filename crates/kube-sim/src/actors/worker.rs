//! The loop of every actor: changes add keys to a work queue, the keys are synced one by one, failures are retried.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::time::Duration;

use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout_at};

use super::api::Api;
use crate::status::Status;
use crate::subscription::{Change, Subscription};

/// A controller: the resources it watches, and its sync.
pub(super) trait Controller: Send + 'static {
    /// The key of a unit of work.
    type Key: Clone + Ord + Send + Sync;

    /// The watched resources (group and plural name); none for all.
    const RESOURCES: &'static [(&'static str, &'static str)];

    /// Handles a change. Apart from live reads, this is the controller's only input.
    fn observe(&mut self, change: &Change, api: &Api, queue: &mut WorkQueue<Self::Key>);

    /// Moves the actual state of a key one step towards the desired state. Failures are retried later.
    fn sync(
        &mut self,
        key: Self::Key,
        api: &mut Api,
        queue: &mut WorkQueue<Self::Key>,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// A controller with its work queue and its access to the cluster.
pub(super) struct Worker<C: Controller> {
    controller: C,
    api: Api,
    queue: WorkQueue<C::Key>,
}

impl<C: Controller> Worker<C> {
    pub(super) fn new(controller: C, api: Api) -> Self {
        Self { controller, api, queue: WorkQueue::default() }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        let start = self.api.draw(|pace| &pace.start);
        if !start.is_zero() {
            sleep(start).await;
        }
        let mut feed = Feed::new(self.api.cluster().subscribe_with_existing(C::RESOURCES));
        loop {
            // Yields to other tasks even when the queue never runs empty.
            consume_budget().await;
            let now = Instant::now();
            while let Some(change) = feed.next(now, &mut self.api) {
                self.controller.observe(&change, &self.api, &mut self.queue);
            }
            let Some(key) = self.queue.pop(now) else {
                let due = [feed.next_due(), self.queue.next_due()].into_iter().flatten().min();
                match due {
                    // The next iteration handles both the elapsed time and the change.
                    Some(due) => drop(timeout_at(due, feed.arrival(&mut self.api)).await),
                    None => feed.arrival(&mut self.api).await,
                }
                continue;
            };
            match self.controller.sync(key.clone(), &mut self.api, &mut self.queue).await {
                Ok(()) => self.queue.forget(&key),
                Err(_) => self.queue.retry(key),
            }
        }
    }
}

/// A subscription whose changes are delivered with the lag of the pace.
struct Feed {
    subscription: Subscription,
    waiting: VecDeque<(Instant, Change)>,
}

impl Feed {
    fn new(subscription: Subscription) -> Self {
        Self { subscription, waiting: VecDeque::new() }
    }

    /// Returns the next change that is due.
    fn next(&mut self, now: Instant, api: &mut Api) -> Option<Change> {
        while let Some(change) = self.subscription.try_next() {
            self.push(change, now, api);
        }
        if self.next_due()? <= now { self.waiting.pop_front().map(|(_, change)| change) } else { None }
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Waits until a change happens.
    async fn arrival(&mut self, api: &mut Api) {
        let change = self.subscription.next().await;
        self.push(change, Instant::now(), api);
    }

    fn push(&mut self, change: Change, now: Instant, api: &mut Api) {
        let due = now + api.draw(|pace| &pace.lag);
        // Changes are delivered in order.
        let due = self.waiting.back().map_or(due, |(last, _)| due.max(*last));
        self.waiting.push_back((due, change));
    }
}

/// Keys to sync, each at most once and in order of arrival, and keys that wait for a time.
pub(super) struct WorkQueue<K> {
    ready: VecDeque<K>,
    known: BTreeSet<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    /// Consecutive failures of a key.
    failures: BTreeMap<K, u32>,
    count: u64,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            known: BTreeSet::new(),
            delayed: BTreeMap::new(),
            failures: BTreeMap::new(),
            count: 0,
        }
    }
}

impl<K: Clone + Ord> WorkQueue<K> {
    pub(super) fn add(&mut self, key: K) {
        if self.known.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    pub(super) fn extend(&mut self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    pub(super) fn add_at(&mut self, due: Instant, key: K) {
        self.count += 1;
        self.delayed.insert((due, self.count), key);
    }

    /// Adds a key after a backoff that grows with its failures: `DefaultTypedControllerRateLimiter` of client-go's
    /// `util/workqueue`.
    pub(super) fn retry(&mut self, key: K) {
        const FIRST: Duration = Duration::from_millis(5);
        const LONGEST: Duration = Duration::from_secs(1000);
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(*failures)).min(LONGEST);
        *failures += 1;
        self.add_at(Instant::now() + pause, key);
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn pop(&mut self, now: Instant) -> Option<K> {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.known.remove(&key);
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }
}
