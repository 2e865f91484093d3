//! Tests of the binary `hostpath-provisioner`, its image, and its pages in the guide.

mod commands;
mod deploy;
mod guide;
mod help;
