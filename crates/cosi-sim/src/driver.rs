//! The driver: scripts, delays and locks around the work of a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver_rpc::{Code, Error, Status};
use tokio::time::sleep;

use crate::model::{Account, Bucket, Grant, Model};
use crate::{Fault, Settings};

/// How long calls take at least if a fault needs another call meanwhile.
const WINDOW: Duration = Duration::from_millis(60);

/// A driver. Clones are the same one.
#[derive(Clone)]
pub struct Driver(Arc<Mutex<State>>);

/// A call of the services, in either version.
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

/// How the driver answers one scripted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is done, and the call is refused.
    Refuse(Code),
    /// The work is done, and its answer is lost. On a socket the caller sees `Unavailable`.
    LoseAnswer,
}

struct State {
    model: Model,
    scripts: BTreeMap<Method, VecDeque<Step>>,
    calls: Vec<Method>,
    /// The names and ids that calls are about.
    busy: BTreeSet<String>,
}

impl Driver {
    /// A driver that holds nothing, or what is in its file of state.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let model = Model::new(settings)?;
        let state = State { model, scripts: BTreeMap::new(), calls: Vec::new(), busy: BTreeSet::new() };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// The next calls of a method take these steps, one each, after those that were scripted before.
    pub fn script(&self, method: Method, steps: impl IntoIterator<Item = Step>) {
        self.state().scripts.entry(method).or_default().extend(steps);
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Method> {
        self.state().calls.clone()
    }

    /// The ids of the buckets.
    pub fn buckets(&self) -> Vec<String> {
        self.state().model.store.buckets.keys().cloned().collect()
    }

    /// The ids of the accounts.
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

    /// Does the work of a call. Only one call at a time is about one name or id.
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
            // It goes on if the caller gives up.
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

    /// Looks at what the driver holds.
    pub(crate) fn ask<A>(&self, look: impl FnOnce(&Model) -> Result<A, Status>) -> Result<A, Error> {
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

/// Marks a name or id as busy until the end of the work: a driver that gives up on the way is stuck.
struct Lock {
    driver: Driver,
    about: String,
}

impl Lock {
    fn end(self) {
        self.driver.state().busy.remove(&self.about);
    }
}
