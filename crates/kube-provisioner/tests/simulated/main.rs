//! Tests on simulated clusters, as authors write them.

mod attempts;
mod buckets;
mod conformance;
mod contract;
mod event_order;
mod fairness;
mod faults;
mod fixture;
mod hostile;
mod journal;
mod namesakes;
mod nodes;
mod outages;
mod repeats;
mod replicas;
mod toy;
