//! Tests on simulated clusters, as authors write them.

mod buckets;
mod conformance;
mod contract;
mod event_order;
mod fairness;
mod repeats;
mod replicas;
mod stand;
mod toy;
