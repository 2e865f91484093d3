//! The commands that change a root, as programs against a simulated API server: ownership of directories.

mod adopt;
mod orphans;
mod root_disk;
mod trash;
mod two_clusters;
mod unadopted;
mod world;
