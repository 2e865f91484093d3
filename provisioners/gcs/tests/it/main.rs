//! The binary `gcs-provisioner`.

mod help;
