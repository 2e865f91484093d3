//! Tests in a simulated cluster, with a driver in memory.

mod capacity;
mod claims;
mod fixture;
mod grants;
mod killed;
mod node_deployment;
mod rights;
mod sources;
mod sweep;
mod topology;
