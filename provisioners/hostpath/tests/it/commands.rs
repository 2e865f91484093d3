//! Runs the commands for ownership of directories as child processes, with a simulated API server.

mod adopt;
mod gone_nodes;
mod orphans;
mod root_disk;
mod trash;
mod two_clusters;
mod unadopted;
mod world;
