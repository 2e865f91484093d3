//! The controller's tables accept any bytes from the API server without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kube_provisioner::explain::volume::decide_from_bytes(bytes));
