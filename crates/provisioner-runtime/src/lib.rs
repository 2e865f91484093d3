//! What any Kubernetes controller needs, and nothing about what it controls.
//!
//! | module | what it is for |
//! |---|---|
//! | [`client`] | one connection to the API server, checked before anything else starts |
//! | [`access`] | what the account may do, asked once and reported in one line |
//! | [`watch`](mod@watch) | list and watch one kind of object, with health |
//! | [`table`] | a compact map that a watch feeds |
//! | [`queue`] | keys that need work: priorities, back-off, permits |
//! | [`limiter`] | bounded concurrency that groups share fairly |
//! | [`backoff`] | how long to wait before the next attempt |
//! | [`throttle`] | how many API calls at a time, and none while the server is busy |
//! | [`call`](mod@call) | one API call with a deadline and an error by meaning |
//! | [`journal`] | intents that survive the process, and the fence around them |
//! | [`events`] | Kubernetes events, sent in the background |
//! | [`lease`] | Leases held by a fleet of replicas: leader election, with one Lease or with several |
//! | [`metrics`], [`admin`] | what can be measured, and a small HTTP server for it and for probes |
//! | [`shutdown`] | signals become a cancellation token |
//! | [`environment`] | the time of day and chance: the machine's, or simulated ones |
//! | [`logs`] | log lines on stderr, as text or JSON |
//!
//! The usual way of a change through these parts:
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
pub mod table;
pub mod throttle;
pub mod watch;

#[cfg(test)]
mod testing;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use access::{AccessError, AccessRule, check_access};
pub use backoff::Backoff;
pub use call::{CallError, call};
pub use client::{ConnectError, Connection, connect};
pub use controller::{Cache, ControlLoop, FencingToken, Reconciler};
pub use environment::Environment;
pub use journal::{Entry, Journal, JournalError, JournalOptions};
pub use lease::{LeaseHealth, LeaseOptions, Leases, Term, lease_name};
pub use limiter::{Limiter, LimiterPermit, Limits};
pub use name::stable_hash;
pub use queue::{Next, Permit, Priority, Queue, QueueOptions, QueueStats, Work, work};
pub use table::Table;
pub use throttle::{ApiLimiter, ApiPermit};
pub use watch::{Event, WatchHealth, watch};

/// Locks `mutex` even when a thread panicked while holding it: every change made under our
/// locks is complete before anything in it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error and its causes in one line, without repeating a cause that is already quoted.
fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    // The HTTP client's own words name only the step that failed.
    if let (true, Some(error)) = (text.starts_with("client error ("), cause) {
        text = error.to_string();
        cause = error.source();
    }
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {part}");
        }
        cause = error.source();
    }
    // So a connection says that is not made in time.
    text.replace("deadline has elapsed", "it did not answer in time")
}
