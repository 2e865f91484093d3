//! The binary `garage-provisioner`.

mod help;
