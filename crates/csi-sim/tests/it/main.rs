//! The simulated CSI driver.

mod contract;
mod faults;
