//! The names of volumes, which are derived from the uids of their claims.

use super::key::{ClaimUid, Key};
use crate::options::{Coordination, Options};

/// The naming of volumes. A name is deterministic, so a second attempt finds the volume of the first.
#[derive(Clone, Debug, Default)]
pub(crate) enum VolumeNames {
    /// `pvc-` followed by the uid.
    #[default]
    Usual,
    /// A prefix, a hyphen, and the uid or the first of its characters without hyphens.
    Chosen { prefix: Box<str>, uid_length: Option<usize> },
}

/// The number of characters in a uid without hyphens.
const LONGEST: usize = 32;
/// The maximum length of a prefix with which every name is valid for a PersistentVolume.
const MAX_PREFIX: usize = 253 - 37;

impl VolumeNames {
    pub(crate) fn of(options: &Options) -> Result<Self, String> {
        let (prefix, uid_length) = (&*options.volume_name_prefix, options.volume_name_uid_length);
        if let Some(length) = uid_length
            && !(1..=LONGEST).contains(&length)
        {
            return Err(format!(
                "names of volumes can have 1 to {LONGEST} characters of the claim's uid, not {length}"
            ));
        }
        // The replica that works on a name distinguishes the claims with this name, but the replicas of nodes do not
        // see each other's claims.
        if uid_length.is_some() && options.coordination == Coordination::PerNode {
            return Err("with --coordination per-node, names of volumes need the whole uid of the claim".to_owned());
        }
        let plain =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        let label = |part: &str| !part.is_empty() && plain(part) && !part.starts_with('-');
        // The last label continues with a hyphen and the uid.
        let parts: Vec<&str> = prefix.split('.').collect();
        let ends = parts.split_last().is_some_and(|(_, rest)| rest.iter().all(|part| !part.ends_with('-')));
        if prefix.len() > MAX_PREFIX || !ends || !parts.iter().all(|part| label(part)) {
            return Err(format!(
                "the names of volumes cannot begin with {prefix:?}; use 1 to {MAX_PREFIX} lower case letters, digits, `-` and `.`, and first a letter or a digit"
            ));
        }
        Ok(match (prefix, uid_length) {
            ("pvc", None) => Self::Usual,
            _ => Self::Chosen { prefix: prefix.into(), uid_length },
        })
    }

    /// Returns the key of the claim: the name of its volume.
    pub(crate) fn key(&self, claim: &ClaimUid) -> Key {
        match self {
            Self::Usual => claim.usual_key().clone(),
            Self::Chosen { prefix, uid_length: None } => Key::of_volume(&format!("{prefix}-{claim}")),
            Self::Chosen { prefix, uid_length: Some(length) } => {
                let digits = claim.to_string().chars().filter(|digit| *digit != '-').take(*length).collect::<String>();
                Key::of_volume(&format!("{prefix}-{digits}"))
            }
        }
    }

    /// Returns true if two claims can have the same name.
    pub(crate) fn can_coincide(&self) -> bool {
        matches!(self, Self::Chosen { uid_length: Some(length), .. } if *length < LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-0000-4fff-8001-00000000000a";

    fn names(prefix: &str, uid_length: Option<usize>) -> Result<VolumeNames, String> {
        let mut options = Options::new("example.com/p");
        (options.volume_name_prefix, options.volume_name_uid_length) = (prefix.to_owned(), uid_length);
        VolumeNames::of(&options)
    }

    fn name(prefix: &str, uid_length: Option<usize>, uid: &str) -> String {
        names(prefix, uid_length).unwrap().key(&ClaimUid::new(uid)).to_string()
    }

    // Rules: G70.
    #[test]
    fn rejects_shortened_uids_with_per_node_replicas() {
        let mut options = Options::new("example.com/p");
        (options.coordination, options.volume_name_prefix) = (Coordination::PerNode, "disk".to_owned());
        assert!(VolumeNames::of(&options).is_ok());
        options.volume_name_uid_length = Some(8);
        assert!(VolumeNames::of(&options).unwrap_err().contains("per-node"));
    }

    // Rules: G70.
    #[test]
    fn names_have_the_configured_prefix_and_length() {
        assert!(matches!(names("pvc", None), Ok(VolumeNames::Usual)));
        assert_eq!(name("pvc", None, UID), format!("pvc-{UID}"));
        assert_eq!(name("my-volumes", None, UID), format!("my-volumes-{UID}"));
        assert_eq!(name("v", Some(8), UID), "v-0a1b2c3d");
        assert_eq!(name("pvc", Some(12), UID), "pvc-0a1b2c3d0000");
        assert_eq!(name("pvc", Some(32), UID), "pvc-0a1b2c3d00004fff800100000000000a");
        // A text that is not a UUID is not shortened beyond its length.
        assert_eq!(name("v", Some(32), "uid-1-1"), "v-uid11");
    }

    // Rules: G70.
    #[test]
    fn rejects_options_that_make_names_invalid() {
        for bad in ["", "-a", "A", "a_b", "a..b", ".a", "a-.b", "a/b", &"x".repeat(217)] {
            assert!(names(bad, None).unwrap_err().contains("cannot begin with"), "{bad}");
        }
        for good in ["pvc", "a-", "a.b", "0", &"x".repeat(216)] {
            assert!(names(good, None).is_ok(), "{good}");
        }
        assert!(names("pvc", Some(0)).is_err() && names("pvc", Some(33)).is_err());
        assert!(names("pvc", Some(1)).unwrap().can_coincide() && !names("v", None).unwrap().can_coincide());
    }
}
