//! Tests of the `aws-s3-provisioner` binary.

mod help;
