//! The NFS provisioner on a real control plane. Tests with the prefix `ganesha_` need the packages of an NFS server.

pub(crate) mod fixture;
mod kernel;
mod kills;
mod quota;
mod server;
mod subdir;
mod troubles;
