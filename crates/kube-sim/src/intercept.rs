//! Hooks between clients and the server, for faults. Direct calls of a `Cluster` bypass them.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::request::Request;
use crate::status::Status;
use crate::store::Stored;

/// Intercepts requests and answers. To delay one, await before returning. Without a method, nothing is changed.
pub trait Interceptor: Send + Sync {
    /// Called before a request is handled.
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Before> {
        Box::pin(async { Before::Handle })
    }

    /// Called after a request was handled, with the status code of its answer. The request's body is consumed by then.
    fn after<'a>(&'a self, _request: &'a Request, _code: u16) -> BoxFuture<'a, After> {
        Box::pin(async { After::Deliver })
    }

    /// Called for each new watch. `None` leaves it alone.
    fn watch(&self, _request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        None
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// It is handled.
    Handle,
    /// It is handled. A list with `resourceVersion=0` is answered from a watch cache that lags by this many changes, or
    /// as far as the history goes.
    HandleStale(u64),
    /// It is not handled, and this is the answer.
    Refuse(Status),
    /// It is not handled, and the connection breaks.
    Break,
    /// The connection breaks, and it is handled after this time.
    BreakAndHandle(Duration),
    /// It is not handled, and never answered.
    Hang,
}

/// What happens to the answer of a handled request.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// It is delivered.
    Deliver,
    /// This is delivered instead.
    Replace(Status),
    /// The connection breaks, and the client does not learn the result.
    Break,
    /// Nothing is ever delivered.
    Hang,
}

/// Intercepts the events of one watch.
pub trait WatchInterceptor: Send {
    /// Called for each event before it is delivered. `kind` is `ADDED`, `MODIFIED` or `DELETED`.
    fn event(&mut self, kind: &'static str, object: &Stored) -> WatchStep;
}

/// What happens to an event.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStep {
    /// It is delivered.
    Deliver,
    /// It is delivered after a delay. Later events wait behind it.
    Delay(Duration),
    /// The stream ends instead, as at a timeout.
    End,
    /// The connection breaks instead.
    Break,
    /// The watch is silent for this time, then the connection breaks, as a dead connection does when it is noticed.
    Stall(Duration),
    /// The watch is silent forever, as a dead connection that nobody notices.
    Silence,
    /// This is delivered as an ERROR event instead, and the stream ends.
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
