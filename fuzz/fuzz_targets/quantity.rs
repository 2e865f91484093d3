//! Any text parses to a quantity or fails with a clear error, and printed quantities parse to the same value.
#![no_main]

use kube_provisioner::quantity::{format_bytes, parse_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_bytes(text) {
        Ok(bytes) => assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes)),
        // An event is limited to 1024 bytes. The error quotes 64 characters, each at most ten bytes when escaped.
        Err(error) => assert!(error.to_string().len() < 900),
    }
});
