//! Tests on simulated clusters, as authors write them.

mod conformance;
mod contract;
mod fairness;
mod per_claim;
mod repeats;
mod stand;
mod telling;
mod toy;
