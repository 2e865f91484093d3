//! The work key: the volume's name, for a claim as well as for its volume.

use std::fmt;
use std::sync::Arc;

/// The name of a PersistentVolume that exists or will be created.
///
/// Nearly every name in a cluster is `pvc-` and a UUID; such names need no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    ForClaim(u128),
    Named(Arc<str>),
}

const PREFIX: &str = "pvc-";

impl Key {
    pub(crate) fn of_volume(name: &str) -> Self {
        match name.strip_prefix(PREFIX).and_then(parse_uuid) {
            Some(uid) => Self::ForClaim(uid),
            None => Self::Named(name.into()),
        }
    }

    /// Returns the key of the claim with this uid, according to the usual naming.
    #[cfg(test)]
    pub(crate) fn of_claim(uid: &str) -> Self {
        ClaimUid::new(uid).0
    }
}

/// The uid of a claim, as compact as its key in the usual naming.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClaimUid(Key);

impl ClaimUid {
    /// The minimum of the order.
    pub(super) const LEAST: Self = Self(Key::ForClaim(0));

    pub(crate) fn new(uid: &str) -> Self {
        Self(match parse_uuid(uid) {
            Some(uid) => Key::ForClaim(uid),
            None => Key::Named(format!("{PREFIX}{uid}").into()),
        })
    }

    /// Returns the key in the usual naming, `pvc-` and the uid.
    pub(super) fn usual_key(&self) -> &Key {
        &self.0
    }

    /// Returns the claim whose volume has this name in the usual naming.
    pub(super) fn of_usual(key: &Key) -> Self {
        Self(key.clone())
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_string();
        f.write_str(name.strip_prefix(PREFIX).unwrap_or(&name))
    }
}

/// Converts like [`Key::of_volume`].
impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self::of_volume(name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForClaim(uid) => {
                f.write_str(PREFIX)?;
                f.write_str(str::from_utf8(&print_uuid(*uid)).unwrap_or_default())
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Only accepts the canonical form (lower case, hyphens in place), so that a key prints the name it was created from.
fn parse_uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let digit = match (at, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u128::from(digit);
    }
    Some(value)
}

/// Formats like [`parse_uuid`] reads. Names are written often, and formatting five numbers is slower.
fn print_uuid(value: u128) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut rest = value;
    for (at, byte) in text.iter_mut().enumerate().rev() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            *byte = b"0123456789abcdef"[(rest & 0xf) as usize];
            rest >>= 4;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use provisioner_runtime::controller::shard_of;

    use super::*;

    #[test]
    fn packs_only_canonical_uuids() {
        let uid = "0a1b2c3d-0000-4fff-8001-00000000000a";
        assert!(matches!(Key::of_claim(uid), Key::ForClaim(_)));
        assert_eq!(Key::of_claim(uid), Key::of_volume(&format!("pvc-{uid}")));
        for other in ["uid-1-1", "0A1B2C3D-0000-4fff-8001-00000000000a", "0a1b2c3d00004fff800100000000000a"] {
            assert!(matches!(Key::of_claim(other), Key::Named(_)), "{other}");
        }
    }

    #[test]
    fn distributes_keys_evenly_and_equally_in_all_versions() {
        let keys: Vec<String> = (0..4000_u128)
            .map(|number| Key::ForClaim(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_string())
            .collect();
        let mut shares = [0; 4];
        keys.iter().for_each(|key| shares[shard_of(key, 4) as usize] += 1);
        assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
        // These values must never change: an old replica and a new one share the keys during an update.
        assert_eq!(keys[..6].iter().map(|key| shard_of(key, 4)).collect::<Vec<_>>(), [0, 2, 1, 1, 2, 1]);
    }

    proptest! {
        #[test]
        fn a_key_prints_the_name_it_was_created_from(uid in any::<u128>(), name in "[a-z0-9.-]{0,60}") {
            let text = Key::ForClaim(uid).to_string();
            prop_assert_eq!(Key::of_volume(&text), Key::ForClaim(uid));
            prop_assert_eq!(Key::of_volume(&name).to_string(), name.clone());
            let claim = Key::of_claim(&name).to_string();
            prop_assert_eq!(claim, format!("pvc-{name}"));
        }
    }
}
