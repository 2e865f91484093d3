//! The directories above a volume. A user who can change one of them can replace the volume with a symlink, and the
//! kubelet would follow it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::{DirectoryError, failed};
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{State, make_down, open_down, remove_empty};
use crate::{files, open_directory};

/// Traversable but not listable.
const MODE: Mode = Mode::from_raw_mode(0o711);
/// Mode of the mark directory that corresponds to a directory provided by an administrator. Such a directory is not
/// removed with its last volume.
const ADOPTED: Mode = Mode::RWXU.union(Mode::SVTX);

/// The required proof that a directory above a volume is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// According to its owner and mode, only this provisioner can write to the directory.
    Permissions,
    /// In addition, this provisioner created the directory. Owner and mode do not prove that: a tenant can set both on
    /// their own volume.
    Created,
}

impl Root {
    /// Refuses a path that leads through directories not created by this provisioner. The tree of marks mirrors these
    /// directories, and only this provisioner writes to it, so a mirrored directory proves that this provisioner
    /// created the original. Marking the path creates the mirrored directories, so this check must come first.
    pub(crate) fn check_parents(&self, state: &State, path: &VolumePath, proof: Proof) -> Result<(), DirectoryError> {
        let (above, _) = path.split();
        for count in 1..=above.len() {
            let names = &above[..count];
            let Some(directory) = self.open_if_exists(state, path, names)? else { return Ok(()) };
            let is_known = match open_down(state.volumes.as_fd(), names) {
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                // The parent is a volume itself.
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(state.nested(path)),
                Err(error) => return Err(failed("cannot read the mark of", path.as_str(), error)),
            };
            self.check_permissions(state, &directory, names)?;
            // The last volume in it may have been removed between the two lookups.
            if proof == Proof::Created && !is_known && self.open_if_exists(state, path, names)?.is_some() {
                return Err(self.exposed(names, "was not created by this provisioner".to_owned()));
            }
        }
        Ok(())
    }

    /// Opens the directory above a volume, creating missing ones. Returns `None` if one of them was removed in the
    /// meantime.
    pub(crate) fn create_parents(&self, state: &State, path: &VolumePath) -> Result<Option<OwnedFd>, DirectoryError> {
        let doing = "cannot create the directory";
        let (above, _) = path.split();
        let mut directory = open_directory::open(state.root.as_fd(), ".").map_err(|error| failed(doing, "", error))?;
        for (at, name) in above.iter().enumerate() {
            directory = match files::make_directory(directory.as_fd(), name, MODE) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(self.not_a_directory(path, error, doing)),
            };
            self.check_permissions(state, &directory, &above[..=at])?;
        }
        Ok(Some(directory))
    }

    /// Records that volumes may be created in a directory that an administrator vouches for.
    ///
    /// # Errors
    /// Fails if the directory does not exist, if others can write to it, or if it is a volume.
    pub fn adopt_above(&self, path: &VolumePath) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        let names: Vec<&str> = path.names().collect();
        self.check_parents(&state, path, Proof::Permissions)?;
        match self.open_if_exists(&state, path, &names)? {
            Some(directory) => self.check_permissions(&state, &directory, &names)?,
            None => return Err(DirectoryError::NotThere { what: "directory", name: path.to_string() }),
        }
        make_down(state.volumes.as_fd(), &names, Mode::RWXU)
            .and_then(|marks| rustix::fs::fchmod(marks, ADOPTED))
            .map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => state.nested(path),
                error => failed("cannot note", path.as_str(), error),
            })
    }

    /// Opens a directory of the root, if it exists. Messages name the path.
    pub(crate) fn open_if_exists(
        &self,
        state: &State,
        path: &VolumePath,
        names: &[&str],
    ) -> Result<Option<OwnedFd>, DirectoryError> {
        match open_down(state.root.as_fd(), names) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.not_a_directory(path, error, "cannot inspect")),
        }
    }

    fn check_permissions(&self, state: &State, directory: &OwnedFd, names: &[&str]) -> Result<(), DirectoryError> {
        let error = |error| failed("cannot inspect", names.join("/"), error);
        let (stat, us) = (rustix::fs::fstat(directory).map_err(error)?, self.owner(state).map_err(error)?);
        match stat.st_mode & 0o022 {
            _ if stat.st_uid != us && stat.st_uid != 0 => {
                Err(self.exposed(names, format!("belongs to the user {} (first run chown {us} on it)", stat.st_uid)))
            }
            0 => Ok(()),
            _ => {
                let mode = stat.st_mode & 0o7777;
                Err(self.exposed(names, format!("has the mode {mode:04o} (first run chmod go-w on it)")))
            }
        }
    }

    fn exposed(&self, names: &[&str], what: String) -> DirectoryError {
        DirectoryError::Exposed { directory: names.join("/"), what }
    }
}

impl State {
    /// Removes the empty directories above a volume and their counterparts among the marks, except those that an
    /// administrator provided. A directory that remains keeps its counterpart, which proves that volumes may use it.
    pub(crate) fn remove_empty_parents(&self, path: &VolumePath) {
        let (above, _) = path.split();
        let adopted = (1..=above.len()).rfind(|count| self.is_adopted(&above[..*count])).unwrap_or_default();
        let left = remove_empty(self.root.as_fd(), &above, adopted);
        remove_empty(self.volumes.as_fd(), &above, left);
    }

    /// Returns true if an administrator provided the directory, and it still exists.
    fn is_adopted(&self, names: &[&str]) -> bool {
        let mode = open_down(self.volumes.as_fd(), names).and_then(rustix::fs::fstat).map(|stat| stat.st_mode);
        mode.is_ok_and(|mode| Mode::from_raw_mode(mode).contains(ADOPTED))
            && open_down(self.root.as_fd(), names).is_ok()
    }
}
