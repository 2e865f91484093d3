//! Any parameters parse to the author's struct, or fail with an error that describes the problems.
#![no_main]

use std::collections::BTreeMap;

use kube_provisioner::parameters::from_map;
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, never read")]
struct Parameters {
    server: String,
    port: Option<u16>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    tags: Vec<String>,
    on_delete: Option<OnDelete>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnDelete {
    Archive,
    Delete,
}

fuzz_target!(|map: BTreeMap<String, String>| {
    if let Err(error) = from_map::<Parameters>(&map) {
        assert!(!error.problems().is_empty());
        assert!(!error.to_string().is_empty());
    }
});
