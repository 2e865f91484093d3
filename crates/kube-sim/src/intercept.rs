//! Hooks between clients and the server, for faults. Direct calls of a `Cluster` bypass them.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::request::Request;
use crate::status::Status;
use crate::store::Stored;

/// Intercepts requests and answers. To delay one, await before returning. The default methods change nothing.
pub trait Interceptor: Send + Sync {
    /// Called before a request is handled.
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Before> {
        Box::pin(async { Before::Handle })
    }

    /// Called after a request was handled, with the status code of its answer. The request's body is consumed by then.
    fn after<'a>(&'a self, _request: &'a Request, _code: u16) -> BoxFuture<'a, After> {
        Box::pin(async { After::Deliver })
    }

    /// Called for each new watch. `None` does not intercept it.
    fn watch(&self, _request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        None
    }
}

/// Treatment of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// Handle the request.
    Handle,
    /// Handle the request. A list with `resourceVersion=0` is answered from a watch cache that lags by this many
    /// changes, or by all changes of the history if it has fewer.
    HandleStale(u64),
    /// Do not handle the request, and answer with this status.
    Refuse(Status),
    /// Do not handle the request, and break the connection.
    Break,
    /// Break the connection, and handle the request after this time.
    BreakAndHandle(Duration),
    /// Neither handle nor answer the request.
    Hang,
}

/// Treatment of the answer to a handled request.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// Deliver it.
    Deliver,
    /// Deliver this status instead.
    Replace(Status),
    /// Break the connection, so that the client does not learn the result.
    Break,
    /// Never deliver anything.
    Hang,
}

/// Intercepts the events of one watch.
pub trait WatchInterceptor: Send {
    /// Called for each event before it is delivered. `kind` is `ADDED`, `MODIFIED` or `DELETED`.
    fn event(&mut self, kind: &'static str, object: &Stored) -> WatchStep;
}

/// Treatment of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStep {
    /// Deliver it.
    Deliver,
    /// Deliver the event after a delay. Later events wait until then.
    Delay(Duration),
    /// End the stream instead, as at a timeout.
    End,
    /// Break the connection instead.
    Break,
    /// Stay silent for this time, then break the connection, like a dead connection that is detected.
    Stall(Duration),
    /// Stay silent forever, like a dead connection that is never detected.
    Silence,
    /// Deliver this status as an ERROR event instead, and end the stream.
    Refuse(Status),
}

impl fmt::Display for WatchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver => f.write_str("delivered"),
            Self::Delay(pause) => write!(f, "delivered {}s late", pause.as_secs_f64()),
            Self::End => f.write_str("the watch ends"),
            Self::Break => f.write_str("the connection breaks"),
            Self::Stall(pause) => write!(f, "nothing for {}s, then the connection breaks", pause.as_secs_f64()),
            Self::Silence => f.write_str("nothing ever again"),
            Self::Refuse(status) => write!(f, "the watch ends with {} {}", status.code, status.reason),
        }
    }
}
