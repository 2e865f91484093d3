//! Tests on a simulated cluster, with an in-memory driver.

mod capacity;
mod claims;
mod fixture;
mod grants;
mod killed;
mod node_deployment;
mod permissions;
mod sources;
mod sweep;
mod topology;
