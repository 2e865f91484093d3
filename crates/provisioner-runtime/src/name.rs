//! Object names and label values derived from arbitrary text, and hashes.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// Maximum length of an object's name.
const NAME: usize = 253;

/// Maximum length of a label value.
const LABEL: usize = 63;

/// Returns the name of the Lease of a controller called `text`.
///
/// For ordinary names it is the name that the Go library uses: `/` becomes `-`. A text that is still not a valid name
/// is converted to one, and ends with a hash of the whole text, so that different texts keep different names.
///
/// ```
/// # use provisioner_runtime::lease::lease_name;
/// assert_eq!(lease_name("example.com/hostpath"), "example.com-hostpath");
/// assert_eq!(lease_name("Example.com/my_disk"), "example.com-my-disk-c5cbbe6f");
/// ```
pub fn lease_name(text: &str) -> String {
    let plain = text.replace('/', "-");
    if is_dns_subdomain(&plain) {
        return plain;
    }
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let lower: String = plain.chars().map(allowed).collect();
    let parts: Vec<&str> =
        lower.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    hashed(&parts.join("."), text, NAME)
}

/// Appends a suffix to `name`, which is cut if the result would be too long.
pub(crate) fn with_suffix(name: &str, suffix: &str) -> String {
    if name.len() + suffix.len() <= NAME {
        format!("{name}{suffix}")
    } else {
        format!("{}{suffix}", hashed(name, name, NAME - suffix.len()))
    }
}

pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= LABEL { name.to_owned() } else { hashed(name, name, LABEL) }
}

/// A hash of a text (FNV-1a with 32 bits), as eight hexadecimal digits.
pub fn short_hash(text: &str) -> String {
    // FNV-1a: the same in every version, unlike the standard library's hash.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5, mix))
}

/// Returns a hash of a text (FNV-1a) that is the same in all replicas, whichever compiler built them.
pub fn stable_hash(text: &str) -> u64 {
    // FNV-1a, as in `short_hash`.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Returns a fingerprint of a value. It detects changes within this process only: another compiler may change it.
pub fn fingerprint(of: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}

/// Returns true if this is a DNS subdomain that is not too long for a name.
pub fn is_dns_subdomain(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(allowed);
    name.len() <= NAME && name.split('.').all(part)
}

/// Returns the start of `text` and a hash of `whole`, together at most `limit` bytes.
fn hashed(text: &str, whole: &str, limit: usize) -> String {
    let hash = short_hash(whole);
    // The text is always ASCII here, so every byte is a character.
    let room = limit - hash.len() - 1;
    let start = text.get(..room.min(text.len())).unwrap_or_default().trim_end_matches(['-', '.']);
    if start.is_empty() { hash } else { format!("{start}-{hash}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_names_match_the_go_library() {
        for (name, lease) in [
            ("example.com/hostpath", "example.com-hostpath"),
            ("k8s.io/minikube-hostpath", "k8s.io-minikube-hostpath"),
            ("fuseim.pri/ifs", "fuseim.pri-ifs"),
            ("nfs", "nfs"),
        ] {
            assert_eq!(lease_name(name), lease);
        }
    }

    #[test]
    fn similar_names_stay_distinct() {
        let names = ["a.b/c-d", "a.b/c_d", "A.b/c-d", "a.b/c-d-", "a.b//c-d", "", "/", "ä"];
        let leases: std::collections::BTreeSet<String> = names.iter().map(|name| lease_name(name)).collect();
        assert_eq!(leases.len(), names.len(), "{leases:?}");
    }

    #[test]
    fn shortens_names_that_are_too_long() {
        let long = "a".repeat(300);
        assert_eq!(lease_name(&long).len(), 253);
        assert_ne!(lease_name(&long), lease_name(&"a".repeat(301)));
        assert_eq!(with_suffix(&lease_name(&long), "-17").len(), 253);
        assert_eq!(label_value(&lease_name(&long)).len(), 63);
        assert_eq!(label_value("example.com-hostpath"), "example.com-hostpath");
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_valid_name(text in ".{0,300}") {
            let name = lease_name(&text);
            prop_assert!(is_dns_subdomain(&name), "{name:?}");
            prop_assert!(is_dns_subdomain(&with_suffix(&name, "-member-0123abcd")));
            prop_assert_eq!(lease_name(&name), name);
        }
    }
}
