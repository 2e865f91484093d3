//! Tests of the `garage-provisioner` binary.

mod help;
