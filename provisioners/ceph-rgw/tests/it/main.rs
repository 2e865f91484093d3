//! The binary `ceph-rgw-provisioner`.

mod help;
