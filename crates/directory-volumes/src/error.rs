//! What can be wrong with a root or with a volume in it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

/// What is wrong, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The root cannot be opened.
    #[error("the root directory {path} cannot be used: {source}; {}", unusable(source))]
    Unusable {
        /// The root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No share is mounted at the root.
    #[error(
        "{0} is no NFS mount: the share is not mounted; mount it, or say --allow-local-directory where this machine exports it"
    )]
    NotMounted(PathBuf),
    /// The root is something else.
    #[error("the root directory {0} is not a directory; name one with --root")]
    NotADirectory(PathBuf),
    /// The root is `/`.
    #[error("the root directory {0} is the whole file system; name one for volumes alone with --root")]
    Everything(PathBuf),
    /// The root's path cannot be told to Kubernetes.
    #[error("the path of the root directory {0} is not valid UTF-8, which the Kubernetes API needs")]
    NotUnicode(PathBuf),
    /// Nothing can be made in the root.
    #[error("the root directory {path} is not writable: {source}; make it writable, or name another one with --root")]
    NotWritable {
        /// The root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could replace volumes.
    #[error(
        "the root directory {path} {what}, so others could put their own directories in the place of volumes; {remedy}"
    )]
    Unsafe {
        /// The root.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The root's marker is missing.
    #[error(
        "the root directory {0} has no marker (.kube-provisioner/root), so it is not the file system that it was: mount the \
         right one; nothing is made or removed until then"
    )]
    Unmarked(PathBuf),
    /// The root's marker is another one.
    #[error(
        "the root directory {path} has the marker {found}, not {expected}: another file system is mounted there; mount the \
         right one, or start the provisioner anew to go on with this one"
    )]
    OtherRoot {
        /// The root.
        path: PathBuf,
        /// The id that it had.
        expected: String,
        /// The id that it has.
        found: String,
    },
    /// A text is no path of a volume.
    #[error("{path:?} cannot be the directory of a volume: {reason}")]
    InvalidPath {
        /// The beginning of the text.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// A claim lacks what its path is made of.
    #[error("the class's pattern needs the {what} {key} of the claim, which has none; make a claim with it")]
    NotSaid {
        /// A label or an annotation.
        what: &'static str,
        /// Its key.
        key: String,
    },
    /// The root does not answer.
    #[error(
        "{path} does not answer: the file system or its server hangs; see to the server. At most {threads} threads wait for \
         it, and other roots go on"
    )]
    Hangs {
        /// The root.
        path: PathBuf,
        /// How many wait at most.
        threads: usize,
    },
    /// A path from outside is not below the root.
    #[error("{path:?} is not the directory of a volume below {root}")]
    Outside {
        /// The beginning of the path.
        path: String,
        /// The root.
        root: PathBuf,
    },
    /// Another volume has the directory.
    #[error("{path:?} is the directory of {holder}; it is not touched for another volume")]
    Taken {
        /// Below the root.
        path: String,
        /// Whose it is.
        holder: String,
    },
    /// A directory without a mark.
    #[error(
        "{path:?} has no ownership mark, so it is not known whose it is; move it away, or take it over with the command \
         `adopt`"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// Something else is where a directory belongs.
    #[error("{path:?} {what}; move it away")]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Cannot be removed now.
    #[error("{name:?} is in use: {why}; it is removed when that has ended")]
    Busy {
        /// What.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// The fencing token is no longer valid.
    #[error("the work on {0:?} was cut off, and is done by another replica or later")]
    CutOff(String),
    /// The fencing token ended within a removal.
    #[error("the removal of {0:?} was interrupted and goes on later")]
    Interrupted(String),
    /// An owner cannot be given.
    #[error(
        "cannot change the owner of {name:?}: run the provisioner as root or with CAP_CHOWN, export a share with no_root_squash, or remove uid and gid from the class"
    )]
    NotAllowed {
        /// What.
        name: String,
    },
    /// The size cannot be enforced.
    #[error("the size of {name:?} cannot be enforced: {reason}")]
    Unlimited {
        /// Below the root.
        name: String,
        /// Why.
        reason: String,
    },
    /// The class needs sizes that are enforced.
    #[error("the class says enforceSize: \"true\", but the size cannot be enforced: {0}")]
    MustBeEnforced(String),
    /// A mark or an entry of the trash cannot be understood.
    #[error("{name:?} cannot be read: {reason}; look at it, and remove it by hand if it is damaged")]
    Damaged {
        /// Below `.kube-provisioner`.
        name: String,
        /// Why.
        reason: String,
    },
    /// Nothing of this name is there.
    #[error("there is no {what} {name:?}")]
    NotThere {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A call of the kernel failed.
    #[error("{doing} {name:?}: {source}{}", hint(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// What to do about a root that cannot be opened.
fn unusable(source: &io::Error) -> &'static str {
    match hint(source) {
        "" => "create it, or name another one",
        hint => hint.trim_start_matches("; "),
    }
}

/// What to do about a failure that comes from the file system as a whole.
fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::STALE) => {
            "; the server has another file system there than before, or lost it: see to the server, then mount the share anew \
             by restarting the provisioner"
        }
        Some(Errno::ROFS) => "; it is mounted read-only: mount it writable",
        Some(Errno::NOSPC | Errno::DQUOT) => "; the file system is full: make room",
        Some(Errno::PERM | Errno::ACCESS) => {
            "; the provisioner may not do this: run it as root, and export a share with no_root_squash"
        }
        Some(Errno::IO | Errno::TIMEDOUT | Errno::HOSTDOWN) => "; see to the disk or to the server",
        _ => "",
    }
}

pub(crate) fn failed(doing: &'static str, name: impl Into<String>, error: Errno) -> DirectoryError {
    DirectoryError::Io { doing, name: name.into(), source: error.into() }
}
