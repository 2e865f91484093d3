//! Tests of the bucket controller on a simulated API server, with a store in memory. Test names begin with the rows of
//! `docs/book/pages/how/buckets.md` that they prove.

mod config;
mod conformance;
mod cosi;
mod cosi_controller;
mod deletion;
mod delivery;
mod fairness;
mod field;
pub(crate) mod fixture;
mod names;
mod ownership;
mod provisioning;
mod refusals;
mod refusing;
mod rotation;
mod secrets;
mod sharing;
mod store;
mod unreadable;
