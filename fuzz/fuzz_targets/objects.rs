//! Whatever the API server sends, the controller's tables take it without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kube_provisioner::fuzzing::take_in(bytes));
