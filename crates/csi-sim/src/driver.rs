//! The driver: log, scripts, faults, delays and restarts around the work of a call.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver_rpc::csi::{Snapshot, Volume};
use driver_rpc::{Code, Error, Status};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::model::{Model, required};
use crate::script::Reply;
use crate::{Capability, Faults, Method, Settings, Step};

/// A driver. Clones share one state.
#[derive(Clone, Debug)]
pub struct Driver {
    state: Arc<Mutex<State>>,
    /// Number of times that the driver has stopped.
    ends: Arc<watch::Sender<u64>>,
}

/// A received call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The called method.
    pub method: Method,
    /// Time of receipt.
    pub at: Instant,
    /// Result code that the caller received; `None` if the caller has cancelled the call or is still waiting.
    pub outcome: Option<Code>,
    request: Arc<dyn Any + Send + Sync>,
}

impl Call {
    /// Returns the request if it has this type.
    pub fn request<Q: Any>(&self) -> Option<&Q> {
        self.request.downcast_ref()
    }
}

#[derive(Debug)]
struct State {
    model: Model,
    is_up: bool,
    calls: Vec<Call>,
    scripts: BTreeMap<Method, VecDeque<Step>>,
    faults: Faults,
    rng: Rng,
    /// Names and IDs that calls in progress refer to.
    busy: BTreeSet<String>,
}

/// The work of a call.
pub(crate) struct Work<Q, A> {
    pub(crate) method: Method,
    pub(crate) needs: Option<Capability>,
    /// The name or ID that the work changes, with the field of the request that contains it. Concurrent calls for one
    /// name or ID are refused with `Aborted`.
    pub(crate) about: Option<(&'static str, String)>,
    pub(crate) run: fn(&mut Model, &Q) -> Result<A, Status>,
}

impl Driver {
    /// Creates an empty driver.
    pub fn new(settings: Settings) -> Self {
        let state = State {
            model: Model::new(settings),
            is_up: true,
            calls: Vec::new(),
            scripts: BTreeMap::new(),
            faults: Faults::default(),
            rng: Rng::with_seed(0),
            busy: BTreeSet::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), ends: Arc::new(watch::Sender::new(0)) }
    }

    /// Sets the faults of future calls, drawn at random from this seed.
    pub fn set_faults(&self, faults: Faults, seed: u64) {
        let mut state = self.state();
        (state.faults, state.rng) = (faults, Rng::with_seed(seed));
    }

    /// Appends steps to the script of a method. Each of its next calls consumes one step.
    pub fn script(&self, method: Method, steps: impl IntoIterator<Item = Step>) {
        self.state().scripts.entry(method).or_default().extend(steps);
    }

    /// Changes the settings while the driver runs.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state().model.settings);
    }

    /// Stops the driver: current calls are lost together with their unfinished work, and later calls do not reach it.
    /// Volumes and snapshots are kept.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_up = false;
        state.busy.clear();
        self.ends.send_modify(|ends| *ends += 1);
    }

    /// Starts the driver again.
    pub fn start(&self) {
        self.state().is_up = true;
    }

    /// Restarts the driver with changed settings.
    pub fn restart(&self, change: impl FnOnce(&mut Settings)) {
        self.stop();
        self.configure(change);
        self.start();
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Returns the requests of one type so far.
    pub fn requests<Q: Any + Clone>(&self) -> Vec<Q> {
        self.state().calls.iter().filter_map(|call| call.request().cloned()).collect()
    }

    /// Returns the volumes, oldest first.
    pub fn volumes(&self) -> Vec<Volume> {
        self.state().model.volumes().cloned().collect()
    }

    /// Returns the snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.state().model.snapshots().cloned().collect()
    }

    pub(crate) async fn call<Q, A>(&self, work: Work<Q, A>, request: Q) -> Result<A, Error>
    where
        Q: Any + Clone + Send + Sync,
        A: Any + Clone + Send,
    {
        let mut ends = self.ends.subscribe();
        let (number, step) = self.state().begin(&work, &request)?;
        let result = tokio::select! {
            biased;
            _ = ends.changed() => Err(connection_lost()),
            result = self.perform(step, work, request) => result,
        };
        let outcome = result.as_ref().err().map_or(Code::Ok, Error::code);
        self.state().calls[number].outcome = Some(outcome);
        result
    }

    async fn perform<Q, A>(&self, step: Step, work: Work<Q, A>, request: Q) -> Result<A, Error>
    where
        Q: Any + Send,
        A: Any + Clone + Send,
    {
        let result = if step.works {
            self.work(step.delay, work, request).await
        } else {
            pause(step.delay).await;
            Err(Status::internal("nothing was done").into())
        };
        match step.reply {
            Reply::FromDriver => result,
            Reply::Answer(answer) => Ok(answer.downcast_ref::<A>().expect("an answer of the method's type").clone()),
            Reply::Refusal(status) => Err(status.into()),
            Reply::Hang => pending().await,
            Reply::BreakConnection => Err(connection_lost()),
            Reply::Restart => {
                let change = self.state().faults.changed_by_restart.clone();
                self.restart(|settings| settings.capabilities = &settings.capabilities ^ &change);
                Err(connection_lost())
            }
        }
    }

    /// Does the work of a call after a delay, even if the caller has cancelled the call.
    async fn work<Q, A>(&self, delay: Duration, work: Work<Q, A>, request: Q) -> Result<A, Error>
    where
        Q: Any + Send,
        A: Any + Send,
    {
        let ends = {
            let mut state = self.state();
            let about = work.about.as_ref().map(|(_, name)| name.clone());
            if let Some(about) = about.as_ref().filter(|about| state.busy.contains(*about)) {
                return Err(Status::aborted(format!("there is another operation on {about}")).into());
            }
            if delay.is_zero() {
                return state.finish(&work, &request);
            }
            state.busy.extend(about);
            *self.ends.borrow()
        };
        let driver = self.clone();
        let task = tokio::spawn(async move {
            sleep(delay).await;
            let mut state = driver.state();
            if *driver.ends.borrow() != ends {
                return Err(connection_lost());
            }
            if let Some((_, about)) = &work.about {
                state.busy.remove(about);
            }
            state.finish(&work, &request)
        });
        task.await.unwrap_or_else(|_| Err(connection_lost()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Records a call. Returns its index in the log, and its course.
    fn begin<Q, A>(&mut self, work: &Work<Q, A>, request: &Q) -> Result<(usize, Step), Error>
    where
        Q: Any + Clone + Send + Sync,
    {
        let method = work.method;
        if !self.is_up {
            let address = self.model.settings.name.clone();
            return Err(Error::Unreachable { address, reason: "the driver does not run".to_owned() });
        }
        tracing::debug!(?method, "call");
        self.calls.push(Call { method, at: Instant::now(), outcome: None, request: Arc::new(request.clone()) });
        let scripted = self.scripts.get_mut(&method).and_then(VecDeque::pop_front);
        // An existing volume cannot run out of space.
        let exists = work.about.as_ref().is_some_and(|(_, name)| self.model.has_volume_of(name));
        let drawn = self.faults.draw(&mut self.rng).filter(|step| !(exists && step.is_out_of_space()));
        let mut step = scripted.or(drawn).unwrap_or_else(Step::work);
        step.delay += self.model.settings.latency;
        Ok((self.calls.len() - 1, step))
    }

    fn finish<Q, A>(&mut self, work: &Work<Q, A>, request: &Q) -> Result<A, Error> {
        if let Some(missing) = work.needs.filter(|needed| !self.model.has(*needed)) {
            return Err(Status::unimplemented(format!("this driver has no {missing}")).into());
        }
        if let Some((field, name)) = &work.about {
            required(field, name)?;
        }
        Ok((work.run)(&mut self.model, request)?)
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn connection_lost() -> Error {
    Error::Interrupted("the driver has ended, or its connection has".to_owned())
}
