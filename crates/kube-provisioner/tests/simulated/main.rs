//! Tests on simulated clusters, as authors write them.

mod buckets;
mod conformance;
mod contract;
mod event_order;
mod fairness;
mod per_claim;
mod repeats;
mod stand;
mod toy;
