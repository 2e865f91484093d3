//! Building blocks for any Kubernetes controller, independent of what it controls.
//!
//! | module | purpose |
//! |---|---|
//! | [`controller`] | the loop that runs a [`Reconciler`] |
//! | [`client`] | one connection to the API server, checked before anything else starts |
//! | [`access`] | the account's permissions, checked once and reported in one line |
//! | [`watch`](mod@watch) | list and watch of one kind of object, with health |
//! | [`table`] | a compact map that a watch feeds |
//! | [`queue`] | keys that need work: priorities, back-off, permits |
//! | [`limiter`] | bounded concurrency that groups share fairly |
//! | [`backoff`] | the delay before the next attempt |
//! | [`throttle`] | a limit on concurrent API calls that backs off while the server is busy |
//! | [`call`](mod@call) | one API call with a deadline and errors classified by meaning |
//! | [`journal`] | intents that survive the process, and the fence around them |
//! | [`events`] | Kubernetes events, sent in the background |
//! | [`lease`] | Leases held by a fleet of replicas: leader election with one Lease or several |
//! | [`metrics`], [`admin`] | metrics, and a small HTTP server for them and for probes |
//! | [`shutdown`] | a cancellation token that signals cancel |
//! | [`environment`] | the clock and randomness: real or simulated |
//! | [`logs`] | log lines on stderr, as text or JSON |
//!
//! Without [`controller`], a change travels from the API server to the work like this:
//!
//! ```text
//! watch ─► table ─► queue.wake(key) ─► queue::work(handler) ─► call(request)
//! ```
#![deny(missing_docs)]

pub mod access;
pub mod admin;
pub mod backoff;
pub mod call;
pub mod client;
pub mod controller;
pub mod environment;
mod error_text;
pub mod events;
pub mod journal;
pub mod lease;
pub mod limiter;
pub mod logs;
pub mod metrics;
mod name;
mod notify;
pub mod queue;
pub mod shutdown;
mod sync;
pub mod table;
pub mod throttle;
pub mod watch;

#[cfg(test)]
mod testing;

pub use access::{AccessError, AccessRule, check_access};
pub use backoff::Backoff;
pub use call::{CallError, call};
pub use client::{ConnectError, Connection, connect};
pub use controller::{Cache, ControlLoop, FencingToken, Reconciler};
pub use environment::Environment;
pub use error_text::{MAX_TEXT, error_chain, shortened};
pub use journal::{Entry, Journal, JournalError, JournalOptions};
pub use lease::{LeaseHealth, LeaseOptions, Leases, Term, lease_name};
pub use limiter::{Flow, Limiter, LimiterPermit, Limits};
pub use name::{fingerprint, is_dns_subdomain, short_hash, stable_hash};
pub use queue::{Next, Permit, Priority, Queue, QueueOptions, QueueStats, Work, work};
pub use table::Table;
pub use throttle::{ApiLimiter, ApiPermit};
pub use watch::{Change, WatchHealth, watch};

/// The names that a controller needs, to import all at once.
pub mod prelude {
    pub use crate::controller::{
        Cache, Call, CallPermit, Context, ControlLoop, JournalRecord, JournalSpec, LoopError, LoopOptions, ObjectKey,
        Reconciler, Report, Step, WatchSpec,
    };
    pub use crate::events::{Event, EventKind};
    pub use crate::{CallError, Change, Entry, Environment, Flow, Next, Table, Work, fingerprint};
}

/// The examples of the README are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
