//! One process: the points where it interacts with its environment, and where it ends or pauses.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kube_sim::Request;
use tokio::sync::Notify;

use crate::judge::Invariant;
use crate::plan::{Edge, ProcessFault, Trigger};
use crate::refusals;
use crate::stage::Stage;

/// The environment of a process.
pub(crate) trait ProcessEnvironment: Send + Sync + 'static {
    /// Time since the start.
    fn now(&self) -> Duration;

    /// Returns true if the faults have ended.
    fn is_calm(&self) -> bool;

    /// Writes a line into the trace.
    fn note(&self, text: impl FnOnce() -> String);

    /// Reports a violation of an invariant.
    fn report_violation(&self, invariant: Invariant, seen: String);
}

/// A process, shared by all its parts.
pub(crate) struct Process<S = Stage> {
    pub(crate) name: String,
    /// Delay of its deletion events for volumes.
    pub(crate) lag: Duration,
    stage: Arc<S>,
    state: Mutex<State>,
    /// Notified when the process has to end.
    over: Notify,
}

struct State {
    /// The remaining faults of the process.
    faults: Vec<(Trigger, ProcessFault)>,
    passed: [u32; Edge::COUNT],
    /// Number of reasons for which it is paused.
    frozen: u32,
    /// Number of its pauses so far.
    freezes: u32,
    dead: bool,
    stopping: bool,
    waiting: Vec<Waker>,
    /// The second in which it last sent requests to the API server, and the number of requests in it.
    asked: (u64, u32),
    refused: refusals::Count,
}

/// Maximum number of requests per second to the API server. A process that sends more is in a loop.
const MANY: u32 = 1000;

impl<S: ProcessEnvironment> Process<S> {
    /// Creates a process before its start.
    pub(crate) fn new(name: String, stage: Arc<S>, faults: &[(Trigger, ProcessFault)], lag: Duration) -> Arc<Self> {
        let state = Mutex::new(State {
            faults: faults.to_vec(),
            passed: [0; Edge::COUNT],
            frozen: 0,
            freezes: 0,
            dead: false,
            stopping: false,
            waiting: Vec::new(),
            asked: (0, 0),
            refused: refusals::Count::default(),
        });
        let process = Arc::new(Self { name, lag, stage, state, over: Notify::new() });
        for (trigger, fault) in faults {
            if let Trigger::At(time) = *trigger {
                let (process, fault) = (process.clone(), *fault);
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    process.apply_fault(fault);
                });
            }
        }
        process
    }

    /// Waits until the process has to end, by a crash or gracefully.
    pub(crate) async fn end(&self) -> ProcessFault {
        loop {
            let news = self.over.notified();
            {
                let state = self.lock();
                if state.dead {
                    return ProcessFault::Crash;
                }
                if state.stopping {
                    return ProcessFault::Stop;
                }
            }
            news.await;
        }
    }

    /// Waits until the process crashes.
    pub(crate) async fn crash(&self) {
        loop {
            let news = self.over.notified();
            if self.lock().dead {
                return;
            }
            news.await;
        }
    }

    /// Marks the process as dead, so that its tasks do not continue.
    pub(crate) fn mark_dead(&self) {
        self.lock().dead = true;
    }

    /// Passes the edge before a request to the API server. A process that sends requests in a loop is stopped, because
    /// simulated time would never pass.
    pub(crate) async fn ask(self: &Arc<Self>, edge: Edge) {
        let second = self.stage.now().as_secs();
        let asked = {
            let mut state = self.lock();
            state.asked = if state.asked.0 == second { (second, state.asked.1 + 1) } else { (second, 1) };
            state.asked.1
        };
        if asked > MANY {
            let seen = format!("{} asks the API server more than {MANY} times in a second", self.name);
            self.stage.report_violation(Invariant::Alive, seen);
            std::future::pending::<()>().await;
        }
        self.pass(edge).await;
    }

    /// Records that the API server has refused a request of the process, and would refuse it again.
    pub(crate) fn refused(&self, request: &Request) {
        let seen = self.lock().refused.add(&self.name, request, self.stage.now());
        if let Some(seen) = seen {
            self.stage.report_violation(Invariant::Alive, seen);
        }
    }

    /// Passes an edge: the process may end or pause here. Returns when it may continue.
    pub(crate) async fn pass(self: &Arc<Self>, edge: Edge) {
        self.touch(edge);
        poll_fn(|context| if self.may_run(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Same as [`Self::pass`], but the fault takes effect at the next wait.
    pub(crate) fn touch(self: &Arc<Self>, edge: Edge) {
        let mut state = self.lock();
        let passed = &mut state.passed[edge as usize];
        *passed += 1;
        let now = Trigger::Edge(edge, *passed);
        let due: Vec<ProcessFault> =
            state.faults.iter().filter(|(trigger, _)| *trigger == now).map(|(_, fault)| *fault).collect();
        drop(state);
        for fault in due {
            self.stage.note(|| format!("{} is at {now:?}", self.name));
            self.apply_fault(fault);
        }
    }

    /// Returns true if the process is dead or paused, or was paused since it had this number of pauses.
    pub(crate) fn is_dead_or_paused_since(&self, freezes: u32) -> bool {
        let state = self.lock();
        state.dead || state.frozen > 0 || state.freezes > freezes
    }

    /// Number of its pauses so far.
    pub(crate) fn freezes(&self) -> u32 {
        self.lock().freezes
    }

    fn may_run(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.lock();
        if state.dead {
            return false;
        }
        if state.frozen > 0 {
            state.waiting.push(context.waker().clone());
            return false;
        }
        true
    }

    fn apply_fault(self: &Arc<Self>, fault: ProcessFault) {
        if self.stage.is_calm() {
            return;
        }
        let mut state = self.lock();
        if state.dead {
            return;
        }
        match fault {
            ProcessFault::Crash => {
                state.dead = true;
                state.waiting.clear();
            }
            ProcessFault::Stop => state.stopping = true,
            ProcessFault::Freeze(time) => {
                state.frozen += 1;
                state.freezes += 1;
                drop(state);
                self.freeze(time);
                return;
            }
        }
        drop(state);
        self.stage.note(|| format!("{}: {fault:?}", self.name));
        self.over.notify_waiters();
    }

    fn freeze(self: &Arc<Self>, time: Duration) {
        self.stage.note(|| format!("{} stands still for {time:?}", self.name));
        let process = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            let mut state = process.lock();
            state.frozen -= 1;
            if state.frozen == 0 && !state.dead {
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                process.stage.note(|| format!("{} goes on", process.name));
                waiting.into_iter().for_each(Waker::wake);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
