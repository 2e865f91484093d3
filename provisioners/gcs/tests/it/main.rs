//! Tests of the `gcs-provisioner` binary.

mod help;
