//! The driver: scripts, delays and locks around the work of a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver_rpc::{Code, Error, Status};
use tokio::time::sleep;

use crate::model::{Account, Bucket, Grant, Model};
use crate::{Fault, Settings};

/// Minimum duration of calls if a fault needs a concurrent call.
const WINDOW: Duration = Duration::from_millis(60);

/// A driver. Clones share one state.
#[derive(Clone)]
pub struct Driver(Arc<Mutex<State>>);

/// A call to the services, in either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Method {
    GetInfo,
    CreateBucket,
    GetExistingBucket,
    DeleteBucket,
    GrantBucketAccess,
    RevokeBucketAccess,
}

/// The driver's response to one scripted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Refuse the call without doing its work.
    Refuse(Code),
    /// Do the work, and lose the answer. On a socket the caller sees `Unavailable`.
    LoseAnswer,
}

struct State {
    model: Model,
    scripts: BTreeMap<Method, VecDeque<Step>>,
    calls: Vec<Method>,
    /// The names and IDs that calls in progress refer to.
    busy: BTreeSet<String>,
}

impl Driver {
    /// Creates a driver, empty or with the contents of its state file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let model = Model::new(settings)?;
        let state = State { model, scripts: BTreeMap::new(), calls: Vec::new(), busy: BTreeSet::new() };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// Appends steps to the script of a method. Each of its next calls consumes one step.
    pub fn script(&self, method: Method, steps: impl IntoIterator<Item = Step>) {
        self.state().scripts.entry(method).or_default().extend(steps);
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<Method> {
        self.state().calls.clone()
    }

    /// Returns the IDs of the buckets.
    pub fn buckets(&self) -> Vec<String> {
        self.state().model.store.buckets.keys().cloned().collect()
    }

    /// Returns the IDs of the accounts.
    pub fn accounts(&self) -> Vec<String> {
        self.state().model.store.accounts.keys().cloned().collect()
    }

    pub(crate) async fn create(&self, bucket: Bucket) -> Result<String, Error> {
        let was_missing = self.has(Fault::CreateRaces) && self.state().model.bucket_of(&bucket.name).is_none();
        let about = bucket.name.clone();
        self.call(Method::CreateBucket, &about, move |model| model.create(bucket, was_missing)).await
    }

    pub(crate) async fn grant(&self, grant: Grant) -> Result<(String, Account), Error> {
        let was_missing = self.has(Fault::GrantRaces) && self.state().model.account_of(&grant.name).is_none();
        let about = grant.name.clone();
        self.call(Method::GrantBucketAccess, &about, move |model| model.grant(grant, was_missing)).await
    }

    /// Does the work of a call. Concurrent calls for one name or ID are refused with `Aborted`.
    pub(crate) async fn call<A: Send + 'static>(
        &self,
        method: Method,
        about: &str,
        work: impl FnOnce(&mut Model) -> Result<A, Status> + Send + 'static,
    ) -> Result<A, Error> {
        let (step, latency, lock) = self.begin(method, about)?;
        if let Some(Step::Refuse(code)) = step {
            return Err(Status::new(code, "a scripted refusal").into());
        }
        let driver = self.clone();
        let work = async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            let result = work(&mut driver.state().model);
            if let Some(lock) = lock {
                lock.end();
            }
            result
        };
        let result = if self.has(Fault::Stuck) {
            work.await
        } else {
            // The work continues if the caller cancels the call.
            tokio::spawn(work).await.unwrap_or_else(|_| Err(Status::internal("the work has panicked")))
        };
        match step {
            None => Ok(result?),
            Some(_) => Err(Error::Interrupted("the answer is lost".to_owned())),
        }
    }

    fn begin(&self, method: Method, about: &str) -> Result<(Option<Step>, Duration, Option<Lock>), Error> {
        let mut state = self.state();
        tracing::debug!(?method, about, "call");
        state.calls.push(method);
        let step = state.scripts.get_mut(&method).and_then(VecDeque::pop_front);
        let races = match method {
            Method::CreateBucket => state.model.has(Fault::CreateRaces),
            Method::GrantBucketAccess => state.model.has(Fault::GrantRaces),
            _ => false,
        };
        let mut latency = state.model.settings.latency;
        if races || state.model.has(Fault::Stuck) {
            latency = latency.max(WINDOW);
        }
        if matches!(step, Some(Step::Refuse(_))) || races || about.is_empty() {
            return Ok((step, latency, None));
        }
        if !state.busy.insert(about.to_owned()) {
            return Err(Status::aborted(format!("there is another call about {about}")).into());
        }
        Ok((step, latency, Some(Lock { driver: self.clone(), about: about.to_owned() })))
    }

    /// Reads the driver's buckets and accounts.
    pub(crate) fn query<A>(&self, look: impl FnOnce(&Model) -> Result<A, Status>) -> Result<A, Error> {
        Ok(look(&self.state().model)?)
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.state().model.has(fault)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("settings", &self.state().model.settings).finish_non_exhaustive()
    }
}

/// Marks a name or ID as busy until [`Lock::end`]. It has no `Drop`, so that [`Fault::Stuck`] never releases it after a
/// cancelled call.
struct Lock {
    driver: Driver,
    about: String,
}

impl Lock {
    fn end(self) {
        self.driver.state().busy.remove(&self.about);
    }
}
