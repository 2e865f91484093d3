//! The layer between the processes and the API server: faults, latencies, and the edges where processes end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_sim::{After, Before, Faults, Interceptor, Request, Status, Stored, Verb, WatchInterceptor, WatchStep};

use crate::plan::Edge;
use crate::process::{Process, ProcessEnvironment};
use crate::refusals;
use crate::stage::Stage;

/// The interceptor of a run's cluster.
pub(crate) struct VolumeInterceptor {
    faults: Faults,
    /// A weak reference: the stage holds the cluster, which holds this.
    stage: Weak<Stage>,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
}

impl VolumeInterceptor {
    pub(crate) fn new(faults: Faults, stage: &Arc<Stage>) -> Self {
        Self { faults, stage: Arc::downgrade(stage), processes: Mutex::default() }
    }

    /// Lets this process reach the API server.
    pub(crate) fn connect_process(&self, process: &Arc<Process>) {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(process.name.clone(), process.clone());
    }

    /// Cuts the process off from the API server for the rest of the run.
    pub(crate) fn disconnect_process(&self, name: &str) {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns true after the storm. Then there are no latencies either, because some Leases are too short for the
    /// longest ones.
    fn is_calm(&self) -> bool {
        self.stage.upgrade().is_none_or(|stage| stage.is_calm())
    }

    /// The answer to a request that is refused at this time.
    fn refusal(&self, request: &Request) -> Option<Status> {
        let stage = self.stage.upgrade().filter(|stage| !stage.is_calm())?;
        refusals::answer(&stage.plan.api.refusals, request, stage.now())
    }

    fn process(&self, request: &Request) -> Option<Arc<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).get(&*request.user).cloned()
    }
}

impl Interceptor for VolumeInterceptor {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let process = self.process(request);
        async move {
            // The process was dismissed: a process that has ended sends nothing.
            let Some(process) = process else { return Before::Hang };
            process.ask(Edge::Request).await;
            match self.refusal(request) {
                Some(status) => {
                    process.refused(request);
                    Before::Refuse(status)
                }
                None if self.is_calm() => Before::Handle,
                None => self.faults.before(request).await,
            }
        }
        .boxed()
    }

    fn after<'a>(&'a self, request: &'a Request, code: u16) -> BoxFuture<'a, After> {
        let process = self.process(request);
        if let (Some(process), Some(stage)) = (&process, self.stage.upgrade()) {
            stage.answered(process, request, code);
        }
        async move {
            let Some(process) = process else { return After::Hang };
            if !request.verb.is_read() && code < 300 {
                match (request.verb, request.resource.plural.as_str()) {
                    (Verb::Watch, _) => {}
                    (_, "configmaps") => process.touch(Edge::Journal),
                    (_, "leases") if request.name.contains("-journal") => process.touch(Edge::Journal),
                    (_, "persistentvolumes" | "persistentvolumeclaims") => process.touch(Edge::Write),
                    _ => {}
                }
            }
            process.pass(Edge::Answer).await;
            if self.is_calm() { After::Deliver } else { self.faults.after(request, code).await }
        }
        .boxed()
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        let faults = self.faults.watch(request);
        let lag = self.process(request).map(|process| process.lag).filter(|lag| !lag.is_zero());
        let Some(lag) = lag.filter(|_| request.resource.is("", "persistentvolumes")) else { return faults };
        Some(Box::new(Late { lag, faults, stage: self.stage.clone() }))
    }
}

/// A watch that delivers deletions, and all later events, with a delay.
struct Late {
    lag: Duration,
    faults: Option<Box<dyn WatchInterceptor>>,
    stage: Weak<Stage>,
}

impl WatchInterceptor for Late {
    fn event(&mut self, kind: &'static str, object: &Stored) -> WatchStep {
        if kind == "DELETED" && self.stage.upgrade().is_some_and(|stage| !stage.is_calm()) {
            return WatchStep::Delay(self.lag);
        }
        self.faults.as_mut().map_or(WatchStep::Deliver, |faults| faults.event(kind, object))
    }
}
