//! Tests of the bucket controller on a simulated API server, with an in-memory store.

mod config;
mod conformance;
mod cosi;
mod cosi_controller;
mod deletion;
mod delivery;
mod fairness;
mod faulty_server;
mod field;
pub(crate) mod fixture;
mod names;
mod ownership;
mod provisioning;
mod refusals;
mod rotation;
mod secrets;
mod sharing;
mod store;
mod unreadable;
