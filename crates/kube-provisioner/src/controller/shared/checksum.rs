//! Hashes as texts, and the annotation that detects an edited Secret or ConfigMap.

use sha2::{Digest, Sha256};

pub(crate) const CHECKSUM: &str = "kube-provisioner/checksum";

/// Returns a hash of entries, in the order of the iterator.
pub(crate) fn hash_of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    for (name, value) in entries {
        for part in [name.as_bytes(), value] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
    }
    hex(&hash.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
