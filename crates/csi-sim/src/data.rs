//! The data of volumes and snapshots: directories, or files for block devices, below one directory on this machine.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use driver_rpc::Status;
use driver_rpc::csi::VolumeCapability;
use driver_rpc::csi::volume_capability::AccessType;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

/// The supported mount options.
const OPTIONS: [(&str, MountFlags); 6] = [
    ("ro", MountFlags::RDONLY),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("noexec", MountFlags::NOEXEC),
    ("nodev", MountFlags::NODEV),
    ("nosuid", MountFlags::NOSUID),
];

/// The data directory. Its entries are named by the IDs of volumes and snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Data(pub(crate) PathBuf);

impl Data {
    /// Creates the data of a volume, from the data of `source` if it is set.
    pub(crate) fn create(&self, id: &str, is_block: bool, size: i64, source: Option<&str>) -> Result<(), Status> {
        let path = self.path(id);
        if let Some(source) = source {
            let source = self.path(source);
            if source.is_dir() == is_block {
                return Err(Status::invalid_argument("the source has another volume mode"));
            }
            run(Command::new("cp").args(["--archive", "--no-target-directory"]).args([&source, &path]))?;
        }
        let made = if is_block {
            resize(&path, size)
        } else if source.is_some() {
            Ok(())
        } else {
            // Pods can run as any user.
            fs::create_dir(&path).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o777)))
        };
        made.map_err(|error| failed(&path, &error))
    }

    /// Creates the data of a snapshot.
    pub(crate) fn copy(&self, id: &str, source: &str) -> Result<(), Status> {
        let (from, to) = (self.path(source), self.path(id));
        run(Command::new("cp").args(["--archive", "--no-target-directory"]).args([from, to]))
    }

    /// Expands the file of a block device. Directories have no size.
    pub(crate) fn expand(&self, id: &str, size: i64) -> Result<(), Status> {
        let path = self.path(id);
        if path.is_dir() { Ok(()) } else { resize(&path, size).map_err(|error| failed(&path, &error)) }
    }

    /// Updates the kernel's size of a block device that is in use.
    pub(crate) fn expand_on_node(&self, id: &str) -> Result<(), Status> {
        match self.loop_device(id)? {
            Some(device) => run(Command::new("losetup").arg("--set-capacity").arg(device)),
            None => Ok(()),
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Status> {
        let path = self.path(id);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        ignore_error_kind(removed, ErrorKind::NotFound).map_err(|error| failed(&path, &error))
    }

    /// Mounts a volume at an existing path.
    pub(crate) fn mount(
        &self,
        id: &str,
        target: &Path,
        capability: &VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        let mut flags = if readonly { MountFlags::RDONLY } else { MountFlags::empty() };
        let source = match &capability.access_type {
            Some(AccessType::Block(_)) => match self.loop_device(id)? {
                Some(device) => device,
                None => output(Command::new("losetup").args(["--find", "--show"]).arg(self.path(id)))?.into(),
            },
            _ => self.path(id),
        };
        if let Some(AccessType::Mount(volume)) = &capability.access_type {
            for option in &volume.mount_flags {
                let known = OPTIONS.iter().find(|(name, _)| name == option);
                let (_, flag) = known
                    .ok_or_else(|| Status::invalid_argument(format!("mount option {option:?} is not supported")))?;
                flags |= *flag;
            }
        }
        let mounted = mount_bind(&source, target)
            .and_then(|()| if flags.is_empty() { Ok(()) } else { mount_remount(target, flags | MountFlags::BIND, "") });
        mounted.map_err(|error| failed(target, &error.into()))
    }

    /// Unmounts a volume. With `is_last`, it is not mounted elsewhere.
    pub(crate) fn unmount(&self, id: &str, target: &Path, is_last: bool) -> Result<(), Status> {
        match unmount(target, UnmountFlags::NOFOLLOW) {
            // The volume is not mounted, or the path does not exist.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(failed(target, &error.into())),
        }
        match self.loop_device(id)? {
            Some(device) if is_last => run(Command::new("losetup").arg("--detach").arg(device)),
            _ => Ok(()),
        }
    }

    /// Returns the device of a block volume that is in use.
    fn loop_device(&self, id: &str) -> Result<Option<PathBuf>, Status> {
        let path = self.path(id);
        if !path.is_file() {
            return Ok(None);
        }
        let devices =
            output(Command::new("losetup").args(["--noheadings", "--output", "NAME", "--associated"]).arg(path))?;
        Ok(devices.lines().next().map(PathBuf::from))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(id)
    }
}

pub(crate) fn is_block(capability: &VolumeCapability) -> bool {
    matches!(capability.access_type, Some(AccessType::Block(_)))
}

pub(crate) fn ignore_error_kind(result: io::Result<()>, fine: ErrorKind) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == fine => Ok(()),
        result => result,
    }
}

pub(crate) fn failed(path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("{}: {error}", path.display()))
}

fn resize(path: &Path, size: i64) -> io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    let size = u64::try_from(size).unwrap_or_default();
    // Files never shrink.
    file.set_len(size.max(file.metadata()?.len()))
}

fn run(command: &mut Command) -> Result<(), Status> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String, Status> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| Status::internal(format!("{program}: {error}")))?;
    if !output.status.success() {
        return Err(Status::internal(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
