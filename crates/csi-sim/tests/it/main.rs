//! Tests of the simulated CSI driver.

mod contract;
mod faults;
