//! Tests on simulated clusters, as authors write them.

mod buckets;
mod conformance;
mod contract;
mod event_order;
mod fairness;
mod fixture;
mod nodes;
mod repeats;
mod replicas;
mod toy;
