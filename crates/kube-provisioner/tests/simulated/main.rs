//! Tests on simulated clusters, as authors write them.

mod conformance;
mod per_claim;
mod repeats;
mod telling;
mod toy;
