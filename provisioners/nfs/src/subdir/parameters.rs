//! The parameters of a StorageClass in the mode `subdir`. It also accepts parameters of nfs-subdir-external-provisioner
//! and csi-driver-nfs.

use std::time::Duration;

use directory_volumes::Permissions;
use directory_volumes::parameters::{FileMode, OnDelete, id, time};
use serde::Deserialize;
use serde::de::Deserializer;

use crate::parameters::{Pattern, Policy};

/// The class's parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "RawParameters")]
pub(crate) struct Parameters {
    /// The share's server, if there are several shares.
    pub(crate) server: Option<String>,
    pub(crate) share: Option<String>,
    pub(crate) pattern: Pattern,
    pub(crate) on_delete: OnDelete,
    pub(crate) trash_ttl: Option<Duration>,
    pub(crate) enforce_size: Option<bool>,
    mode: FileMode,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Parameters {
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions { mode: self.mode.0, uid: self.uid, gid: self.gid }
    }
}

/// The parameters before validation.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawParameters {
    /// Server of the share, if there are several shares.
    server: Option<String>,
    /// Path of the share on its server.
    share: Option<String>,
    /// Path of the directory below the share. By default the directory has the volume's name.
    path_pattern: Option<Pattern>,
    /// csi-driver-nfs' name for `pathPattern`.
    sub_dir: Option<Pattern>,
    /// Action on the data of a deleted volume.
    on_delete: Option<Policy>,
    /// nfs-subdir-external-provisioner's parameter for archiving. `onDelete` takes precedence.
    archive_on_delete: Option<bool>,
    /// Time that data stays in the trash.
    #[serde(deserialize_with = "time")]
    trash_ttl: Option<Duration>,
    /// Permissions of the directory, in octal.
    mode: Option<FileMode>,
    /// csi-driver-nfs' name for `mode`.
    mount_permissions: Option<MountPermissions>,
    /// User that owns the directory. By default the user that the provisioner has on the share.
    #[serde(deserialize_with = "id")]
    uid: Option<u32>,
    /// Group of the directory.
    #[serde(deserialize_with = "id")]
    gid: Option<u32>,
    /// Limits the data in a volume to the volume's size.
    enforce_size: Option<bool>,
}

impl TryFrom<RawParameters> for Parameters {
    type Error = String;

    fn try_from(written: RawParameters) -> Result<Self, String> {
        let both = |one: &str, other: &str| format!("{one} and {other} have the same meaning; remove one");
        let pattern = match (written.path_pattern, written.sub_dir) {
            (Some(_), Some(_)) => return Err(both("pathPattern", "subDir")),
            (pattern, sub_dir) => pattern.or(sub_dir).unwrap_or_default(),
        };
        let mode = match (written.mode, written.mount_permissions) {
            (Some(_), Some(_)) => return Err(both("mode", "mountPermissions")),
            (mode, permissions) => mode.or(permissions.map(|MountPermissions(mode)| mode)).unwrap_or_default(),
        };
        let archive = written.archive_on_delete.map(|archive| if archive { Policy::Archive } else { Policy::Delete });
        let policy = written.on_delete.or(archive).unwrap_or(Policy::Delete);
        let (on_delete, trash_ttl) = policy.on_delete(written.trash_ttl);
        if written.share.as_ref().is_some_and(|share| !share.starts_with('/')) {
            return Err("share is a path on the server, such as /exports".to_owned());
        }
        Ok(Self {
            server: written.server,
            share: written.share,
            pattern,
            on_delete,
            trash_ttl,
            enforce_size: written.enforce_size,
            mode,
            uid: written.uid,
            gid: written.gid,
        })
    }
}

/// A mode in octal. In csi-driver-nfs, the value `0` leaves the mode to the server. Here it means 0755.
struct MountPermissions(FileMode);

impl<'de> Deserialize<'de> for MountPermissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "0" {
            return Ok(Self(FileMode(0o755)));
        }
        FileMode::deserialize(serde::de::value::StringDeserializer::<D::Error>::new(text)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Parameters, String> {
        let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        from_map(&map).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_a_class_without_parameters() {
        assert_eq!(read(&[]).unwrap(), Parameters::default());
    }

    #[test]
    fn accepts_classes_of_nfs_subdir_external_provisioner() {
        let kept = |pairs: &[(&str, &str)]| read(pairs).map(|read| (read.on_delete, read.trash_ttl)).unwrap();
        assert_eq!(kept(&[("archiveOnDelete", "true")]), (OnDelete::Trash, None));
        assert_eq!(kept(&[("archiveOnDelete", "false")]), (OnDelete::Delete, None));
        assert_eq!(kept(&[("archiveOnDelete", "true"), ("onDelete", "delete")]), (OnDelete::Delete, None));
        assert_eq!(kept(&[("onDelete", "retain")]), (OnDelete::Retain, None));
        for pattern in [
            "${.PVC.namespace}/${.PVC.name}",
            "${.PVC.namespace}/${.PVC.annotations.nfs.io/storage-path}",
            "${.PVC.labels.app}-${.PVC.namespace}",
        ] {
            read(&[("pathPattern", pattern)]).unwrap();
        }
    }

    #[test]
    fn accepts_classes_of_csi_driver_nfs() {
        let class = [
            ("server", "nfs.example.com"),
            ("share", "/"),
            ("subDir", "${pvc.metadata.namespace}/${pvc.metadata.name}"),
            ("onDelete", "archive"),
            ("mountPermissions", "0770"),
            ("csi.storage.k8s.io/provisioner-secret-name", "mount-options"),
        ];
        let read_class = read(&class).unwrap();
        assert_eq!((read_class.on_delete, read_class.permissions().mode), (OnDelete::Trash, 0o770));
        assert_eq!(read(&[("mountPermissions", "0")]).unwrap().permissions().mode, 0o755);
    }

    #[test]
    fn refuses_invalid_parameters() {
        for pairs in [
            &[("pathPattern", "a-${pv.metadata.name}"), ("subDir", "b-${pv.metadata.name}")][..],
            &[("mode", "0777"), ("mountPermissions", "0777")],
            &[("mountPermissions", "0x1ff")],
            &[("archiveOnDelete", "perhaps")],
            &[("onDelete", "Delete")],
            &[("share", "exports")],
            &[("pathPattern", "${.PVC.name}")],
            &[("pathPattern", "${.PVC.annotations.example.com/path}")],
            &[("pathPattern", "${.PVC.annotations.}")],
            &[("pathPattern", "../${.PVC.annotations.nfs.io/path}")],
            &[("subDir", "shared")],
            &[("path", "/etc")],
        ] {
            assert!(read(pairs).is_err(), "{pairs:?}");
        }
    }
}
