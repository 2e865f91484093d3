//! The size of a volume, if the file system enforces it.

use std::os::fd::{AsFd, OwnedFd};

use project_quota::{ProjectId, ProjectQuota};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::entry::DATA;
use crate::error::{DirectoryError, failed};
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{PROJECTS, State, read_json, to_json};
use crate::{files, open_directory};

/// Number of candidates for a volume's project id. A lookup checks all of them, because an id that was taken when this
/// volume was created may be free now.
const CANDIDATES: u32 = 16;
/// The first id. Administrators typically use smaller numbers.
const FIRST: u32 = 1 << 24;
const COUNT: u32 = (1 << 31) - FIRST;

impl Root {
    /// Returns the reason if sizes cannot be enforced in this root.
    ///
    /// # Errors
    /// Fails if the root cannot be read.
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

    /// Changes the size of a volume; returns `false` if its size is not enforced.
    ///
    /// # Errors
    /// Fails if the directory does not belong to that volume, or if the file system refuses the size.
    pub fn resize(&self, path: &VolumePath, owner: &Owner, bytes: u64) -> Result<bool, DirectoryError> {
        let state = self.enter()?;
        let Some(mark) = self.own_mark(&state, path, owner)? else {
            return Err(DirectoryError::NotThere { what: "volume", name: path.to_string() });
        };
        let Some(id) = self.project(&state, &mark.owner)? else {
            return Ok(false);
        };
        let quota = self.quota(&state)?;
        quota.set_limit(id, bytes).map_err(|error| unlimited(path.as_str(), error))?;
        Ok(true)
    }

    /// Limits the size of a directory that is still empty, so that the limit applies to everything written to it.
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

    /// Releases the project of a volume that no longer exists.
    pub(crate) fn release_project(&self, state: &State, owner: &Owner) -> Result<(), DirectoryError> {
        let Some(id) = self.project(state, owner)? else {
            return Ok(());
        };
        // Without quotas there is no limit to remove either.
        if let Ok(Some(quota)) = ProjectQuota::of(&state.root) {
            quota.remove_limit(id).map_err(|error| unlimited(&owner.volume, error))?;
        }
        let projects = state.directory(PROJECTS)?;
        files::remove(projects.as_fd(), &*id.to_string(), AtFlags::empty())
            .map_err(|error| failed("cannot release the project of", &*owner.volume, error))
    }

    /// Transfers the project of a volume to the volume that replaces it.
    pub(crate) fn rename_project(&self, state: &State, from: &Owner, to: &Owner) -> Result<(), DirectoryError> {
        let Some(id) = self.project(state, from)? else { return Ok(()) };
        let projects = state.directory(PROJECTS)?;
        files::replace(state.tmp.as_fd(), projects.as_fd(), &*id.to_string(), &to_json(to))
            .map_err(|error| failed("cannot record the project of", &*to.volume, error))
    }

    /// Assigns the data of an entry to the project that `above` passes on to its entries, so that it can move there.
    pub(crate) fn inherit_project(
        &self,
        path: &VolumePath,
        entry: &OwnedFd,
        above: &OwnedFd,
    ) -> Result<(), DirectoryError> {
        let data =
            open_directory::open(entry.as_fd(), DATA).map_err(|error| failed("cannot open", path.as_str(), error))?;
        ProjectQuota::inherit(data, above).map_err(|error| unlimited(path.as_str(), error))
    }

    /// Assigns the directory of a volume to its own project again, durably, if its size is enforced.
    pub(crate) fn assign_again(&self, state: &State, path: &VolumePath, owner: &Owner) -> Result<(), DirectoryError> {
        let Some(id) = self.project(state, owner)? else { return Ok(()) };
        let Ok(Some(quota)) = ProjectQuota::of(&state.root) else { return Ok(()) };
        let names: Vec<&str> = path.names().collect();
        let Some(directory) = self.open_if_exists(state, path, &names)? else { return Ok(()) };
        quota.assign(&directory, id).map_err(|error| unlimited(path.as_str(), error))?;
        rustix::fs::fsync(&directory).map_err(|error| failed("cannot sync", path.as_str(), error))
    }

    /// Returns the project of a volume, if its size is enforced.
    fn project(&self, state: &State, owner: &Owner) -> Result<Option<ProjectId>, DirectoryError> {
        let projects = state.directory(PROJECTS)?;
        for id in self.candidates(owner) {
            let holder = read_json::<Owner>(projects.as_fd(), &id.to_string(), format_args!("{PROJECTS}/{id}"))?;
            if holder.is_some_and(|holder| holder.is_same_volume(owner)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Reserves an exclusive project for a volume: its file can be created only once, and the id has no usage.
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
    use std::path::{Path, PathBuf};

    use kube_provisioner::FencingToken;
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::tests::{OPEN, at, owner, root};

    /// Creates a volume with a recorded project. The file system needs no quotas.
    fn with_project(dir: &TempDir, root: &Root) -> PathBuf {
        root.create(&at("pvc-1"), &owner("pvc-1"), false, &OPEN, None, &FencingToken::unlimited()).unwrap();
        let projects = dir.path().join(".kube-provisioner/projects");
        let id = root.candidates(&owner("pvc-1")).next().unwrap();
        std::fs::write(projects.join(id.to_string()), to_json(&owner("pvc-1"))).unwrap();
        projects
    }

    fn count(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn an_adopted_volume_keeps_its_project_after_a_restore() {
        let (dir, root) = root();
        let (path, token) = (at("pvc-1"), FencingToken::unlimited());
        let projects = with_project(&dir, &root);
        let with_uid = |uid: &str| Owner { uid: Some(uid.to_owned()), ..owner("pvc-1") };
        root.transfer(&path, &owner("pvc-1"), &with_uid("adopted"), false).unwrap();
        root.move_to_trash(&path, &with_uid("adopted"), None, Value::Null, &token).unwrap();
        let restored = root.restore("pvc-1", owner("pvc-1").cluster.as_deref()).unwrap();
        root.end_restore("pvc-1").unwrap();
        let recreated = Owner { uid: Some("restored".to_owned()), ..restored.mark.owner };
        root.note_uid(&path, &recreated).unwrap();
        assert!(root.project(&root.enter().unwrap(), &recreated).unwrap().is_some());
        root.remove(&path, &with_uid("restored"), &token).unwrap();
        assert_eq!(count(&projects), 0);
    }

    #[test]
    fn releases_the_project_of_a_missing_directory_unless_its_data_is_in_the_trash() {
        let (dir, root) = root();
        let token = FencingToken::unlimited();
        let discard = || root.move_to_trash(&at("pvc-1"), &owner("pvc-1"), None, Value::Null, &token).unwrap();
        let mark = dir.path().join(".kube-provisioner/volumes/pvc-1");
        let projects = with_project(&dir, &root);
        let content = std::fs::read(&mark).unwrap();
        discard();
        // A power cut may bring back the mark.
        std::fs::write(&mark, content).unwrap();
        discard();
        assert_eq!((mark.exists(), count(&projects)), (false, 1));
        root.purge("pvc-1", &token).unwrap();
        assert_eq!(count(&projects), 0);
        with_project(&dir, &root);
        std::fs::remove_dir(dir.path().join("pvc-1")).unwrap();
        discard();
        assert_eq!((mark.exists(), count(&projects)), (false, 0));
    }

    #[test]
    fn candidates_are_stable_and_differ_between_volumes() {
        let (_dir, root) = root();
        let of = |volume: &str| root.candidates(&owner(volume)).map(ProjectId::get).collect::<Vec<_>>();
        let (one, other) = (of("pvc-1"), of("pvc-2"));
        assert_eq!((one.len(), &one), (16, &of("pvc-1")));
        assert!(one.iter().all(|id| *id >= FIRST && !other.contains(id)));
    }
}
