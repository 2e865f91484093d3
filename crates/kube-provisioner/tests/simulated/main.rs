//! Tests on simulated clusters, as authors write them.

mod conformance;
mod repeats;
mod toy;
