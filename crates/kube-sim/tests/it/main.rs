//! The simulated Kubernetes API and its controllers.

mod actors;
mod api;
mod common;
mod faults;
mod scenarios;
mod serve;
