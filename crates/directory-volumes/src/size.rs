//! The size of a volume, where the file system enforces it.

use std::os::fd::{AsFd, OwnedFd};

use project_quota::{ProjectId, ProjectQuota};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::error::{DirectoryError, failed};
use crate::files;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{PROJECTS, State, read_json, to_json};

/// A volume has so many candidates for its project id. All are asked for, because one that another volume had may be free by
/// the time that this volume is looked for.
const CANDIDATES: u32 = 16;
/// Smaller numbers are what people use.
const FIRST: u32 = 1 << 24;
const COUNT: u32 = (1 << 31) - FIRST;

impl Root {
    /// Why sizes cannot be enforced here; `None` where they can.
    ///
    /// # Errors
    /// When the root cannot be read.
    pub fn why_unlimited(&self) -> Result<Option<String>, DirectoryError> {
        Ok(self.why_unlimited_within(&self.enter()?))
    }

    pub(crate) fn why_unlimited_within(&self, state: &State) -> Option<String> {
        match ProjectQuota::of(&state.root) {
            Ok(Some(_)) => None,
            Ok(None) => Some("the file system has no project quotas".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Changes the size of a volume; `false` where its size is not enforced.
    ///
    /// # Errors
    /// When the directory is not that volume's, or the file system refuses.
    pub fn resize(&self, path: &VolumePath, owner: &Owner, bytes: u64) -> Result<bool, DirectoryError> {
        let state = self.enter()?;
        let Some(mark) = self.marked(&state, path, owner)? else {
            return Err(DirectoryError::NotThere { what: "volume", name: path.to_string() });
        };
        let Some(id) = self.project(&state, &mark.owner)? else {
            return Ok(false);
        };
        let quota = self.quota(&state)?;
        quota.set_limit(id, bytes).map_err(|error| unlimited(path.as_str(), error))?;
        Ok(true)
    }

    /// Limits a directory that is empty still. The limit is there before anything can be written.
    pub(crate) fn limit(
        &self,
        state: &State,
        path: &VolumePath,
        owner: &Owner,
        directory: &OwnedFd,
        bytes: u64,
    ) -> Result<(), DirectoryError> {
        let error = |error| unlimited(path.as_str(), error);
        let quota = self.quota(state)?;
        let id = match self.project(state, owner)? {
            Some(id) => id,
            None => self.reserve_project(state, &quota, owner)?,
        };
        quota.set_limit(id, bytes).map_err(error)?;
        quota.assign(directory, id).map_err(error)
    }

    /// Gives the project of a volume back that is no more.
    pub(crate) fn release_project(&self, state: &State, owner: &Owner) -> Result<(), DirectoryError> {
        let Some(id) = self.project(state, owner)? else {
            return Ok(());
        };
        // Without quotas there is no limit either.
        if let Ok(Some(quota)) = ProjectQuota::of(&state.root) {
            quota.remove_limit(id).map_err(|error| unlimited(&owner.volume, error))?;
        }
        let projects = state.directory(PROJECTS)?;
        files::remove(projects.as_fd(), &*id.to_string(), AtFlags::empty())
            .map(drop)
            .map_err(|error| failed("cannot give back the project of", &*owner.volume, error))
    }

    /// The project of a volume becomes that of the volume in its place.
    pub(crate) fn rename_project(&self, state: &State, from: &Owner, to: &Owner) -> Result<(), DirectoryError> {
        let Some(id) = self.project(state, from)? else { return Ok(()) };
        let projects = state.directory(PROJECTS)?;
        files::replace(state.tmp.as_fd(), projects.as_fd(), &*id.to_string(), &to_json(to))
            .map_err(|error| failed("cannot note the project of", &*to.volume, error))
    }

    /// The project of a volume, if its size is enforced.
    fn project(&self, state: &State, owner: &Owner) -> Result<Option<ProjectId>, DirectoryError> {
        let projects = state.directory(PROJECTS)?;
        for id in self.candidates(owner) {
            let holder = read_json::<Owner>(projects.as_fd(), &id.to_string())?;
            if holder.is_some_and(|holder| holder.is(owner)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// A project for a volume alone: the file that is made for it can be made only once, and nothing else has used it.
    fn reserve_project(&self, state: &State, quota: &ProjectQuota, owner: &Owner) -> Result<ProjectId, DirectoryError> {
        let projects = state.directory(PROJECTS)?;
        for id in self.candidates(owner) {
            if !quota.is_free(id).map_err(|error| unlimited(&owner.volume, error))? {
                continue;
            }
            match state.create_file(projects.as_fd(), &id.to_string(), &to_json(owner)) {
                Ok(()) => return Ok(id),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("cannot reserve a project for", &*owner.volume, error)),
            }
        }
        Err(failed("no project id is free for", &*owner.volume, Errno::BUSY))
    }

    fn candidates(&self, owner: &Owner) -> impl Iterator<Item = ProjectId> + use<> {
        let seed = fnv1a(self.id().unwrap_or_default(), fnv1a(&owner.volume, 0xcbf2_9ce4_8422_2325));
        (0..CANDIDATES).filter_map(move |number| {
            let hash = fnv1a(&number.to_string(), seed);
            ProjectId::new(FIRST + (hash % u64::from(COUNT)) as u32)
        })
    }

    fn quota(&self, state: &State) -> Result<ProjectQuota, DirectoryError> {
        let path = self.path().to_string_lossy();
        match ProjectQuota::of(&state.root) {
            Ok(Some(quota)) => Ok(quota),
            Ok(None) => {
                Err(unlimited(&path, "the file system has no project quotas; mount it with the option prjquota"))
            }
            Err(error) => Err(unlimited(&path, error)),
        }
    }
}

fn unlimited(name: &str, reason: impl ToString) -> DirectoryError {
    DirectoryError::Unlimited { name: name.to_owned(), reason: reason.to_string() }
}

fn fnv1a(text: &str, start: u64) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::owner;

    #[test]
    fn candidates_are_the_same_each_time_and_differ_by_volume() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.put_marker().unwrap();
        let of = |volume: &str| root.candidates(&owner(volume)).map(ProjectId::get).collect::<Vec<_>>();
        let (one, other) = (of("pvc-1"), of("pvc-2"));
        assert_eq!((one.len(), &one), (16, &of("pvc-1")));
        assert!(one.iter().all(|id| *id >= FIRST && !other.contains(id)));
    }
}
