//! What goes wrong between callers and a real API server, drawn from a seed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use kube_sim::{Actors, Cluster, Faults};
//!
//! let seed = 7;
//! let faults = Faults::storm(seed);
//! let cluster = Cluster::builder().seed(seed).faults(&faults).build();
//! let _actors = cluster.run(Actors::drawn(seed));
//! // ... a controller works with `cluster.client("controller")` ...
//! faults.stop();
//! // ... and must come to its end now.
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

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An update, a patch or a delete with preconditions is refused with 409, as if another had just written.
    Conflict,
    /// A watch from a resourceVersion, or the next page of a list, is refused with 410.
    Expired,
    /// 429, with a `Retry-After` of 1 to 10 seconds.
    TooManyRequests,
    /// 500, before anything happened.
    InternalError,
    /// 503, before anything happened.
    Unavailable,
    /// 504, before anything happened.
    Timeout,
    /// 500 or 504, although the write happened.
    LostAnswer,
    /// The connection breaks before anything happened.
    Break,
    /// The connection breaks after the request was handled.
    BreakAfter,
    /// Nothing happens and no answer comes; after 30 seconds to 2 minutes the connection breaks.
    Stall,
    /// The request is handled and no answer comes; after 30 seconds to 2 minutes the connection breaks.
    StallAfter,
    /// Nothing happens, and no answer ever comes.
    Hang,
    /// The request is handled, and no answer ever comes.
    HangAfter,
    /// A list with `resourceVersion=0` is answered from a cache that lags behind.
    StaleList,
    /// A watch ends in place of an event.
    WatchEnd,
    /// A watch's connection breaks in place of an event.
    WatchBreak,
    /// A watch ends with a 410 in place of an event.
    WatchExpired,
    /// A watch says nothing for 30 seconds to 5 minutes in place of an event, then its connection breaks.
    WatchStall,
    /// A watch never says anything again.
    WatchSilence,
    /// An event, and all behind it, comes late.
    WatchDelay,
}

impl Fault {
    /// How many there are.
    const COUNT: usize = Self::WatchDelay as usize + 1;
    /// Those that hit a request before it is handled.
    const BEFORE: [Self; 10] = [
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
    ];
    /// Those that hit an answer.
    const AFTER: [Self; 4] = [Self::LostAnswer, Self::BreakAfter, Self::StallAfter, Self::HangAfter];
    /// Those that hit an event of a watch.
    const WATCH: [Self; 6] =
        [Self::WatchEnd, Self::WatchBreak, Self::WatchExpired, Self::WatchStall, Self::WatchSilence, Self::WatchDelay];

    /// Whether callers may wait for ever without timeouts of their own.
    fn lasts_for_ever(self) -> bool {
        matches!(self, Self::Hang | Self::HangAfter | Self::WatchSilence)
    }

    /// Whether a real server could do this to such a request.
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
            Self::LostAnswer => !request.verb.is_read(),
            _ => true,
        }
    }
}

/// Faults, latencies and delays between callers and the server. Clones share one generator and one end.
#[derive(Clone, Debug)]
pub struct Faults {
    /// By the numbers of the faults.
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
    /// No faults; for [`Faults::with`] and the others to add some.
    pub fn none(seed: u64) -> Self {
        Self {
            rates: [0.0; Fault::COUNT],
            latency: Duration::ZERO..=Duration::ZERO,
            delay: Duration::from_millis(1)..=Duration::from_secs(5),
            users: BTreeSet::new(),
            shared: Arc::new(Mutex::new(FaultState { random: fastrand::Rng::with_seed(seed), end: None })),
        }
    }

    /// Faults of all kinds, but for those that last for ever. How many of each, and how slow all is, differs from seed to
    /// seed: from a breeze with a fault in a hundred requests to a storm that hits every third.
    pub fn storm(seed: u64) -> Self {
        const TOTALS: [f64; 4] = [0.01, 0.05, 0.1, 0.3];
        const SLOWEST: [Duration; 4] =
            [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(2)];
        let mut faults = Self::none(seed);
        // Not the numbers that are drawn from later.
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        for kinds in [&Fault::BEFORE[..], &Fault::AFTER[..], &Fault::WATCH[..]] {
            let total = TOTALS[random.usize(..TOTALS.len())];
            let kinds = kinds.iter().filter(|fault| !fault.lasts_for_ever());
            // Squares, so that some kinds stand out.
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

    /// Hits this part of all requests, answers or events that it can hit: 0.0 is none, 1.0 is all.
    #[must_use]
    pub fn with(mut self, fault: Fault, rate: f64) -> Self {
        self.rates[fault as usize] = rate;
        self
    }

    /// Not this one.
    #[must_use]
    pub fn without(self, fault: Fault) -> Self {
        self.with(fault, 0.0)
    }

    /// How long requests are on their way to the server, and answers back.
    #[must_use]
    pub fn latency(self, latency: RangeInclusive<Duration>) -> Self {
        Self { latency, ..self }
    }

    /// How late events come that [`Fault::WatchDelay`] hits.
    #[must_use]
    pub fn delay(self, delay: RangeInclusive<Duration>) -> Self {
        Self { delay, ..self }
    }

    /// Only requests of this user, and of others this was said of, are hit or slow.
    #[must_use]
    pub fn only(mut self, user: &str) -> Self {
        self.users.insert(user.to_owned());
        self
    }

    /// Ends them that long from now; latencies stay.
    #[must_use]
    pub fn until(self, end: Duration) -> Self {
        self.lock().end = Some(Instant::now() + end);
        self
    }

    /// Ends them now; latencies stay. What hangs or lies still already goes on doing so.
    pub fn stop(&self) {
        self.lock().end = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn concerns(&self, request: &Request) -> bool {
        self.users.is_empty() || self.users.contains(&*request.user)
    }

    /// Draws a latency, and one of the faults that can hit.
    fn draw(&self, kinds: &[Fault], can_hit: impl Fn(Fault) -> bool) -> DrawnFault {
        let mut shared = self.lock();
        let FaultState { random, end } = &mut *shared;
        let latency = time_in(random, &self.latency);
        // DrawnFault in any case, so that the end of the faults does not change what else is drawn.
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
                Fault::Hang => Before::Hang,
                Fault::StaleList => Before::HandleStale(drawn.detail.u64(1..=100)),
                // The others hit answers and watches.
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

/// What was drawn for one request, answer or event.
struct DrawnFault {
    latency: Duration,
    fault: Option<Fault>,
    /// For what else is to be drawn.
    detail: fastrand::Rng,
}

impl DrawnFault {
    async fn travel(&self) {
        if !self.latency.is_zero() {
            sleep(self.latency).await;
        }
    }

    /// As long as a dead connection is not noticed.
    async fn stall(&mut self) {
        sleep(time_in(&mut self.detail, &(Duration::from_secs(30)..=Duration::from_secs(120)))).await;
    }
}

/// The refusal of apiserver's timeout filter.
fn timeout() -> Status {
    Status::timeout("request did not complete within requested timeout - context deadline exceeded", 0)
}

/// A time in a range, to the microsecond.
pub(crate) fn time_in(random: &mut fastrand::Rng, range: &RangeInclusive<Duration>) -> Duration {
    let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (from, to) = (micros(range.start()), micros(range.end()));
    match from < to {
        true => Duration::from_micros(random.u64(from..=to)),
        false => *range.start(),
    }
}
