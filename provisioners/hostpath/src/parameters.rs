//! What a StorageClass can say about its volumes.

use std::str::FromStr;
use std::time::Duration;

use directory_volumes::{PathPattern, Permissions};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// How long the trash keeps data where the class does not say.
const TRASH_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// The class's parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// Where the directory is below the root; its name is the volume's without it.
    pub(crate) path_pattern: PathPattern,
    /// Permissions of the directory, in octal.
    pub(crate) mode: FileMode,
    /// User that owns the directory. Without it, who the provisioner runs as.
    #[serde(deserialize_with = "id")]
    pub(crate) uid: Option<u32>,
    /// Group of the directory.
    #[serde(deserialize_with = "id")]
    pub(crate) gid: Option<u32>,
    /// What becomes of the data of a deleted volume.
    pub(crate) on_delete: OnDelete,
    /// How long data stay in the trash.
    #[serde(deserialize_with = "time")]
    pub(crate) trash_ttl: Option<Duration>,
    /// What the PersistentVolume is.
    pub(crate) volume_type: VolumeType,
    /// Whether a volume can hold no more than its size. Without it: where the file system has project quotas.
    pub(crate) enforce_size: Option<bool>,
    /// The node label that volumes name; `kubernetes.io/hostname` without it.
    pub(crate) node_affinity_key: Option<String>,
}

impl Parameters {
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions { mode: self.mode.0, uid: self.uid, gid: self.gid }
    }

    pub(crate) fn trash_ttl(&self) -> Duration {
        self.trash_ttl.unwrap_or(TRASH_TTL)
    }
}

/// What becomes of the data of a deleted volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDelete {
    /// They are removed.
    #[default]
    Delete,
    /// They are moved to the trash, and removed after some time.
    Trash,
    /// They stay where they are.
    Retain,
}

/// Which source the PersistentVolume has.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) enum VolumeType {
    /// `hostPath`: Kubernetes changes nothing in it.
    #[default]
    HostPath,
    /// `local`: needs a node, and honours the pod's `fsGroup`.
    Local,
}

impl FromStr for VolumeType {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "hostPath" => Ok(Self::HostPath),
            "local" => Ok(Self::Local),
            _ => Err("expected hostPath or local"),
        }
    }
}

/// A number and its unit, such as `12h` or `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    let seconds = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)].into_iter().find_map(|(unit, seconds)| {
        let count = text.strip_suffix(unit)?;
        let plain = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| count.parse::<u32>().ok().map(|count| u64::from(count) * seconds))?
    });
    seconds.map(Duration::from_secs).ok_or("it is no time with its unit, such as \"12h\" or \"30d\"")
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// chown(2) takes the greatest number for "leave it as it is".
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(deserializer)? {
        u32::MAX => Err(D::Error::custom("it is no id of a user or group")),
        id => Ok(Some(id)),
    }
}

/// Permissions of a directory: nine bits, and the sticky and set-group-id bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMode(pub(crate) u32);

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
            None => Err(D::Error::custom("it is no mode in octal such as \"0770\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube_provisioner::parameters::from_map;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Parameters, String> {
        let map: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        from_map(&map).map_err(|error| error.to_string())
    }

    #[test]
    fn a_class_may_say_nothing() {
        assert_eq!(read(&[]).unwrap(), Parameters::default());
        assert_eq!(Parameters::default().mode, FileMode(0o777));
    }

    #[test]
    fn a_class_says_who_owns_a_directory_and_what_becomes_of_it() {
        let parameters = [
            ("mode", "2770"),
            ("uid", "1000"),
            ("gid", "0"),
            ("onDelete", "retain"),
            ("volumeType", "local"),
            ("trashTtl", "30d"),
            ("pathPattern", "${pvc.metadata.namespace}/${pvc.metadata.name}"),
            ("nodeAffinityKey", "example.com/host"),
            ("enforceSize", "false"),
        ];
        let expected = Parameters {
            trash_ttl: Some(Duration::from_secs(30 * 86400)),
            path_pattern: "${pvc.metadata.namespace}/${pvc.metadata.name}".parse().unwrap(),
            enforce_size: Some(false),
            node_affinity_key: Some("example.com/host".to_owned()),
            mode: FileMode(0o2770),
            uid: Some(1000),
            gid: Some(0),
            on_delete: OnDelete::Retain,
            volume_type: VolumeType::Local,
        };
        assert_eq!(read(&parameters).unwrap(), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for mode in ["", "7", "0o770", "770x", "00770", "9", "888", "-77", "0070", "4755", " 770", "+770", "7７0"] {
            assert!(read(&[("mode", mode)]).is_err(), "{mode:?}");
        }
        for time in ["", "1", "d", "-1h", "1w", "1h30m", "99999999999d", "1.5h", "+1h"] {
            assert!(read(&[("trashTtl", time)]).is_err(), "{time:?}");
        }
        assert!(read(&[("enforceSize", "yes")]).is_err());
        assert!(read(&[("pathPattern", "../${pv.metadata.name}")]).is_err());
        for id in ["-1", "4294967295", "4294967296", "root", "1.0", ""] {
            assert!(read(&[("uid", id)]).is_err(), "{id:?}");
            assert!(read(&[("gid", id)]).is_err(), "{id:?}");
        }
        for (key, value) in [("onDelete", "archive"), ("onDelete", "Delete"), ("volumeType", "nfs"), ("path", "/etc")] {
            assert!(read(&[(key, value)]).is_err(), "{key}: {value}");
        }
    }
}
