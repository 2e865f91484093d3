//! The binary `aws-s3-provisioner`.

mod help;
