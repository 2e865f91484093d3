//! What the classes of all provisioners of directories can say.

use std::time::Duration;

use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
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

/// Annotations by which classes configure other provisioners of directories, and what is there instead of them.
const OF_OTHERS: [(&str, &str); 2] = [
    ("cas.openebs.io/config", "use the parameters of this provisioner for the path and the quota"),
    ("defaultVolumeType", "use the parameter volumeType of the hostPath provisioner"),
];
/// The file system that a CSI driver creates on a device.
const FSTYPE: &str = "csi.storage.k8s.io/fstype";

/// Lists the settings of a class that provisioners of directories do not honour, although they serve the class.
pub fn ignored_settings(class: &StorageClass) -> Vec<String> {
    let annotations = class.metadata.annotations.as_ref();
    let given = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
    let of_others = OF_OTHERS.iter().filter(|(key, _)| given(key));
    let of_others = of_others.map(|(key, remedy)| {
        format!("annotation \"{key}\" is for another provisioner and is ignored; remove it, and {remedy}")
    });
    let fstype = class.parameters.as_ref().is_some_and(|all| all.contains_key(FSTYPE)).then(|| {
        format!("parameter \"{FSTYPE}\" is ignored, because a volume is a directory on the file system of the root; remove it")
    });
    of_others.chain(fstype).collect()
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

/// The mode that became this decimal number, because YAML reads `0770` without quotes as an octal number.
fn meant(text: &str) -> Option<u32> {
    let mode: u32 = text.parse().ok().filter(|_| !text.starts_with('0'))?;
    (mode <= 0o3777 && mode & 0o700 == 0o700).then_some(mode)
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let mode = digits.then(|| u32::from_str_radix(&text, 8).ok()).flatten();
        let is_usable = mode.is_some_and(|mode| mode & 0o700 == 0o700);
        if let Some(meant) = meant(&text).filter(|_| !is_usable) {
            return Err(D::Error::custom(format!(
                "YAML reads 0{meant:o} without quotes as this number; write \"0{meant:o}\""
            )));
        }
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
