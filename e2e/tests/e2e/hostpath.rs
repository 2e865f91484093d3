//! The hostPath provisioner as a program, with its own service account, on a real control plane.

mod adopted;
mod claims;
mod commands;
pub(crate) mod fixture;
mod gone_nodes;
mod node_restriction;
mod parameters;
mod paths;
mod rights;
mod root;
