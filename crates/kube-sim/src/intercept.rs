//! Where faults are put between callers and the server. Direct calls of a `Cluster` are never touched.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::request::Request;
use crate::status::Status;
use crate::store::Stored;

/// Sits between a service and the server. To delay a request or its answer, simply wait.
pub trait Interceptor: Send + Sync {
    /// Asked before a request is handled.
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before>;

    /// Asked after a request was handled, with the status code of its answer. The request's body is gone by then.
    fn after<'a>(&'a self, request: &'a Request, code: u16) -> BoxFuture<'a, After>;

    /// Asked for each watch that starts; none leaves it alone.
    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>>;
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// Handle it.
    Handle,
    /// Handle it; a list with `resourceVersion=0` comes from a watch cache that lags behind by that many changes, or by as
    /// many as are remembered.
    HandleStale(u64),
    /// Answer this instead; nothing happens.
    Refuse(Status),
    /// Break the connection; nothing happens.
    Break,
    /// Never answer; nothing happens.
    Hang,
}

/// What to do with the answer to a request that was handled.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// Hand it over.
    Deliver,
    /// Answer this instead.
    Replace(Status),
    /// Break the connection: the caller never learns what happened.
    Break,
    /// Never answer.
    Hang,
}

/// Sits in one watch.
pub trait WatchInterceptor: Send {
    /// Asked for each event before it is delivered. `kind` is `ADDED`, `MODIFIED` or `DELETED`.
    fn event(&mut self, kind: &'static str, object: &Stored) -> WatchStep;
}

/// What to do with an event.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStep {
    /// Tell it.
    Deliver,
    /// Tell it after a while; later events wait behind it.
    Delay(Duration),
    /// End the stream instead, as at a timeout.
    End,
    /// Break the connection instead.
    Break,
    /// Say nothing for a while and then break the connection, as one that died and was noticed.
    Stall(Duration),
    /// Say nothing ever again, as a connection that died unnoticed.
    Silence,
    /// Tell this as an ERROR event instead, and end.
    Refuse(Status),
}

impl fmt::Display for WatchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver => f.write_str("told"),
            Self::Delay(pause) => write!(f, "told {}s late", pause.as_secs_f64()),
            Self::End => f.write_str("the watch ends"),
            Self::Break => f.write_str("the connection breaks"),
            Self::Stall(pause) => write!(f, "nothing for {}s, then the connection breaks", pause.as_secs_f64()),
            Self::Silence => f.write_str("nothing ever again"),
            Self::Refuse(status) => write!(f, "the watch ends with {} {}", status.code, status.reason),
        }
    }
}
