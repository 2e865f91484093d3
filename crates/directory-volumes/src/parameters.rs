//! Class parameters common to all directory provisioners.

use std::time::Duration;

use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::parse_duration;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The time for which the trash keeps data unless the class specifies one.
pub const TRASH_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// The treatment of the data of a deleted volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnDelete {
    /// Remove the data.
    #[default]
    Delete,
    /// Move the data to the trash, and remove it after some time.
    Trash,
    /// Keep the data in place.
    Retain,
}

/// Annotations with which classes configure other directory provisioners, and their replacements here.
const OF_OTHERS: [(&str, &str); 2] = [
    ("cas.openebs.io/config", "use the parameters of this provisioner for the path and the quota"),
    ("defaultVolumeType", "use the parameter volumeType of the hostPath provisioner"),
];
/// The file system that a CSI driver creates on a device.
const FSTYPE: &str = "csi.storage.k8s.io/fstype";

/// Lists the settings of a class that directory provisioners do not honour, although they serve the class.
pub fn ignored_settings(class: &StorageClass) -> Vec<String> {
    let annotations = class.metadata.annotations.as_ref();
    let given = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
    let of_others = OF_OTHERS.iter().filter(|(key, _)| given(key));
    let of_others = of_others.map(|(key, remedy)| {
        format!("annotation \"{key}\" is for another provisioner and is ignored; remove it, and {remedy}")
    });
    let parameter = |key: &str| class.parameters.as_ref().and_then(|all| all.get(key));
    let fstype = parameter(FSTYPE).map(|_| {
        format!("parameter \"{FSTYPE}\" is ignored, because a volume is a directory on the file system of the root; remove it")
    });
    let has_trash = parameter("onDelete").is_some_and(|policy| policy == "trash");
    let ttl = parameter("trashTtl").filter(|_| !has_trash).map(|_| {
        "parameter \"trashTtl\" is ignored, because onDelete is not trash; set onDelete: trash, or remove it".to_owned()
    });
    of_others.chain(fstype).chain(ttl).collect()
}

/// Reads a duration, for `deserialize_with`.
///
/// # Errors
/// Fails if it is not a valid duration.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// Reads the id of a user or group, for `deserialize_with`.
///
/// # Errors
/// Fails if it is not a valid id. chown(2) interprets the greatest number as "leave unchanged".
pub fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(deserializer)? {
        u32::MAX => Err(D::Error::custom("it is not a valid user or group id")),
        id => Ok(Some(id)),
    }
}

/// Permissions of a directory: nine bits, and the sticky and set-group-id bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Default for FileMode {
    /// The default lets pods of any user write.
    fn default() -> Self {
        Self(0o777)
    }
}

/// Returns the mode that the author of the class meant, if the text is the decimal form of one: YAML reads `0770`
/// without quotes as an octal number.
fn intended_mode(text: &str) -> Option<u32> {
    let mode: u32 = text.parse().ok().filter(|_| !text.starts_with('0'))?;
    (mode <= 0o3777 && mode & 0o700 == 0o700).then_some(mode)
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let mode = digits.then(|| u32::from_str_radix(&text, 8).ok()).flatten();
        let is_usable = mode.is_some_and(|mode| mode & 0o700 == 0o700);
        if let Some(meant) = intended_mode(&text).filter(|_| !is_usable) {
            return Err(D::Error::custom(format!(
                "YAML reads 0{meant:o} without quotes as this number; write \"0{meant:o}\""
            )));
        }
        match mode {
            Some(mode) if mode & 0o4000 != 0 => {
                Err(D::Error::custom("the set-user-id bit has no meaning for a directory"))
            }
            Some(mode) if mode & 0o700 != 0o700 => Err(D::Error::custom(
                "the owner needs all permissions, as in \"0770\", or the contents could not be deleted",
            )),
            Some(mode) => Ok(Self(mode)),
            None => Err(D::Error::custom("it is not an octal mode such as \"0770\"")),
        }
    }
}
