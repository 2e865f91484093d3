//! The binary `hostpath-provisioner`, its manifests, and its page in the guide.

mod commands;
mod deploy;
mod guide;
mod help;
