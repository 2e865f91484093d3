//! The directories above a volume. Who can change one of them can put a link in the place of the volume, and the kubelet
//! would follow it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::{DirectoryError, failed};
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{State, make_down, open_down, remove_empty};
use crate::{descend, files};

/// They can be passed, and not listed.
const MODE: Mode = Mode::from_raw_mode(0o711);

/// What has to be known of a directory above a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nobody but this program writes there, as its owner and mode say.
    Rights,
    /// This program has made it, too. Its owner and mode do not say that: a tenant may give them to a volume of their own.
    Made,
}

impl Root {
    /// Refuses a path that leads through directories of others. The marks have the same directories above them, and nobody
    /// else writes there: that is the proof of what was made here. So this comes before the path is marked.
    pub(crate) fn check_above(&self, state: &State, path: &VolumePath, proof: Proof) -> Result<(), DirectoryError> {
        let (above, _) = path.split();
        for count in 1..=above.len() {
            let names = &above[..count];
            let Some(directory) = self.look(state, path, names)? else { return Ok(()) };
            let is_known = match open_down(state.volumes.as_fd(), names) {
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                // A volume.
                Err(_) => return Err(state.nested(path)),
            };
            self.check_rights(state, &directory, names)?;
            // The last volume in it may have gone between the two looks.
            if proof == Proof::Made && !is_known && self.look(state, path, names)?.is_some() {
                return Err(self.exposed(names, "was not made by this provisioner".to_owned()));
            }
        }
        Ok(())
    }

    /// Opens the directory above a volume, and makes those that are not there. `None` if one of them went meanwhile.
    pub(crate) fn make_above(&self, state: &State, path: &VolumePath) -> Result<Option<OwnedFd>, DirectoryError> {
        let doing = "cannot make the directory";
        let (above, _) = path.split();
        let mut directory = descend::open(state.root.as_fd(), ".").map_err(|error| failed(doing, "", error))?;
        for (at, name) in above.iter().enumerate() {
            directory = match files::make_directory(directory.as_fd(), name, MODE) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(self.not_a_directory(path, error, doing)),
            };
            self.check_rights(state, &directory, &above[..=at])?;
        }
        Ok(Some(directory))
    }

    /// Removes the directories above a volume that are empty, and their places among the marks. One that stays keeps its
    /// place, by which it is known.
    pub(crate) fn remove_above(&self, state: &State, path: &VolumePath) {
        let (above, _) = path.split();
        let left = remove_empty(state.root.as_fd(), &above, 0);
        remove_empty(state.volumes.as_fd(), &above, left);
    }

    /// Notes that volumes may be made in a directory which a person vouches for.
    ///
    /// # Errors
    /// When it is not there, others can write in it, or it is a volume.
    pub fn adopt_above(&self, path: &VolumePath) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        let names: Vec<&str> = path.names().collect();
        self.check_above(&state, path, Proof::Rights)?;
        match self.look(&state, path, &names)? {
            Some(directory) => self.check_rights(&state, &directory, &names)?,
            None => return Err(DirectoryError::NotThere { what: "directory", name: path.to_string() }),
        }
        make_down(state.volumes.as_fd(), &names, Mode::RWXU).map(drop).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => state.nested(path),
            error => failed("cannot note", path.as_str(), error),
        })
    }

    fn look(&self, state: &State, path: &VolumePath, names: &[&str]) -> Result<Option<OwnedFd>, DirectoryError> {
        match open_down(state.root.as_fd(), names) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.not_a_directory(path, error, "cannot look at")),
        }
    }

    fn check_rights(&self, state: &State, directory: &OwnedFd, names: &[&str]) -> Result<(), DirectoryError> {
        let error = |error| failed("cannot look at", names.join("/"), error);
        let (stat, us) = (rustix::fs::fstat(directory).map_err(error)?, self.owner(state).map_err(error)?);
        match stat.st_mode & 0o022 {
            _ if stat.st_uid != us && stat.st_uid != 0 => {
                Err(self.exposed(names, format!("belongs to the user {}", stat.st_uid)))
            }
            0 => Ok(()),
            _ => Err(self.exposed(names, format!("has the mode {:04o}", stat.st_mode & 0o7777))),
        }
    }

    fn exposed(&self, names: &[&str], what: String) -> DirectoryError {
        DirectoryError::Exposed { directory: names.join("/"), what }
    }
}
