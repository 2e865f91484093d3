//! Free space for volumes, and the usage of roots and volumes.

use std::os::fd::AsFd;
use std::str::FromStr;

use kube_provisioner::quantity::parse_bytes;
use project_quota::{ProjectId, ProjectQuota};

use crate::error::DirectoryError;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{PROJECTS, State, read_json};

/// The space that a class keeps free in a root's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Percentage of the file system's size.
    Percent(u8),
    /// Number of bytes.
    Bytes(u64),
}

impl Reserve {
    fn of(self, size: u64) -> u64 {
        match self {
            Self::Percent(percent) => size / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Default for Reserve {
    /// The default reserves nothing.
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl FromStr for Reserve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix('%') {
            None => parse_bytes(text).map(Self::Bytes).map_err(|error| format!("{error}, or a percentage such as 5%")),
            Some(number) => match number.parse() {
                Ok(percent @ 0..100) if !number.starts_with('+') => Ok(Self::Percent(percent)),
                _ => Err("expected a percentage from 0% to 99%, or a size such as 10Gi".to_owned()),
            },
        }
    }
}

kube_provisioner::deserialize_from_str!(Reserve);

/// The capacity of a root's file system and the usage of its volumes, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured {
    /// The size of the file system.
    pub size: u64,
    /// The space that is still available.
    pub free: u64,
    /// The volumes whose size is enforced, including those in the trash. The file system itself tracks their usage.
    pub volumes: Vec<VolumeUsage>,
}

/// The usage of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeUsage {
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The usage in bytes.
    pub bytes: u64,
    /// The number of files and directories.
    pub inodes: u64,
}

impl Root {
    /// Refuses a new volume that is larger than the free space.
    ///
    /// Space that other volumes have requested but not used yet counts as free, because they may never need it.
    pub(crate) fn check_room(
        &self,
        state: &State,
        path: &VolumePath,
        bytes: u64,
        reserve: Reserve,
    ) -> Result<(), DirectoryError> {
        let disk = self.disk(state)?;
        let reserved = reserve.of(disk.size);
        if bytes <= disk.free.saturating_sub(reserved) || self.mark_of(path)?.is_some() {
            return Ok(());
        }
        let (path, wanted) = (self.path().to_owned(), format_size(bytes));
        Err(DirectoryError::NoRoom { path, wanted, free: format_size(disk.free), reserved: format_size(reserved) })
    }

    /// Returns the current usage.
    ///
    /// # Errors
    /// Fails if the marker is not the expected one, or if the file system does not report its usage.
    pub fn usage(&self) -> Result<Measured, DirectoryError> {
        let state = self.enter()?;
        let disk = self.disk(&state)?;
        let mut volumes = Vec::new();
        if let Ok(Some(quota)) = ProjectQuota::of(&state.root) {
            let projects = state.directory(PROJECTS)?;
            for name in state.list(PROJECTS)? {
                let id = name.parse().ok().and_then(ProjectId::new);
                let usage = id.and_then(|id| quota.usage(id).ok());
                // A volume that is deleted in the meantime has no usage.
                let owner = read_json::<Owner>(projects.as_fd(), &name, format_args!("{PROJECTS}/{name}"))?;
                if let (Some(usage), Some(owner)) = (usage, owner) {
                    let (bytes, inodes) = (usage.used_bytes, usage.used_inodes);
                    volumes.push(VolumeUsage { volume: owner.volume, bytes, inodes });
                }
            }
        }
        Ok(Measured { size: disk.size, free: disk.free, volumes })
    }
}

/// Formats a size for users, such as `12.3Gi`.
fn format_size(bytes: u64) -> String {
    let units = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = units
        .into_iter()
        .enumerate()
        .map(|(steps, unit)| (unit, 10 * (steps + 1)))
        .rfind(|(_, bits)| bytes >> bits > 0);
    match unit {
        None => bytes.to_string(),
        Some((unit, bits)) => {
            let tenths = (u128::from(bytes) * 10) >> bits;
            match tenths % 10 {
                0 => format!("{}{unit}", tenths / 10),
                rest => format!("{}.{rest}{unit}", tenths / 10),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, owner, root};

    #[test]
    fn parses_reserves_as_percentages_or_sizes() {
        assert_eq!("5%".parse(), Ok(Reserve::Percent(5)));
        assert_eq!("0".parse(), Ok(Reserve::Bytes(0)));
        assert_eq!("10Gi".parse(), Ok(Reserve::Bytes(10 << 30)));
        for text in ["", "%", "100%", "-1%", "+5%", "5.5%", "5 %", "-1", "many"] {
            assert!(text.parse::<Reserve>().is_err(), "{text}");
        }
        assert_eq!([Reserve::Percent(5), Reserve::Bytes(7)].map(|reserve| reserve.of(1000)), [50, 7]);
    }

    #[test]
    fn formats_sizes_with_binary_units() {
        for (bytes, text) in [(0, "0"), (1023, "1023"), (1 << 30, "1Gi"), (3 << 29, "1.5Gi"), (u64::MAX, "15.9Ei")] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn refuses_volumes_larger_than_the_unreserved_free_space() {
        let (_folder, root) = root();
        let (state, path) = (root.enter().unwrap(), at("pvc-1"));
        let disk = root.disk(&state).unwrap();
        let check = |bytes, reserve| root.check_room(&state, &path, bytes, reserve).map_err(|error| error.to_string());
        assert_eq!(check(1, Reserve::default()), Ok(()));
        let error = check(disk.size + 1, Reserve::default()).unwrap_err();
        assert!(error.contains("has no room for a volume of"), "{error}");
        assert!(check(1, Reserve::Bytes(disk.size)).is_err());
        root.enter().unwrap().reserve(&path, &owner("pvc-1"), false, crate::files::Durability::Immediate).unwrap();
        assert_eq!(check(1, Reserve::Bytes(disk.size)), Ok(()), "the volume already exists");
        let measured = root.usage().unwrap();
        assert!(measured.size == disk.size && measured.free > 0 && measured.volumes.is_empty(), "{measured:?}");
    }
}
