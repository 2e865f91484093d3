//! The parameters of a StorageClass.

use std::str::FromStr;
use std::time::Duration;

use directory_volumes::parameters::{FileMode, OnDelete, TRASH_TTL, id, time};
use directory_volumes::{PathPattern, Permissions, Reserve, SeLinuxLabel};
use serde::{Deserialize, Deserializer};

/// The class's parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// Path of the directory below the root. By default the directory has the volume's name.
    pub(crate) path_pattern: PathPattern,
    /// Name of the root, if the node has several. By default the root without a name.
    pub(crate) root: Option<String>,
    /// Permissions of the directory, in octal.
    pub(crate) mode: FileMode,
    /// User that owns the directory. By default the user that the provisioner runs as.
    #[serde(deserialize_with = "id")]
    pub(crate) uid: Option<u32>,
    /// Group of the directory.
    #[serde(deserialize_with = "id")]
    pub(crate) gid: Option<u32>,
    /// SELinux label of the directory. By default the node's policy determines it.
    #[serde(deserialize_with = "some")]
    pub(crate) se_linux_label: Option<SeLinuxLabel>,
    /// Action on the data of a deleted volume.
    pub(crate) on_delete: OnDelete,
    /// Time that data stays in the trash.
    #[serde(deserialize_with = "time")]
    pub(crate) trash_ttl: Option<Duration>,
    /// Type of the PersistentVolume.
    pub(crate) volume_type: VolumeType,
    /// Limits the data in a volume to the volume's size. By default only if the file system has project quotas.
    pub(crate) enforce_size: Option<bool>,
    /// Space in the root that a new volume must leave free. By default a volume may be larger than the free space,
    /// unless its size is enforced.
    #[serde(deserialize_with = "some")]
    pub(crate) reserve: Option<Reserve>,
    /// Node label in the volumes' affinity. By default `kubernetes.io/hostname`.
    pub(crate) node_affinity_key: Option<String>,
}

fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Parameters {
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions { mode: self.mode.0, uid: self.uid, gid: self.gid }
    }

    pub(crate) fn trash_ttl(&self) -> Duration {
        self.trash_ttl.unwrap_or(TRASH_TTL)
    }
}

/// The source of the PersistentVolume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) enum VolumeType {
    /// `hostPath`: Kubernetes does not change permissions in the volume.
    #[default]
    HostPath,
    /// `local`: requires a node, and supports the pod's `fsGroup`.
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
    fn accepts_a_class_without_parameters() {
        assert_eq!(read(&[]).unwrap(), Parameters::default());
        assert_eq!(Parameters::default().mode, FileMode(0o777));
    }

    #[test]
    fn reads_all_parameters() {
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
            ("reserve", "5%"),
            ("root", "fast"),
            ("seLinuxLabel", "system_u:object_r:container_file_t:s0"),
        ];
        let expected = Parameters {
            trash_ttl: Some(Duration::from_secs(30 * 86400)),
            path_pattern: "${pvc.metadata.namespace}/${pvc.metadata.name}".parse().unwrap(),
            enforce_size: Some(false),
            reserve: Some(Reserve::Percent(5)),
            root: Some("fast".to_owned()),
            se_linux_label: Some("system_u:object_r:container_file_t:s0".parse().unwrap()),
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
    fn refuses_invalid_parameters() {
        for mode in ["", "7", "0o770", "770x", "00770", "9", "888", "-77", "0070", "4755", " 770", "+770", "7７0"] {
            assert!(read(&[("mode", mode)]).is_err(), "{mode:?}");
        }
        for (mode, meant) in [("504", "0770"), ("511", "0777"), ("493", "0755"), ("1528", "02770")] {
            let refused = read(&[("mode", mode)]).unwrap_err();
            assert!(refused.contains(&format!("write \"{meant}\"")), "{refused}");
        }
        for time in ["", "1", "d", "-1h", "1M", "1 month", "99999999999d"] {
            assert!(read(&[("trashTtl", time)]).is_err(), "{time:?}");
        }
        assert!(read(&[("enforceSize", "yes")]).is_err());
        assert!(read(&[("reserve", "100%")]).is_err());
        assert!(read(&[("seLinuxLabel", "container_file_t")]).is_err());
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
