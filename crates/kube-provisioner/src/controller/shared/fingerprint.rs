//! Fingerprints that detect changes within this process.

pub(crate) use provisioner_runtime::fingerprint;
