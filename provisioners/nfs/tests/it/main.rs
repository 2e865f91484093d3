//! Tests of the binary `nfs-provisioner`.

mod help;
