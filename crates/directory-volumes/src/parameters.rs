//! What the classes of all provisioners of directories can say.

use std::time::Duration;

use kube_provisioner::parse_duration;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// How long the trash keeps data where the class does not say.
pub const TRASH_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// What becomes of the data of a deleted volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnDelete {
    /// They are removed.
    #[default]
    Delete,
    /// They are moved to the trash, and removed after some time.
    Trash,
    /// They stay where they are.
    Retain,
}

/// Reads a duration, for `deserialize_with`.
///
/// # Errors
/// When it is none.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// Reads the id of a user or group, for `deserialize_with`.
///
/// # Errors
/// When it is none. chown(2) takes the greatest number for "leave it as it is".
pub fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(deserializer)? {
        u32::MAX => Err(D::Error::custom("it is no id of a user or group")),
        id => Ok(Some(id)),
    }
}

/// Permissions of a directory: nine bits, and the sticky and set-group-id bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Default for FileMode {
    /// Pods of any user write here.
    fn default() -> Self {
        Self(0o777)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let mode = digits.then(|| u32::from_str_radix(&text, 8).ok()).flatten();
        match mode {
            Some(mode) if mode & 0o4000 != 0 => {
                Err(D::Error::custom("the set-user-id bit has no meaning for a directory"))
            }
            Some(mode) if mode & 0o700 != 0o700 => Err(D::Error::custom(
                "the owner needs all rights, as in \"0770\", or nobody could delete what is in it",
            )),
            Some(mode) => Ok(Self(mode)),
            None => Err(D::Error::custom("it is not an octal mode such as \"0770\"")),
        }
    }
}
