//! The table of exports on disk. Each export has a file, which is written before the server serves the export. The
//! file's name contains the export's id and its volume's path, so an id belongs to one path until the export is
//! removed, even after restarts.
//!
//! Commands change the table while the provisioner runs, so every change is made under a lock.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use directory_volumes::VolumePath;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::export::{Access, Export};

/// The table's directory below the root. Clients cannot reach it.
const PLACE: &str = ".kube-provisioner/exports";
/// The file with the id to try next. Ids continue from there, so an id is reused only after all others.
const NEXT: &str = "next";
const LOCK: &str = "lock";
/// The file with the ids and paths of volumes whose exports may not be in the table yet.
const RESERVED_IDS: &str = "kept";
/// Replaces `/` in file names. Paths cannot contain it.
const SLASH: &str = "+";
/// Maximum size of a path in a file name. File systems limit names to 255 bytes, of which the id and `@` use up to six.
const MAX_LABEL: usize = 255 - 6;
/// Precedes the hash of a path that is too long for a file name. Paths cannot contain it.
const HASH: &str = "#";

/// The table of the exports below one root.
#[derive(Clone, Debug)]
pub(crate) struct ExportTable {
    dir: PathBuf,
}

/// The contents of the table.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) exports: Vec<Export>,
    /// Files that cannot be parsed. Their exports are not served, but their ids stay reserved.
    pub(crate) damaged: Vec<String>,
}

/// The name of an export's file. It contains the id and the path, so a lookup does not read thousands of files.
struct Name {
    file: String,
    id: u16,
    /// The path in the file name: see [`label`].
    label: String,
}

/// The content of an export's file.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    access: Access,
    /// The path if it does not fit into the file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<VolumePath>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportTableError {
    #[error("the exports at {path} cannot be recorded: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the maximum number of exports ({0}) is reached; delete volumes, or run another server")]
    Full(usize),
    #[error("an export cannot be read: {0}; repair it or remove it")]
    Damaged(String),
}

impl ExportTable {
    /// Opens the table below a root that has its marker.
    pub(crate) fn new(root: &Path) -> Self {
        Self { dir: root.join(PLACE) }
    }

    /// Returns the export of a path, or creates one with the wanted id if that is free, otherwise with the next free
    /// id. The export is on disk when the call returns.
    pub(crate) fn reserve(
        &self,
        path: &VolumePath,
        access: Access,
        wanted: Option<u16>,
        max_exports: Option<u32>,
    ) -> Result<Export, ExportTableError> {
        let _lock = self.lock()?;
        let names = self.names()?;
        if let Some(found) = self.find_in(&names, path)? {
            return Ok(found);
        }
        let count = names.len();
        if max_exports.is_some_and(|max_exports| count >= max_exports as usize) || count >= usize::from(u16::MAX) {
            return Err(ExportTableError::Full(count));
        }
        let kept = self.reserved_ids()?;
        let is_free = |id: u16| {
            names.iter().all(|name| name.id != id) && kept.get(&id).is_none_or(|holder| *holder == label(path))
        };
        let id = match wanted.filter(|id| is_free(*id)) {
            Some(id) => id,
            None => {
                let after = self.next()?;
                let mut ids = (after..=u16::MAX).chain(1..after);
                let id = ids.find(|id| is_free(*id)).ok_or(ExportTableError::Full(count))?;
                self.write(NEXT, &id.checked_add(1).unwrap_or(1).to_string())?;
                id
            }
        };
        let export = Export { id, path: path.clone(), access };
        let is_long = path.as_str().len() > MAX_LABEL;
        let record = Record { access, path: is_long.then(|| path.clone()) };
        self.write(&name(&export), &serde_json::to_string(&record).unwrap_or_default())?;
        Ok(export)
    }

    /// Reserves ids for their paths until the next call. If two paths have the same id, it is reserved for the first.
    pub(crate) fn reserve_ids<'a>(
        &self,
        ids: impl Iterator<Item = (u16, &'a VolumePath)>,
    ) -> Result<(), ExportTableError> {
        let mut kept = BTreeMap::new();
        for (id, path) in ids {
            kept.entry(id).or_insert_with(|| label(path));
        }
        let _lock = self.lock()?;
        if self.reserved_ids()? == kept {
            Ok(())
        } else {
            self.write(RESERVED_IDS, &serde_json::to_string(&kept).unwrap_or_default())
        }
    }

    fn reserved_ids(&self) -> Result<BTreeMap<u16, String>, ExportTableError> {
        let file = self.dir.join(RESERVED_IDS);
        match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            text => serde_json::from_str(&text.map_err(|error| self.error(error))?)
                .map_err(|error| ExportTableError::Damaged(format!("{}: {error}", file.display()))),
        }
    }

    /// Returns the export of a path.
    pub(crate) fn find(&self, path: &VolumePath) -> Result<Option<Export>, ExportTableError> {
        self.find_in(&self.names()?, path)
    }

    /// Returns the number of exports.
    pub(crate) fn count(&self) -> Result<usize, ExportTableError> {
        Ok(self.names()?.len())
    }

    /// Removes an export that the server no longer serves. Succeeds if the table does not contain it.
    pub(crate) fn release(&self, export: &Export) -> Result<(), ExportTableError> {
        let _lock = self.lock()?;
        match fs::remove_file(self.dir.join(name(export))) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.error(error)),
            _ => self.sync(),
        }
    }

    /// Returns all exports in the order of their ids.
    pub(crate) fn entries(&self) -> Result<Entries, ExportTableError> {
        let mut entries = Entries::default();
        for name in self.names()? {
            match self.read(&name) {
                Ok(Some(export)) => entries.exports.push(export),
                Ok(None) => {}
                Err(why) => entries.damaged.push(why),
            }
        }
        entries.exports.sort_by_key(|export| export.id);
        Ok(entries)
    }

    fn names(&self) -> Result<Vec<Name>, ExportTableError> {
        let listed = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(|error| self.error(error))?,
        };
        let mut names = Vec::new();
        for entry in listed {
            let file = entry.map_err(|error| self.error(error))?.file_name().to_string_lossy().into_owned();
            let Some((id, label)) = file.split_once('@') else { continue };
            // No export has the id 0, so a damaged name does not reserve an id.
            let (id, label) = (id.parse().unwrap_or(0), label.to_owned());
            names.push(Name { file, id, label });
        }
        Ok(names)
    }

    fn find_in(&self, names: &[Name], path: &VolumePath) -> Result<Option<Export>, ExportTableError> {
        let label = label(path);
        match names.iter().find(|name| name.label == label) {
            Some(name) => self.read(name).map_err(ExportTableError::Damaged),
            None => Ok(None),
        }
    }

    /// Reads an export. Returns `None` if it was removed in the meantime.
    fn read(&self, name: &Name) -> Result<Option<Export>, String> {
        let Name { file, id, label } = name;
        let file = self.dir.join(file);
        let damaged = |why: String| format!("{}: {why}", file.display());
        if *id == 0 {
            return Err(damaged("no export has this id".to_owned()));
        }
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| damaged(error.to_string()))?,
        };
        let Record { access, path } = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let path = match path {
            Some(path) => path,
            None => VolumePath::try_from(label.replace(SLASH, "/")).map_err(|error| damaged(error.to_string()))?,
        };
        if self::label(&path) == *label {
            Ok(Some(Export { id: *id, path, access }))
        } else {
            Err(damaged(format!("it is about {path}")))
        }
    }

    fn next(&self) -> Result<u16, ExportTableError> {
        match fs::read_to_string(self.dir.join(NEXT)) {
            Ok(text) => Ok(text.trim().parse().ok().filter(|id| *id > 0).unwrap_or(1)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(1),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Writes a file atomically and durably.
    fn write(&self, name: &str, text: &str) -> Result<(), ExportTableError> {
        let tmp = self.dir.join("tmp");
        let written = File::create(&tmp).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&tmp, self.dir.join(name))
        });
        written.map_err(|error| self.error(error))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), ExportTableError> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(|error| self.error(error))
    }

    fn lock(&self) -> Result<File, ExportTableError> {
        let locked = fs::create_dir_all(&self.dir).and_then(|()| {
            let file = File::options().create(true).append(true).open(self.dir.join(LOCK))?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        locked.map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> ExportTableError {
        ExportTableError::Io { path: self.dir.clone(), source }
    }
}

fn name(export: &Export) -> String {
    format!("{}@{}", export.id, label(&export.path))
}

/// Returns the path for a file name: whole, or its beginning and a hash.
fn label(path: &VolumePath) -> String {
    let label = path.as_str().replace('/', SLASH);
    if label.len() <= MAX_LABEL {
        return label;
    }
    let hash: String = Sha256::digest(path.as_str()).iter().map(|byte| format!("{byte:02x}")).collect();
    // Paths are ASCII, so every byte index is a character boundary.
    format!("{}{HASH}{hash}", &label[..MAX_LABEL - HASH.len() - hash.len()])
}
