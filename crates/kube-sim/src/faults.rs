//! Faults between clients and the API server, drawn from a seed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use kube_sim::{Actors, Cluster, Faults};
//!
//! let seed = 7;
//! let faults = Faults::storm(seed);
//! let cluster = Cluster::builder().seed(seed).faults(&faults).build();
//! let _actors = cluster.run(Actors::random(seed));
//! // ... a controller works with `cluster.client("controller")` ...
//! faults.stop();
//! // ... and must finish now.
//! # }
//! ```

mod watch;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use self::watch::WatchFaults;
use crate::intercept::{After, Before, Interceptor, WatchInterceptor};
use crate::request::{Request, Verb};
use crate::status::Status;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An update, a patch or a delete with preconditions fails with 409, as if another client had just written.
    Conflict,
    /// A watch from a resourceVersion, or the next page of a list, fails with 410.
    Expired,
    /// 429, with a `Retry-After` of 1 to 10 seconds.
    TooManyRequests,
    /// 500. The request is not handled.
    InternalError,
    /// 503. The request is not handled.
    Unavailable,
    /// 504. The request is not handled.
    Timeout,
    /// 500 or 504, although the request was handled.
    LostAnswer,
    /// The connection breaks before the request is handled.
    Break,
    /// The connection breaks after the request was handled.
    BreakAfter,
    /// The request is neither handled nor answered. The connection breaks after 30 seconds to 2 minutes.
    Stall,
    /// The request is handled but not answered. The connection breaks after 30 seconds to 2 minutes.
    StallAfter,
    /// The connection breaks, and a write is handled 1 second to 1 minute later, after newer ones.
    Late,
    /// The request is neither handled nor ever answered.
    Hang,
    /// The request is handled but never answered.
    HangAfter,
    /// A list with `resourceVersion=0` is answered from a cache that lags behind.
    StaleList,
    /// A watch ends instead of an event.
    WatchEnd,
    /// A watch's connection breaks instead of an event.
    WatchBreak,
    /// A watch ends with a 410 instead of an event.
    WatchExpired,
    /// A watch is silent for 30 seconds to 5 minutes instead of an event, then its connection breaks.
    WatchStall,
    /// A watch stays silent forever.
    WatchSilence,
    /// An event and all later ones are delivered late.
    WatchDelay,
}

impl Fault {
    /// The number of kinds.
    const COUNT: usize = Self::WatchDelay as usize + 1;
    /// Faults before a request is handled.
    const BEFORE: [Self; 11] = [
        Self::Conflict,
        Self::Expired,
        Self::TooManyRequests,
        Self::InternalError,
        Self::Unavailable,
        Self::Timeout,
        Self::Break,
        Self::Stall,
        Self::Hang,
        Self::StaleList,
        Self::Late,
    ];
    /// Faults that hit an answer.
    const AFTER: [Self; 4] = [Self::LostAnswer, Self::BreakAfter, Self::StallAfter, Self::HangAfter];
    /// Faults that hit an event of a watch.
    const WATCH: [Self; 6] =
        [Self::WatchEnd, Self::WatchBreak, Self::WatchExpired, Self::WatchStall, Self::WatchSilence, Self::WatchDelay];

    /// Returns whether storms include the fault. They exclude faults that block clients without timeouts forever, and
    /// late writes, which outlast the storm.
    fn is_in_storms(self) -> bool {
        !matches!(self, Self::Hang | Self::HangAfter | Self::WatchSilence | Self::Late)
    }

    /// Returns whether the fault can occur for a request on a real server.
    fn can_hit(self, request: &Request) -> bool {
        let options = &request.options;
        let from_version = !matches!(options.resource_version.as_str(), "" | "0");
        match self {
            Self::Conflict => match request.verb {
                Verb::Update | Verb::Patch => true,
                Verb::Delete => options.delete.preconditions.is_some(),
                _ => false,
            },
            Self::Expired => match request.verb {
                Verb::Watch => from_version && options.send_initial_events != Some(true),
                Verb::List => !options.continue_token.is_empty(),
                _ => false,
            },
            Self::StaleList => request.verb == Verb::List && options.resource_version == "0",
            Self::LostAnswer | Self::Late => !request.verb.is_read(),
            _ => true,
        }
    }
}

/// Faults and latencies between clients and the server. Clones share one generator and end together.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Probability of each kind.
    rates: [f64; Fault::COUNT],
    latency: RangeInclusive<Duration>,
    delay: RangeInclusive<Duration>,
    users: BTreeSet<String>,
    shared: Arc<Mutex<FaultState>>,
}

#[derive(Debug)]
struct FaultState {
    random: fastrand::Rng,
    end: Option<Instant>,
}

impl Faults {
    /// Creates an instance without faults. Add some with [`Faults::with`] and the other methods.
    pub fn none(seed: u64) -> Self {
        Self {
            rates: [0.0; Fault::COUNT],
            latency: Duration::ZERO..=Duration::ZERO,
            delay: Duration::from_millis(1)..=Duration::from_secs(5),
            users: BTreeSet::new(),
            shared: Arc::new(Mutex::new(FaultState { random: fastrand::Rng::with_seed(seed), end: None })),
        }
    }

    /// Creates faults of all kinds, except late writes and faults that last forever. Rates and latencies depend on the
    /// seed: faults hit between one in a hundred and one in three requests.
    pub fn storm(seed: u64) -> Self {
        const TOTALS: [f64; 4] = [0.01, 0.05, 0.1, 0.3];
        const SLOWEST: [Duration; 4] =
            [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(2)];
        let mut faults = Self::none(seed);
        // The faults themselves are drawn from another sequence.
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        for kinds in [&Fault::BEFORE[..], &Fault::AFTER[..], &Fault::WATCH[..]] {
            let total = TOTALS[random.usize(..TOTALS.len())];
            let kinds = kinds.iter().filter(|fault| fault.is_in_storms());
            // Squaring makes a few kinds of faults dominate.
            let weights: Vec<(Fault, f64)> = kinds.map(|fault| (*fault, random.f64().powi(2))).collect();
            let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
            for (fault, weight) in weights {
                faults.rates[fault as usize] = total * weight / sum;
            }
        }
        faults.latency = Duration::ZERO..=SLOWEST[random.usize(..SLOWEST.len())];
        faults.delay = Duration::from_millis(1)..=SLOWEST[random.usize(1..SLOWEST.len())] * 5;
        faults
    }

    /// Sets the probability of a fault, from 0.0 to 1.0, for each request, answer or event that it can hit.
    #[must_use]
    pub fn with(mut self, fault: Fault, rate: f64) -> Self {
        self.rates[fault as usize] = rate;
        self
    }

    /// Removes a fault.
    #[must_use]
    pub fn without(self, fault: Fault) -> Self {
        self.with(fault, 0.0)
    }

    /// Sets the range from which the latencies of requests and answers are drawn.
    #[must_use]
    pub fn latency(self, latency: RangeInclusive<Duration>) -> Self {
        Self { latency, ..self }
    }

    /// Sets the delay of events that [`Fault::WatchDelay`] hits.
    #[must_use]
    pub fn delay(self, delay: RangeInclusive<Duration>) -> Self {
        Self { delay, ..self }
    }

    /// Limits faults and latencies to this user. Repeated calls add users.
    #[must_use]
    pub fn only(mut self, user: &str) -> Self {
        self.users.insert(user.to_owned());
        self
    }

    /// Ends the faults after this time. Latencies stay.
    #[must_use]
    pub fn until(self, end: Duration) -> Self {
        self.lock().end = Some(Instant::now() + end);
        self
    }

    /// Ends the faults now. Latencies stay. Requests and watches that already hang or stall continue to do so.
    pub fn stop(&self) {
        self.lock().end = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn concerns(&self, request: &Request) -> bool {
        self.users.is_empty() || self.users.contains(&*request.user)
    }

    /// Draws a latency and at most one of the possible faults.
    fn draw(&self, kinds: &[Fault], can_hit: impl Fn(Fault) -> bool) -> DrawnFault {
        let mut shared = self.lock();
        let FaultState { random, end } = &mut *shared;
        let latency = time_in(random, &self.latency);
        // Always draws, so that the end of the faults does not change later draws.
        let mut left = random.f64();
        let over = end.is_some_and(|end| end <= Instant::now());
        let hit = kinds.iter().filter(|fault| can_hit(**fault)).find(|fault| {
            left -= self.rates[**fault as usize];
            left < 0.0
        });
        let detail = random.fork();
        DrawnFault { latency, fault: hit.copied().filter(|_| !over), detail }
    }
}

impl Interceptor for Faults {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        if !self.concerns(request) {
            return std::future::ready(Before::Handle).boxed();
        }
        let mut drawn = self.draw(&Fault::BEFORE, |fault| fault.can_hit(request));
        async move {
            drawn.travel().await;
            let Some(fault) = drawn.fault else { return Before::Handle };
            match fault {
                Fault::Conflict => Before::Refuse(Status::modified(&request.resource, &request.name)),
                Fault::Expired => {
                    Before::Refuse(Status::expired("The resourceVersion for the provided list is too old."))
                }
                Fault::TooManyRequests => Before::Refuse(Status::too_many_requests(drawn.detail.u32(1..=10))),
                Fault::InternalError => Before::Refuse(Status::internal("etcdserver: leader changed")),
                Fault::Unavailable => {
                    Before::Refuse(Status::service_unavailable("apiserver is shutting down").retry_after(1))
                }
                Fault::Timeout => Before::Refuse(timeout()),
                Fault::Break => Before::Break,
                Fault::Stall => {
                    drawn.stall().await;
                    Before::Break
                }
                Fault::Late => {
                    let delay = Duration::from_secs(1)..=Duration::from_secs(60);
                    Before::BreakAndHandle(time_in(&mut drawn.detail, &delay))
                }
                Fault::Hang => Before::Hang,
                Fault::StaleList => Before::HandleStale(drawn.detail.u64(1..=100)),
                // The other kinds hit answers and watches.
                _ => Before::Handle,
            }
        }
        .boxed()
    }

    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        if !self.concerns(request) {
            return std::future::ready(After::Deliver).boxed();
        }
        let mut drawn = self.draw(&Fault::AFTER, |fault| fault.can_hit(request));
        async move {
            drawn.travel().await;
            match drawn.fault {
                Some(Fault::LostAnswer) if drawn.detail.bool() => After::Replace(timeout()),
                Some(Fault::LostAnswer) => After::Replace(Status::internal("etcdserver: request timed out")),
                Some(Fault::BreakAfter) => After::Break,
                Some(Fault::StallAfter) => {
                    drawn.stall().await;
                    After::Break
                }
                Some(Fault::HangAfter) => After::Hang,
                _ => After::Deliver,
            }
        }
        .boxed()
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        self.concerns(request).then(|| Box::new(WatchFaults::new(self.clone())) as Box<dyn WatchInterceptor>)
    }
}

/// The draw for one request, answer or event.
struct DrawnFault {
    latency: Duration,
    fault: Option<Fault>,
    /// Generator for the details of the fault.
    detail: fastrand::Rng,
}

impl DrawnFault {
    async fn travel(&self) {
        if !self.latency.is_zero() {
            sleep(self.latency).await;
        }
    }

    /// Waits for the time that it takes to detect a dead connection.
    async fn stall(&mut self) {
        sleep(time_in(&mut self.detail, &(Duration::from_secs(30)..=Duration::from_secs(120)))).await;
    }
}

/// Returns the refusal of apiserver's timeout filter.
fn timeout() -> Status {
    Status::timeout("request did not complete within requested timeout - context deadline exceeded", 0)
}

/// Returns a time in a range, to the microsecond.
pub(crate) fn time_in(random: &mut fastrand::Rng, range: &RangeInclusive<Duration>) -> Duration {
    let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (from, to) = (micros(range.start()), micros(range.end()));
    if from < to { Duration::from_micros(random.u64(from..=to)) } else { *range.start() }
}
