//! The exports on disk: a file each, written before the server hears of it. Its name has the export's id and its volume's path,
//! so an id belongs to one path for as long as that is exported, whatever is restarted.
//!
//! The commands work on them, too, while the provisioner runs: every change is made under a lock.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use directory_volumes::VolumePath;
use rustix::fs::{FlockOperation, flock};

use super::export::{Access, Export};

/// Below the root, where no client gets.
const PLACE: &str = ".kube-provisioner/exports";
/// The id that is tried next. Going on from there, an id comes again only after all others.
const NEXT: &str = "next";
const LOCK: &str = "lock";
/// Stands for `/` in the name of a file: no path has it.
const SLASH: &str = "+";

/// Where the exports of one root are written down.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    dir: PathBuf,
}

/// What is written down.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) exports: Vec<Export>,
    /// Files that nobody understands. Their exports are not served, and their ids are not given to others.
    pub(crate) damaged: Vec<String>,
}

/// The name of an export's file says everything but who may do what, so thousands need not be read to find one.
struct Name {
    file: String,
    id: u16,
    path: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BookError {
    #[error("the exports at {path} cannot be written down: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("there are {0} exports, as many as there may be; delete volumes, or run another server")]
    Full(usize),
    #[error("the export id {id} belongs to {path}")]
    Taken { id: u16, path: String },
    #[error("an export cannot be read: {0}; mend it, or remove it")]
    Damaged(String),
}

impl Book {
    /// Below a root that has its marker.
    pub(crate) fn new(root: &Path) -> Self {
        Self { dir: root.join(PLACE) }
    }

    /// Finds the export of a path, or gives it the next id, or the wanted one. The answer is on disk.
    pub(crate) fn reserve(
        &self,
        path: &VolumePath,
        access: Access,
        wanted: Option<u16>,
        most: Option<u32>,
    ) -> Result<Export, BookError> {
        let _lock = self.lock()?;
        let names = self.names()?;
        if let Some(found) = self.find_in(&names, path)? {
            return Ok(found);
        }
        let count = names.len();
        if most.is_some_and(|most| count >= most as usize) || count >= usize::from(u16::MAX) {
            return Err(BookError::Full(count));
        }
        let holder = |id: u16| names.iter().find(|name| name.id == id);
        let id = match wanted {
            Some(id) => match holder(id) {
                Some(holder) => return Err(BookError::Taken { id, path: holder.path.clone() }),
                None => id,
            },
            None => {
                let after = self.next()?;
                let mut ids = (after..=u16::MAX).chain(1..after);
                let id = ids.find(|id| holder(*id).is_none()).ok_or(BookError::Full(count))?;
                self.write(NEXT, &id.checked_add(1).unwrap_or(1).to_string())?;
                id
            }
        };
        let export = Export { id, path: path.clone(), access };
        self.write(&name(&export), &serde_json::to_string(&access).unwrap_or_default())?;
        Ok(export)
    }

    /// The export of a path.
    pub(crate) fn find(&self, path: &VolumePath) -> Result<Option<Export>, BookError> {
        self.find_in(&self.names()?, path)
    }

    /// How many exports there are.
    pub(crate) fn count(&self) -> Result<usize, BookError> {
        Ok(self.names()?.len())
    }

    /// Forgets an export, which the server does not have any more. Forgotten already is success.
    pub(crate) fn release(&self, export: &Export) -> Result<(), BookError> {
        let _lock = self.lock()?;
        match fs::remove_file(self.dir.join(name(export))) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.error(error)),
            _ => self.sync(),
        }
    }

    /// Everything that is written down, in the order of the ids.
    pub(crate) fn entries(&self) -> Result<Entries, BookError> {
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

    fn names(&self) -> Result<Vec<Name>, BookError> {
        let listed = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(|error| self.error(error))?,
        };
        let mut names = Vec::new();
        for entry in listed {
            let file = entry.map_err(|error| self.error(error))?.file_name().to_string_lossy().into_owned();
            let Some((id, path)) = file.split_once('@') else { continue };
            // 0 is no id of an export, so such a file takes none.
            let (id, path) = (id.parse().unwrap_or(0), path.replace(SLASH, "/"));
            names.push(Name { file, id, path });
        }
        Ok(names)
    }

    fn find_in(&self, names: &[Name], path: &VolumePath) -> Result<Option<Export>, BookError> {
        match names.iter().find(|name| name.path == path.as_str()) {
            Some(name) => self.read(name).map_err(BookError::Damaged),
            None => Ok(None),
        }
    }

    /// `None`: it went meanwhile.
    fn read(&self, name: &Name) -> Result<Option<Export>, String> {
        let Name { file, id, path } = name;
        let file = self.dir.join(file);
        let damaged = |why: String| format!("{}: {why}", file.display());
        if *id == 0 {
            return Err(damaged("no export has this id".to_owned()));
        }
        let path = VolumePath::try_from(path.clone()).map_err(|error| damaged(error.to_string()))?;
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| damaged(error.to_string()))?,
        };
        let access = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(Export { id: *id, path, access }))
    }

    fn next(&self) -> Result<u16, BookError> {
        match fs::read_to_string(self.dir.join(NEXT)) {
            Ok(text) => Ok(text.trim().parse().ok().filter(|id| *id > 0).unwrap_or(1)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(1),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Durably, and as a whole or not at all.
    fn write(&self, name: &str, text: &str) -> Result<(), BookError> {
        let tmp = self.dir.join("tmp");
        let written = File::create(&tmp).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&tmp, self.dir.join(name))
        });
        written.map_err(|error| self.error(error))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), BookError> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(|error| self.error(error))
    }

    fn lock(&self) -> Result<File, BookError> {
        let locked = fs::create_dir_all(&self.dir).and_then(|()| {
            let file = File::options().create(true).append(true).open(self.dir.join(LOCK))?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        locked.map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> BookError {
        BookError::Io { path: self.dir.clone(), source }
    }
}

fn name(export: &Export) -> String {
    format!("{}@{}", export.id, export.path.as_str().replace('/', SLASH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VolumePath {
        text.to_owned().try_into().unwrap()
    }

    fn reserve(book: &Book, text: &str) -> u16 {
        book.reserve(&path(text), Access::default(), None, None).unwrap().id
    }

    #[test]
    fn an_id_stays_with_its_path_and_is_not_given_again() {
        let root = tempfile::tempdir().unwrap();
        let book = Book::new(root.path());
        assert_eq!((reserve(&book, "pvc-1"), reserve(&book, "shop/data")), (1, 2));
        // Another process, later.
        let book = Book::new(root.path());
        assert_eq!(reserve(&book, "shop/data"), 2);
        let first = book.find(&path("pvc-1")).unwrap().unwrap();
        book.release(&first).unwrap();
        book.release(&first).unwrap();
        assert_eq!(reserve(&book, "pvc-3"), 3, "an id that a client may hold");
        assert_eq!(reserve(&book, "pvc-1"), 4);
    }

    #[test]
    fn ids_begin_again_after_the_last_one() {
        let root = tempfile::tempdir().unwrap();
        let book = Book::new(root.path());
        assert_eq!(reserve(&book, "pvc-1"), 1);
        fs::write(book.dir.join(NEXT), "65535").unwrap();
        assert_eq!((reserve(&book, "pvc-2"), reserve(&book, "pvc-3")), (u16::MAX, 2));
    }

    #[test]
    fn the_limit_counts_what_is_damaged_too() {
        let root = tempfile::tempdir().unwrap();
        let book = Book::new(root.path());
        reserve(&book, "pvc-1");
        fs::write(book.dir.join("2@pvc-2"), "{").unwrap();
        assert_eq!(reserve(&book, "pvc-3"), 3);
        assert_eq!(book.entries().unwrap().damaged.len(), 1);
        let full = book.reserve(&path("pvc-4"), Access::default(), None, Some(3));
        assert!(matches!(full, Err(BookError::Full(3))), "{full:?}");
        // Who has an export keeps it, and gets no second one while the first cannot be read.
        assert!(book.reserve(&path("pvc-1"), Access::default(), None, Some(3)).is_ok());
        let damaged = book.reserve(&path("pvc-2"), Access::default(), None, None);
        assert!(matches!(damaged, Err(BookError::Damaged(_))), "{damaged:?}");
    }

    #[test]
    fn an_id_of_another_provisioner_can_be_kept() {
        let root = tempfile::tempdir().unwrap();
        let book = Book::new(root.path());
        assert_eq!(book.reserve(&path("pvc-9"), Access::default(), Some(1), None).unwrap().id, 1);
        assert!(matches!(book.reserve(&path("b"), Access::default(), Some(1), None), Err(BookError::Taken { .. })));
        assert_eq!(reserve(&book, "pvc-1"), 2);
    }
}
