//! The parameters of a StorageClass in the mode `server`.

use std::time::Duration;

use directory_volumes::Permissions;
use directory_volumes::parameters::{OnDelete, time};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::export::Access;
use crate::parameters::{Pattern, Policy};

/// The class's parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    /// Group that owns the directory and that pods receive. `none` makes the directory accessible to all.
    #[serde(deserialize_with = "gid")]
    pub(crate) gid: Option<u32>,
    /// Maps a client's root user to an unprivileged user.
    pub(crate) root_squash: bool,
    /// Mount options if the class itself does not contain any.
    #[serde(deserialize_with = "options")]
    pub(crate) mount_options: Vec<String>,
    /// Path of the directory below the root. By default the directory has the volume's name.
    pub(crate) path_pattern: Pattern,
    /// Action on the data of a deleted volume.
    on_delete: Option<Policy>,
    /// Time that data stays in the trash.
    #[serde(deserialize_with = "time")]
    trash_ttl: Option<Duration>,
    /// Limits the data in a volume to the volume's size. By default only if the file system has project quotas.
    pub(crate) enforce_size: Option<bool>,
}

impl Parameters {
    /// Returns permissions with the set-group-id bit, so that pods can use each other's files.
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions { mode: if self.gid.is_some() { 0o2770 } else { 0o2777 }, uid: None, gid: self.gid }
    }

    pub(crate) fn on_delete(&self) -> (OnDelete, Option<Duration>) {
        self.on_delete.unwrap_or(Policy::Delete).on_delete(self.trash_ttl)
    }

    pub(crate) fn access(&self) -> Access {
        Access { root_squash: self.root_squash }
    }
}

fn gid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "none" => Ok(None),
        text => match text.parse() {
            Ok(0 | u32::MAX) | Err(_) => Err(D::Error::custom("it is neither none nor the id of a group above 0")),
            Ok(gid) => Ok(Some(gid)),
        },
    }
}

fn options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.split(',').map(str::trim).filter(|option| !option.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    fn read(key: &str, value: &str) -> Result<Parameters, String> {
        from_map(&[(key.to_owned(), value.to_owned())].into()).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_classes_of_the_old_provisioner() {
        assert_eq!(read("gid", "none").unwrap(), Parameters::default());
        assert_eq!(read("gid", "1000").unwrap().permissions().mode, 0o2770);
        assert!(read("rootSquash", "true").unwrap().access().root_squash);
        assert_eq!(read("mountOptions", "vers=4.1, hard").unwrap().mount_options, ["vers=4.1", "hard"]);
    }

    #[test]
    fn refuses_invalid_parameters() {
        for (key, value) in [
            ("gid", "0"),
            ("gid", ""),
            ("gid", "-1"),
            ("gid", "users"),
            ("rootSquash", "maybe"),
            ("path", "/"),
            ("onDelete", "x"),
        ] {
            assert!(read(key, value).is_err(), "{key}: {value}");
        }
    }
}
