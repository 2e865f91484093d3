//! The provisioner of NFS volumes on a real control plane. What begins with `ganesha_` needs the packages of an NFS server.

mod fixture;
mod kernel;
mod kills;
mod quota;
mod server;
mod subdir;
mod troubles;
