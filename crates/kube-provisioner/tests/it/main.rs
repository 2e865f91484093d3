//! Controllers on simulated clusters, as in authors' tests, and the rules that the documentation promises.

mod attempts;
mod behaviour;
mod buckets;
mod conformance;
mod contract;
mod event_order;
mod fairness;
mod faults;
mod fixture;
mod growth;
mod guide;
mod hostile;
mod journal;
mod mistakes;
mod name_collisions;
mod nodes;
mod outages;
mod repeats;
mod replicas;
mod toy;
