//! The root directory as a handle: everything below it is opened relative to that handle, so that neither
//! `..` nor a symbolic link leads out of it.

mod descend;
mod remove;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use thiserror::Error;

/// Where a directory waits for its removal. Renaming is atomic, so a volume is there as a whole or not at all.
const LEAVING: &str = ".deleting-";

/// Enough for two that work on the same name at once; more is a reason to come back later.
const MOST_ATTEMPTS: usize = 16;

const MOUNTED: &str = "a file system is mounted in it";

/// What is wrong with the root directory or with a volume's directory.
#[derive(Debug, Error)]
pub(crate) enum RootError {
    #[error("the root directory {path} cannot be used: {source}; create it, or name another one with --root")]
    Unusable { path: PathBuf, source: io::Error },
    #[error("the root directory {0} is not a directory; name one with --root")]
    NotADirectory(PathBuf),
    #[error("the root directory {0} is the whole file system; name one for volumes alone with --root")]
    Everything(PathBuf),
    #[error("the path of the root directory {0} is not valid UTF-8, which the Kubernetes API needs")]
    NotUnicode(PathBuf),
    #[error("the root directory {path} is not writable: {source}; make it writable, or name another one with --root")]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{0:?} is no name of a PersistentVolume")]
    InvalidName(String),
    #[error("{path:?} {what}; move it away")]
    InTheWay { path: PathBuf, what: &'static str },
    #[error("{name:?} is in use: {why}; it is removed when that has ended")]
    Busy { name: String, why: &'static str },
    #[error("the work on {0:?} was cut off, and is done by another replica or later")]
    CutOff(String),
    #[error("the removal of {0:?} was interrupted and goes on later")]
    Interrupted(String),
    #[error(
        "cannot change the owner of {name:?}: run the provisioner as root or with CAP_CHOWN, or remove uid and gid from the class"
    )]
    NotAllowed { name: String },
    #[error("{doing} {name:?}: {source}")]
    Io { doing: &'static str, name: String, source: io::Error },
}

/// Who may do what in a volume's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    pub(crate) mode: u32,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    handle: OwnedFd,
    path: PathBuf,
    /// Who owns what this process makes here. Not its own user id where a network file system maps ids.
    owner: OnceLock<u32>,
}

impl Root {
    /// Opens the directory and makes sure that directories can be made in it.
    pub(crate) fn open(path: &Path) -> Result<Self, RootError> {
        let unusable = |source| RootError::Unusable { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(unusable)?;
        if !path.is_dir() {
            return Err(RootError::NotADirectory(path));
        }
        if path.to_str().is_none() {
            return Err(RootError::NotUnicode(path));
        }
        if path.parent().is_none() {
            return Err(RootError::Everything(path));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, &path, flags, Mode::empty()).map_err(|error| unusable(error.into()))?;
        let root = Self { handle, path, owner: OnceLock::new() };
        match root.owner() {
            // A full disk is no reason to stay away: it needs volumes to be removed.
            Ok(_) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(root),
            Err(error) => Err(RootError::NotWritable { path: root.path, source: error.into() }),
        }
    }

    /// Makes the directory of a volume, or finds it as an earlier attempt left it. The path is for the
    /// PersistentVolume only.
    pub(crate) fn create(
        &self,
        name: &str,
        permissions: &Permissions,
        fencing_token: &FencingToken,
    ) -> Result<PathBuf, RootError> {
        check_name(name)?;
        // A removal of the same name may come between the two calls.
        for _ in 0..MOST_ATTEMPTS {
            // Whoever stood still before this may have been succeeded by somebody who made and removed it since.
            if !fencing_token.is_valid() {
                return Err(RootError::CutOff(name.to_owned()));
            }
            match rustix::fs::mkdirat(&self.handle, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("cannot make the directory", name, error)),
            }
            match descend::open(self.handle.as_fd(), name) {
                Ok(directory) => return self.open_up(name, &directory, permissions),
                Err(Errno::NOENT) => {}
                Err(Errno::LOOP | Errno::NOTDIR) => return Err(self.in_the_way(name, "is not a directory")),
                Err(Errno::XDEV) => return Err(self.in_the_way(name, "is a mounted file system")),
                // Not even readable for this process, which would have made it so.
                Err(Errno::ACCESS) => return Err(self.in_the_way(name, "belongs to somebody else")),
                Err(error) => return Err(failed("cannot open the directory", name, error)),
            }
        }
        Err(failed("cannot keep the directory", name, Errno::NOENT))
    }

    /// Removes the directory of a volume with all that is in it. Gone already is success.
    ///
    /// Stops early when the fencing token ends; the next call goes on.
    pub(crate) fn remove(&self, name: &str, fencing_token: &FencingToken) -> Result<(), RootError> {
        check_name(name)?;
        let leaving = format!("{LEAVING}{name}");
        for _ in 0..MOST_ATTEMPTS {
            // What an earlier removal left makes room first: the rename would not replace it.
            remove::tree(&self.handle, &leaving, fencing_token)?;
            match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {}
                // Not made by this program, and where a link leads to is not known to be anybody's volume.
                Ok(_) => return Err(self.in_the_way(name, "is not a directory")),
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(failed("cannot look at", name, error)),
            }
            if !fencing_token.is_valid() {
                return Err(RootError::CutOff(name.to_owned()));
            }
            match rustix::fs::renameat(&self.handle, name, &self.handle, &leaving) {
                Ok(()) => return remove::tree(&self.handle, &leaving, fencing_token),
                Err(Errno::NOENT) => return Ok(()),
                // Another removal of the same name was faster.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                // A full disk has no room for the new name, and removing things is what helps it.
                Err(Errno::NOSPC | Errno::DQUOT) => return remove::tree(&self.handle, name, fencing_token),
                Err(Errno::BUSY) => return Err(RootError::Busy { name: name.to_owned(), why: MOUNTED }),
                Err(error) => return Err(failed("cannot move the directory aside", name, error)),
            }
        }
        Err(failed("cannot move the directory aside", name, Errno::NOTEMPTY))
    }

    /// Removes what earlier removals left. Their volumes may be gone, so nobody would ask again.
    ///
    /// One that cannot be removed does not keep the others: all are tried, and the first error is returned.
    pub(crate) fn finish_removals(&self, fencing_token: &FencingToken) -> Result<(), RootError> {
        let entries =
            Dir::read_from(&self.handle).map_err(|error| failed("cannot list", "the root directory", error))?;
        let mut result = Ok(());
        for entry in entries {
            let entry = entry.map_err(|error| failed("cannot list", "the root directory", error))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.strip_prefix(LEAVING).is_some_and(|name| check_name(name).is_ok()) {
                result = result.and(remove::tree(&self.handle, name, fencing_token));
            }
        }
        result
    }

    /// Gives the directory to whom the class says, whatever the umask is.
    fn open_up(&self, name: &str, directory: &OwnedFd, permissions: &Permissions) -> Result<PathBuf, RootError> {
        let Permissions { mode, uid, gid } = *permissions;
        let stat = rustix::fs::fstat(directory).map_err(|error| failed("cannot look at", name, error))?;
        let owner = self.owner().map_err(|error| failed("cannot find the owner of", name, error))?;
        // An earlier attempt may have given it away already.
        if stat.st_uid != owner && Some(stat.st_uid) != uid {
            return Err(self.in_the_way(name, "belongs to somebody else"));
        }
        if uid.is_some() || gid.is_some() {
            rustix::fs::fchown(directory, uid.map(Uid::from_raw), gid.map(Gid::from_raw)).map_err(|error| {
                let name = name.to_owned();
                if error == Errno::PERM {
                    RootError::NotAllowed { name }
                } else {
                    failed("cannot change the owner of", &name, error)
                }
            })?;
        }
        // After the owner: changing that takes the set-group-id bit away.
        rustix::fs::fchmod(directory, Mode::from_raw_mode(mode))
            .map_err(|error| failed("cannot change the mode of", name, error))?;
        Ok(self.path.join(name))
    }

    /// Makes and removes a directory, once, to see who owns it.
    fn owner(&self) -> Result<u32, Errno> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        // In containers every process has the same id, and others may share the root directory.
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!(".probe-{}-{}", std::process::id(), time.as_nanos());
        rustix::fs::mkdirat(&self.handle, &name, Mode::RWXU)?;
        let stat = rustix::fs::statat(&self.handle, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::unlinkat(&self.handle, &name, AtFlags::REMOVEDIR)?;
        Ok(*self.owner.get_or_init(|| stat.st_uid))
    }

    fn in_the_way(&self, name: &str, what: &'static str) -> RootError {
        RootError::InTheWay { path: self.path.join(name), what }
    }
}

/// The API server's rule for names of PersistentVolumes (a DNS subdomain), so that no name is a path.
fn check_name(name: &str) -> Result<(), RootError> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| letter(*first) && letter(*last));
        ends && bytes.iter().all(|byte| letter(*byte) || *byte == b'-')
    };
    // Room for the prefix below the 255 bytes that file systems allow.
    if name.len() + LEAVING.len() > 255 || !name.split('.').all(label) {
        return Err(RootError::InvalidName(name.chars().take(64).collect()));
    }
    Ok(())
}

fn failed(doing: &'static str, name: &str, error: Errno) -> RootError {
    RootError::Io { doing, name: name.to_owned(), source: error.into() }
}
