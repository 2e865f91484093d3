//! The root directory and the verification of its identity.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DirectoryError, failed};
use crate::path::VolumePath;
use crate::state::{MARKER, NOTES, OWN, State, TMP, read_json, to_json};
use crate::sync::Rounds;
use crate::{files, open_directory};

/// A root directory for volumes.
///
/// Each operation opens the root again and checks its marker. If the expected file system is not mounted there, the
/// operation fails, and creates and removes nothing.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// The path that the administrator gave, which may contain symlinks. Volumes of a root that was moved behind a
    /// symlink refer to this path.
    configured_path: PathBuf,
    /// The id in the marker, once it is known.
    id: OnceLock<String>,
    /// The owner of files that this process creates here. It differs from its own user id if a network file system maps
    /// ids.
    owner: OnceLock<u32>,
    pub(crate) rounds: Rounds,
}

/// The content of the marker.
#[derive(Serialize, Deserialize)]
struct Marker {
    id: String,
}

impl Root {
    /// Opens a directory of this machine as a root, without creating anything in it.
    ///
    /// # Errors
    /// Fails if the directory cannot be used, or if other users can write to it.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let root = Self::open_shared(path)?;
        root.check_safety(&root.handle()?)?;
        Ok(root)
    }

    /// Opens a directory that a server shares as a root. Its owner and mode are not checked: the server decides who may
    /// write to it and may map users, and pods mount only their own directories.
    ///
    /// # Errors
    /// Fails if the directory cannot be used.
    pub fn open_shared(path: &Path) -> Result<Self, DirectoryError> {
        let unusable = |source| DirectoryError::Unusable { path: path.to_owned(), source };
        let configured_path = path.to_owned();
        let path = path.canonicalize().map_err(unusable)?;
        if !path.is_dir() {
            return Err(DirectoryError::NotADirectory(path));
        }
        if path.to_str().is_none() {
            return Err(DirectoryError::NotUnicode(path));
        }
        if path.parent().is_none() {
            return Err(DirectoryError::Everything(path));
        }
        check_writable(&path)?;
        let root =
            Self { path, configured_path, id: OnceLock::new(), owner: OnceLock::new(), rounds: Rounds::default() };
        root.load_id(&root.handle()?)?;
        Ok(root)
    }

    /// Returns the root's path without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if an absolute path is below the root, with or without resolving the symlinks in the root's path.
    pub fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.path) || path.starts_with(&self.configured_path)
    }

    /// Returns the part of an absolute path that is below the root, with or without resolving the symlinks in the
    /// root's path.
    ///
    /// # Errors
    /// Fails if it is not below the root, or not a valid volume path.
    pub fn volume_path(&self, path: &str) -> Result<VolumePath, DirectoryError> {
        VolumePath::below(&self.path, path)
            .or_else(|error| VolumePath::below(&self.configured_path, path).map_err(|_| error))
    }

    /// Returns the id in the marker; `None` while there is no marker.
    pub fn id(&self) -> Option<&str> {
        self.id.get().map(String::as_str)
    }

    /// Returns true if the root has a marker. Without one, it is new, or the wrong file system is mounted there.
    ///
    /// # Errors
    /// Fails if the marker cannot be read.
    pub fn has_marker(&self) -> Result<bool, DirectoryError> {
        if self.id.get().is_none() {
            self.load_id(&self.handle()?)?;
        }
        Ok(self.id.get().is_some())
    }

    /// Marks a new root. A root that already has a marker keeps it.
    ///
    /// # Errors
    /// Fails if the marker cannot be written.
    pub fn put_marker(&self) -> Result<(), DirectoryError> {
        if self.has_marker()? {
            return Ok(());
        }
        let error = |error| match error {
            Errno::ROFS | Errno::ACCESS | Errno::PERM => {
                DirectoryError::NotWritable { path: self.path.clone(), source: error.into() }
            }
            error => failed("cannot write the marker of the root directory", self.path.to_string_lossy(), error),
        };
        let state = State::make(self.handle()?).map_err(error)?;
        let marker = Marker { id: random_id().map_err(error)? };
        match state.create_file(state.own.as_fd(), MARKER, &to_json(&marker)) {
            // Another process was faster; use its marker.
            Ok(()) | Err(Errno::EXIST) => self.load_id(&state.root),
            Err(failure) => Err(error(failure)),
        }
    }

    /// Checks that volumes can be created and removed now.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn check(&self) -> Result<(), DirectoryError> {
        self.enter()?;
        check_writable(&self.path)
    }

    /// Same as [`check`](Self::check), for a root that may have no marker yet.
    pub(crate) fn check_before_begin(&self) -> Result<(), DirectoryError> {
        if self.has_marker()? { self.check() } else { Ok(()) }
    }

    /// Checks that the root still has the expected marker.
    pub(crate) fn check_marker(&self) -> Result<(), DirectoryError> {
        self.open_marked().map(drop)
    }

    /// Returns a note about the root with this name, such as the node that it was on.
    ///
    /// # Errors
    /// Fails if the note cannot be read.
    pub fn note(&self, name: &'static str) -> Result<Option<String>, DirectoryError> {
        read_json(self.enter()?.directory(NOTES)?.as_fd(), name, format_args!("{NOTES}/{name}"))
    }

    /// Stores a note about the root.
    ///
    /// # Errors
    /// Fails if the note cannot be written.
    pub fn put_note(&self, name: &'static str, text: &str) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let replaced = files::replace(state.tmp.as_fd(), state.directory(NOTES)?.as_fd(), name, &to_json(&text));
        replaced.map_err(|error| failed("cannot note", name, error))
    }

    /// Lists the problems of a usable root that an administrator should fix.
    pub fn advice(&self) -> Vec<String> {
        let path = self.path.display();
        let kind = rustix::fs::statfs(&self.path).ok().and_then(|stat| volatile(u64::try_from(stat.f_type).ok()?));
        let volatile = kind.map(|(kind, loses)| {
            format!("the root directory {path} is on {kind}, so {loses}; mount a directory of the node's disk there")
        });
        let mode = rustix::fs::stat(&self.path).ok().map(|stat| stat.st_mode & 0o7777).filter(|mode| mode & 0o055 != 0);
        let open = mode.map(|mode| {
            format!(
                "the root directory {path} has the mode {mode:04o}, so other users of this host can search it for \
                 volumes that are open to all; pods need no permission for it: chmod 0700 {path}"
            )
        });
        volatile.into_iter().chain(open).collect()
    }

    /// Opens the root for one operation, if it still has the expected marker.
    pub(crate) fn enter(&self) -> Result<State, DirectoryError> {
        let (root, own) = self.open_marked()?;
        State::open(root, own).map_err(|error| failed("cannot open", format!("{}/{OWN}", self.path.display()), error))
    }

    /// Opens the root and the provisioner's own directory in it, if the marker is still the expected one.
    fn open_marked(&self) -> Result<(OwnedFd, OwnedFd), DirectoryError> {
        let unmarked = || DirectoryError::Unmarked(self.path.clone());
        let (root, expected) = (self.handle()?, self.id.get().ok_or_else(unmarked)?);
        let own = open_own(&root)?.ok_or_else(unmarked)?;
        match read_marker(&own)?.ok_or_else(unmarked)? {
            found if found == *expected => Ok((root, own)),
            found => Err(DirectoryError::OtherRoot { path: self.path.clone(), expected: expected.clone(), found }),
        }
    }

    /// Returns the owner of files that this process creates. The first call creates and removes a directory to find it.
    pub(crate) fn owner(&self, state: &State) -> Result<u32, Errno> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        let tmp = open_directory::open(state.own.as_fd(), TMP)?;
        let name = files::temporary_name();
        rustix::fs::mkdirat(&tmp, &*name, Mode::RWXU)?;
        let stat = rustix::fs::statat(&tmp, &*name, AtFlags::SYMLINK_NOFOLLOW);
        rustix::fs::unlinkat(&tmp, &*name, AtFlags::REMOVEDIR)?;
        let owner = stat?.st_uid;
        Ok(*self.owner.get_or_init(|| owner))
    }

    fn handle(&self) -> Result<OwnedFd, DirectoryError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.path, flags, Mode::empty())
            .map_err(|error| DirectoryError::Unusable { path: self.path.clone(), source: error.into() })
    }

    fn load_id(&self, handle: &OwnedFd) -> Result<(), DirectoryError> {
        if let Some(own) = open_own(handle)?
            && let Some(found) = read_marker(&own)?
        {
            let _ = self.id.set(found);
        }
        Ok(())
    }

    /// Refuses an unsafe root: a user who may write to it can replace a volume's directory with their own.
    fn check_safety(&self, handle: &OwnedFd) -> Result<(), DirectoryError> {
        let path = self.path.clone();
        let stat = rustix::fs::fstat(handle)
            .map_err(|error| DirectoryError::Unusable { path: path.clone(), source: error.into() })?;
        let us = rustix::process::geteuid().as_raw();
        if stat.st_uid != us && stat.st_uid != 0 {
            let (what, remedy) = (format!("belongs to the user {}", stat.st_uid), format!("chown {us} it"));
            return Err(DirectoryError::Unsafe { path, what, remedy });
        }
        if stat.st_mode & 0o022 != 0 {
            let what = format!("has the mode {:04o}", stat.st_mode & 0o7777);
            return Err(DirectoryError::Unsafe { path, what, remedy: "chmod 0700 it".to_owned() });
        }
        Ok(())
    }
}

/// Fails if the process may not write to a directory, or if its file system is read-only.
fn check_writable(path: &Path) -> Result<(), DirectoryError> {
    rustix::fs::accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| DirectoryError::NotWritable { path: path.to_owned(), source: error.into() })
}

/// Returns the kind of a file system that does not persist data, and the consequences.
fn volatile(magic: u64) -> Option<(&'static str, &'static str)> {
    const MEMORY: &str = "a restart of the node loses all volumes, and they take its memory";
    match magic {
        0x794c_7630 => {
            Some(("overlayfs", "volumes may be in the container's own file system and be lost with the container"))
        }
        0x0102_1994 => Some(("tmpfs", MEMORY)),
        0x8584_58f6 => Some(("ramfs", MEMORY)),
        _ => None,
    }
}

fn open_own(root: &OwnedFd) -> Result<Option<OwnedFd>, DirectoryError> {
    match open_directory::open(root.as_fd(), OWN) {
        Ok(own) => Ok(Some(own)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed("cannot open", OWN, error)),
    }
}

fn read_marker(own: &OwnedFd) -> Result<Option<String>, DirectoryError> {
    Ok(read_json::<Marker>(own.as_fd(), MARKER, MARKER)?.map(|marker| marker.id))
}

fn random_id() -> Result<String, Errno> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
