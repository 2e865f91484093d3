//! The API server behind a cluster: its state, and the other components that take part in a request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::authorize::Authorizer;
use crate::clock::SimClock;
use crate::intercept::Interceptor;
use crate::request::Request;
use crate::state::State;
use crate::status::Status;
use crate::trace::{RequestInfo, Trace};
use crate::verbs::{self, Answer};

/// State shared by all clones of a cluster, its clients and their watches.
pub(crate) struct ApiServer {
    pub(crate) state: Mutex<State>,
    pub(crate) clock: SimClock,
    pub(crate) seed: u64,
    pub(crate) trace: Option<Trace>,
    pub(crate) interceptor: Option<Arc<dyn Interceptor>>,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) managed_fields: bool,
}

impl ApiServer {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a request without faults.
    pub(crate) fn handle(&self, request: &mut Request) -> Result<Answer, Status> {
        let Some(trace) = &self.trace else {
            return verbs::handle(&mut self.lock(), self.authorizer.as_deref(), request);
        };
        let info = RequestInfo::from(&*request);
        let answer = verbs::handle(&mut self.lock(), self.authorizer.as_deref(), request);
        trace.answered(self.clock.elapsed(), info, &answer);
        answer
    }
}
