//! The binary `nfs-provisioner`.

mod help;
