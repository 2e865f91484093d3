//! What any Kubernetes controller needs, and nothing about what it controls.
//!
//! | module | what it is for |
//! |---|---|
//! | [`controller`] | the loop that runs a [`Reconciler`] |
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
//! How a change gets from the API server to the work, without [`controller`]:
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
mod explain;
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
pub use controller::{Cache, ControlLoop, FencingToken, Journaled, Reconciler};
pub use environment::Environment;
pub use explain::{LONGEST_TEXT, error_chain, shortened};
pub use journal::{Entry, Journal, JournalError, JournalOptions};
pub use lease::{LeaseHealth, LeaseOptions, Leases, Term, lease_name};
pub use limiter::{Flow, Limiter, LimiterPermit, Limits};
pub use name::{is_dns_subdomain, short_hash, stable_hash};
pub use queue::{Next, Permit, Priority, Queue, QueueOptions, QueueStats, Work, work};
pub use table::Table;
pub use throttle::{ApiLimiter, ApiPermit};
pub use watch::{Change, WatchHealth, watch};

/// The examples of the README are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
