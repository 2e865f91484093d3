//! The root directory as a handle: everything below it is opened relative to that handle, so that neither
//! `..` nor a symbolic link leads out of it.

mod remove;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Where a directory waits for its removal. Renaming is atomic, so a volume is there as a whole or not at all.
const LEAVING: &str = ".deleting-";

/// What is wrong with the root directory or with a volume's directory.
#[derive(Debug, Error)]
pub(crate) enum RootError {
    #[error("the root directory {path} cannot be used: {source}; create it, or name another one with --root")]
    Unusable { path: PathBuf, source: io::Error },
    #[error("the root directory {0} is not a directory; name one with --root")]
    NotADirectory(PathBuf),
    #[error("the path of the root directory {0} is not valid UTF-8, which the Kubernetes API needs")]
    NotUnicode(PathBuf),
    #[error("the root directory {path} is not writable: {source}; make it writable, or name another one with --root")]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{0:?} is no name of a PersistentVolume")]
    InvalidName(String),
    #[error("{0:?} exists below the root directory and is not a directory; move it away")]
    InTheWay(String),
    #[error("{name:?} holds a mounted file system; it is removed when that is unmounted")]
    Busy { name: String },
    #[error("the removal of {0:?} was interrupted and goes on later")]
    Interrupted(String),
    #[error("{doing} {name:?}: {source}")]
    Io { doing: &'static str, name: String, source: io::Error },
}

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    handle: OwnedFd,
    path: PathBuf,
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, &path, flags, Mode::empty()).map_err(|error| unusable(error.into()))?;
        let root = Self { handle, path };
        root.probe().map_err(|error| RootError::NotWritable { path: root.path.clone(), source: error.into() })?;
        Ok(root)
    }

    /// Makes the directory of a volume, or finds it. The path is for the PersistentVolume only.
    pub(crate) fn create(&self, name: &str) -> Result<PathBuf, RootError> {
        check_name(name)?;
        match rustix::fs::mkdirat(&self.handle, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("cannot make the directory", name, error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(RootError::InTheWay(name.to_owned())),
            Err(error) => return Err(failed("cannot open the directory", name, error)),
        };
        // Whatever the umask is: pods of any user write here.
        let everybody = Mode::RWXU | Mode::RWXG | Mode::RWXO;
        rustix::fs::fchmod(&directory, everybody)
            .map_err(|error| failed("cannot open up the directory", name, error))?;
        Ok(self.path.join(name))
    }

    /// Removes the directory of a volume with all that is in it. Gone already is success.
    ///
    /// Stops early when `cancelled` is set; the next call goes on.
    pub(crate) fn remove(&self, name: &str, cancelled: &AtomicBool) -> Result<(), RootError> {
        check_name(name)?;
        let leaving = format!("{LEAVING}{name}");
        // What an earlier removal left makes room first: the rename would not replace it.
        remove::tree(&self.handle, &leaving, cancelled)?;
        match rustix::fs::renameat(&self.handle, name, &self.handle, &leaving) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => return Err(RootError::Busy { name: name.to_owned() }),
            Err(error) => return Err(failed("cannot move the directory aside", name, error)),
        }
        remove::tree(&self.handle, &leaving, cancelled)
    }

    /// Removes what earlier removals left. Their volumes may be gone, so nobody would ask again.
    pub(crate) fn finish_removals(&self, cancelled: &AtomicBool) -> Result<(), RootError> {
        let entries =
            Dir::read_from(&self.handle).map_err(|error| failed("cannot list", "the root directory", error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed("cannot list", "the root directory", error))?;
            let name = String::from_utf8_lossy(entry.file_name().to_bytes()).into_owned();
            if name.strip_prefix(LEAVING).is_some_and(|name| check_name(name).is_ok()) {
                remove::tree(&self.handle, &name, cancelled)?;
            }
        }
        Ok(())
    }

    fn probe(&self) -> Result<(), Errno> {
        let name = format!(".probe-{}", std::process::id());
        match rustix::fs::mkdirat(&self.handle, &name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => rustix::fs::unlinkat(&self.handle, &name, AtFlags::REMOVEDIR),
            Err(error) => Err(error),
        }
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
        return Err(RootError::InvalidName(OsStr::new(name).display().to_string().chars().take(64).collect()));
    }
    Ok(())
}

fn failed(doing: &'static str, name: &str, error: Errno) -> RootError {
    RootError::Io { doing, name: name.to_owned(), source: error.into() }
}
