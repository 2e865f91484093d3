//! Tests of `csi-provisioner`: the library on a simulated cluster, and the binary.

mod contract;
mod help;
mod simulated;
