//! `csi-provisioner` as a library, on a simulated cluster, and its binary.

mod contract;
mod help;
mod simulated;
