//! The API server inside a cluster: its state, and how a request is handled that nobody disturbs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::authorize::Authorizer;
use crate::clock::SimClock;
use crate::intercept::Interceptor;
use crate::request::Request;
use crate::resource::Resource;
use crate::state::State;
use crate::status::Status;
use crate::trace::{Act, Trace};
use crate::verbs::{self, Answer};

/// What all clones of a cluster share.
pub(crate) struct ApiServer {
    state: Mutex<State>,
    pub(crate) clock: SimClock,
    pub(crate) seed: u64,
    pub(crate) trace: Option<Trace>,
    pub(crate) interceptor: Option<Arc<dyn Interceptor>>,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) managed_fields: bool,
}

impl ApiServer {
    /// Without a trace, faults and authorization.
    pub(crate) fn new(state: State, clock: SimClock, seed: u64) -> Self {
        let state = Mutex::new(state);
        Self { state, clock, seed, trace: None, interceptor: None, authorizer: None, managed_fields: true }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All resources there are, sorted by group, version and plural name.
    pub(crate) fn resources(&self) -> Vec<Arc<Resource>> {
        self.lock().registry.all().to_vec()
    }

    /// The form in which objects of a resource are kept.
    pub(crate) fn stored_as(&self, resource: &Resource) -> Arc<Resource> {
        Arc::clone(&self.lock().storage(resource.storage).resource)
    }

    /// One object.
    pub(crate) fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let state = self.lock();
        let resource = state.named(group, plural)?;
        let found = state.find(&resource, namespace, name);
        found.map(|object| object.value()).ok_or_else(|| Status::not_found(&resource, name))
    }

    /// Handles a request that nobody disturbs.
    pub(crate) fn handle(&self, request: &mut Request) -> Result<Answer, Status> {
        let Some(trace) = &self.trace else {
            return verbs::handle(&mut self.lock(), self.authorizer.as_deref(), request);
        };
        let act = Act::from(&*request);
        let answer = verbs::handle(&mut self.lock(), self.authorizer.as_deref(), request);
        trace.answered(self.clock.elapsed(), act, &answer);
        answer
    }
}
