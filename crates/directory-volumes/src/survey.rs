//! Lists the contents of a root to find directories without a volume.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::entry::Discarded;
use crate::error::{DirectoryError, failed};
use crate::files::{Durability, names};
use crate::mark::{Mark, Owner};
use crate::parents::Proof;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{DELETING, State, open_down};

/// The contents of a root.
#[derive(Debug, Default)]
pub struct Survey {
    /// Directories with a mark, and marks whose directory is missing.
    pub marked: Vec<FoundMark>,
    /// Files and directories without a mark.
    pub unmarked: Vec<String>,
    /// Marks that cannot be read.
    pub damaged: Vec<DirectoryError>,
    /// Volumes whose removal has begun.
    pub deleting: Vec<String>,
    /// Deleted volumes whose data is kept.
    pub trash: Vec<Discarded>,
}

/// The volumes of this provisioner by name, with their owners, and whether each has the reclaim policy Retain.
pub(crate) type Volumes = BTreeMap<String, (Owner, bool)>;

/// A mark that was found.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundMark {
    /// Its path.
    pub path: VolumePath,
    /// Its content.
    pub mark: Mark,
    /// True if its directory exists.
    pub has_directory: bool,
}

impl Root {
    /// Lists the contents of the root without changing anything.
    ///
    /// # Errors
    /// Fails if a directory cannot be read. The result includes the errors of damaged marks.
    pub fn survey(&self) -> Result<Survey, DirectoryError> {
        let state = self.enter()?;
        let mut survey = Survey { deleting: state.list(DELETING)?, ..Survey::default() };
        for discarded in self.trash()? {
            match discarded {
                Ok(discarded) => survey.trash.push(discarded),
                Err(error) => survey.damaged.push(error),
            }
        }
        survey.scan(&state, &mut Vec::new())?;
        Ok(survey)
    }

    /// Marks an existing directory that has no mark.
    ///
    /// # Errors
    /// Fails if the directory does not exist, or if it belongs to another volume.
    pub fn adopt(&self, path: &VolumePath, owner: &Owner, retain: bool) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        let names: Vec<&str> = path.names().collect();
        if self.open_if_exists(&state, path, &names)?.is_none() {
            return Err(DirectoryError::NotThere { what: "directory", name: path.to_string() });
        }
        self.check_parents(&state, path, Proof::Permissions)?;
        self.check_owner(path, owner, &state.reserve(path, owner, retain, Durability::Immediate)?.0)
    }

    /// Transfers a directory to the volume that replaced the one in its mark, as after a restore of the cluster.
    ///
    /// # Errors
    /// Fails if the mark has changed.
    pub fn transfer(&self, path: &VolumePath, from: &Owner, to: &Owner, retain: bool) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        match state.mark(path)? {
            Some(mark) if mark.owner == *from => {
                // A crash between the two writes does no harm: a retry finds the project transferred, and updates the
                // mark.
                self.rename_project(&state, from, to)?;
                state.update(path, &Mark { owner: to.clone(), volume_uid: None, retain, kept: None, ..mark })
            }
            Some(mark) => self
                .check_owner(path, from, &mark)
                .and(Err(DirectoryError::Busy { name: path.to_string(), why: "its mark was changed in the meantime" })),
            None => Err(DirectoryError::NotThere { what: "mark", name: path.to_string() }),
        }
    }

    /// Records in the marks the UIDs of their volumes, and which volumes have the reclaim policy Retain.
    pub(crate) fn note_volumes(&self, volumes: &Volumes) -> Result<(), DirectoryError> {
        for found in self.survey()?.marked {
            let Some((owner, retain)) = volumes.get(&found.mark.owner.volume) else { continue };
            if found.mark.updated(owner, *retain).is_some() {
                self.note_volume(&found.path, owner, *retain)?;
            }
        }
        Ok(())
    }

    /// Same as [`note_volumes`](Self::note_volumes), for one volume.
    pub(crate) fn note_volume(&self, path: &VolumePath, owner: &Owner, retain: bool) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        match state.mark(path)?.and_then(|mark| mark.updated(owner, retain)) {
            Some(mark) => state.update(path, &mark),
            None => Ok(()),
        }
    }

    /// Records the uid of the volume in its mark, once it is known.
    ///
    /// # Errors
    /// Fails if the directory has another mark, or none.
    pub fn note_uid(&self, path: &VolumePath, owner: &Owner) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        match self.own_mark(&state, path, owner)? {
            // Data that was kept after a deletion belongs to a volume again.
            Some(mark) => state.update(path, &Mark { owner: owner.clone(), kept: None, ..mark }),
            None => Err(DirectoryError::NotThere { what: "mark", name: path.to_string() }),
        }
    }

    /// Removes the mark of a volume whose directory no longer exists, or should no longer belong to a volume.
    ///
    /// # Errors
    /// Fails if the mark belongs to another volume.
    pub fn remove_mark(&self, path: &VolumePath, owner: &Owner) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        match state.mark(path)? {
            Some(mark) => self.check_owner(path, owner, &mark)?,
            None => return Ok(()),
        }
        state.unmark(path)?;
        state.remove_empty_parents(path);
        Ok(())
    }

    /// Returns true if the mark at a path names this owner, even if the directory is missing.
    ///
    /// # Errors
    /// Fails if the mark cannot be read.
    pub fn is_marked_for(&self, path: &VolumePath, owner: &Owner) -> Result<bool, DirectoryError> {
        let state = self.enter()?;
        let error = |error| failed("cannot read the mark of", path.as_str(), error);
        match state.mark(path) {
            // A power cut left this mark before its volume was completely created.
            Err(DirectoryError::Damaged { .. }) if state.is_mark_empty(path).map_err(error)? => Ok(false),
            // A directory above volumes has no mark.
            Err(DirectoryError::Taken { .. }) => Ok(false),
            mark => Ok(mark?.is_some_and(|mark| mark.belongs_to(owner))),
        }
    }

    /// Returns the mark at a path, with its owner and creation time.
    ///
    /// # Errors
    /// Fails if the mark cannot be read.
    pub fn mark_of(&self, path: &VolumePath) -> Result<Option<Mark>, DirectoryError> {
        self.enter()?.mark(path)
    }
}

impl Survey {
    /// Reads the marks and directories below a path.
    fn scan(&mut self, state: &State, above: &mut Vec<String>) -> Result<(), DirectoryError> {
        let (marks, data) = (children(&state.volumes, above)?, children(&state.root, above)?);
        for (name, kind) in &marks {
            above.push(name.clone());
            match *kind {
                FileType::Directory => self.scan(state, above)?,
                _ => {
                    let has_directory = find(&data, name) == Some(FileType::Directory);
                    self.mark(state, above, has_directory);
                }
            }
            above.pop();
        }
        let unmarked = data.iter().filter(|(name, _)| !name.starts_with('.') && find(&marks, name).is_none());
        self.unmarked.extend(unmarked.map(|(name, _)| [&above[..], std::slice::from_ref(name)].concat().join("/")));
        Ok(())
    }

    fn mark(&mut self, state: &State, names: &[String], has_directory: bool) {
        let text = names.join("/");
        let read = VolumePath::try_from(text.clone()).and_then(|path| {
            let mark = state.mark(&path)?;
            Ok((path, mark))
        });
        match read {
            Ok((path, Some(mark))) => self.marked.push(FoundMark { path, mark, has_directory }),
            // It was removed in the meantime.
            Ok((_, None)) => {}
            Err(error) => self.damaged.push(error),
        }
    }
}

/// Returns the type of an entry of a sorted list.
fn find(entries: &[(String, FileType)], name: &str) -> Option<FileType> {
    let found = entries.binary_search_by(|(other, _)| other.as_str().cmp(name));
    found.ok().and_then(|at| Some(entries.get(at)?.1))
}

fn children(top: &OwnedFd, above: &[String]) -> Result<Vec<(String, FileType)>, DirectoryError> {
    let above: Vec<&str> = above.iter().map(String::as_str).collect();
    match open_down(top.as_fd(), &above).and_then(|directory| names(&directory)) {
        Ok(names) => Ok(names),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(Vec::new()),
        Err(error) => Err(failed("cannot list", above.join("/"), error)),
    }
}
