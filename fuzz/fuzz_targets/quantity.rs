//! Any text is a quantity or a clear error, and what is printed reads back.
#![no_main]

use kube_provisioner::quantity::{format_bytes, parse_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_bytes(text) {
        Ok(bytes) => assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes)),
        // An event has room for 1024 bytes; 64 characters are quoted, and each may take ten to escape.
        Err(error) => assert!(error.to_string().len() < 900),
    }
});
