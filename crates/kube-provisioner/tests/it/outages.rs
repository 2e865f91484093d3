//! An interceptor that makes the next requests fail as the test requests, and records all requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{After, Before, Interceptor, Request, Status, Stored, Verb, WatchInterceptor, WatchStep};
use tokio::time::{Instant, sleep};

/// More requests than any test needs.
const ENDLESS: usize = 20_000;

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Not handled, answered with this status.
    Refuse(u16),
    /// Not handled, answered with 429 and a time to wait in seconds.
    Busy(u32),
    /// Not handled, never answered.
    Hang,
    /// Handled after this time.
    Late(Duration),
    /// Handled, answered with this status.
    Lose(u16),
    /// Handled, never answered.
    DropAnswer,
    /// A watch that begins and stays silent.
    Silence,
}

use Outage::{Busy, DropAnswer, Hang, Late, Lose, Refuse, Silence};

/// A request of one of our processes.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) user: Arc<str>,
    pub(crate) at: Instant,
    verb: Verb,
    resource: String,
}

/// The scheduled outages. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Outages(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: HashMap<(Verb, &'static str), VecDeque<Outage>>,
    asked: Vec<ReceivedRequest>,
}

impl Outages {
    /// Schedules outages for the next requests of this kind, in order.
    pub(crate) fn schedule(&self, verb: Verb, resource: &'static str, outages: impl IntoIterator<Item = Outage>) {
        self.lock().next.entry((verb, resource)).or_default().extend(outages);
    }

    /// Returns whether all outages have happened.
    pub(crate) fn are_over(&self) -> bool {
        self.lock().next.values().all(VecDeque::is_empty)
    }

    /// Returns all requests of this kind.
    pub(crate) fn requests_of(&self, verb: Verb, resource: &str) -> Vec<ReceivedRequest> {
        let state = self.lock();
        state.asked.iter().filter(|asked| asked.verb == verb && asked.resource == resource).cloned().collect()
    }

    /// Returns the number of all requests except watches.
    pub(crate) fn requests(&self) -> usize {
        self.lock().asked.iter().filter(|asked| asked.verb != Verb::Watch).count()
    }

    /// Takes the next outage of a request if it matches.
    fn take(&self, request: &Request, is_such: impl Fn(Outage) -> bool) -> Option<Outage> {
        let mut state = self.lock();
        let mut kinds = state.next.iter_mut();
        let (_, next) =
            kinds.find(|((verb, resource), _)| (*verb, *resource) == (request.verb, &*request.resource.plural))?;
        next.front().is_some_and(|first| is_such(*first)).then(|| next.pop_front()).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Interceptor for Outages {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let (user, resource) = (request.user.clone(), request.resource.plural.clone());
        self.lock().asked.push(ReceivedRequest { user, at: Instant::now(), verb: request.verb, resource });
        // In a loop without a pause, simulated time does not advance: end the loop here, so that the test can count.
        let is_endless = self.lock().asked.len() > ENDLESS;
        let outage = self.take(request, |outage| !matches!(outage, Lose(_) | DropAnswer | Silence));
        Box::pin(async move {
            match outage {
                _ if is_endless => Before::Hang,
                Some(Refuse(code)) => Before::Refuse(refusal(code, request)),
                Some(Busy(seconds)) => Before::Refuse(Status::too_many_requests(seconds)),
                Some(Hang) => Before::Hang,
                Some(Late(time)) => {
                    sleep(time).await;
                    Before::Handle
                }
                _ => Before::Handle,
            }
        })
    }

    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let after = match self.take(request, |outage| matches!(outage, Lose(_) | DropAnswer)) {
            Some(Lose(code)) => After::Replace(refusal(code, request)),
            Some(_) => After::Hang,
            None => After::Deliver,
        };
        Box::pin(async move { after })
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        self.take(request, |outage| outage == Silence).map(|_| Box::new(Silent) as _)
    }
}

struct Silent;

impl WatchInterceptor for Silent {
    fn event(&mut self, _: &'static str, _: &Stored) -> WatchStep {
        WatchStep::Silence
    }
}

fn refusal(code: u16, request: &Request) -> Status {
    const WHY: &str = "refused by the test";
    match code {
        403 => Status::forbidden(&request.resource, &request.name, WHY),
        409 => Status::modified(&request.resource, &request.name),
        503 => Status::service_unavailable(WHY),
        504 => Status::timeout(WHY, 0),
        _ => Status::internal(WHY),
    }
}
