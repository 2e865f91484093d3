//! Tests of the `ceph-rgw-provisioner` binary.

mod help;
