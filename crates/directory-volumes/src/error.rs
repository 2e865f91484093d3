//! Errors concerning a root or a volume in it.

use std::path::PathBuf;
use std::{fmt, io};

use jiff::Timestamp;
use rustix::io::Errno;
use thiserror::Error;

use crate::mark::Owner;

/// A problem and its remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The root cannot be opened.
    #[error("the root directory {path} cannot be used: {source}; {}", unusable(source))]
    Unusable {
        /// The root.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No share is mounted at the root.
    #[error(
        "{0} is not an NFS mount: the share is not mounted; mount it, or set --allow-local-directory if this machine exports it"
    )]
    NotMounted(PathBuf),
    /// The root is not a directory.
    #[error("the root directory {0} is not a directory; choose another one")]
    NotADirectory(PathBuf),
    /// The root is `/`.
    #[error("the root directory {0} is the root of the whole file system; name a directory that is only for volumes")]
    Everything(PathBuf),
    /// Kubernetes cannot store the root's path.
    #[error("the path of the root directory {0} is not valid UTF-8, which the Kubernetes API needs")]
    NotUnicode(PathBuf),
    /// The root is not writable.
    #[error("the root directory {path} is not writable: {source}; make it writable, or choose another one")]
    NotWritable {
        /// The root.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others could replace volumes.
    #[error("the root directory {path} {what}, so others could replace volumes with their own directories; {remedy}")]
    Unsafe {
        /// The root.
        path: PathBuf,
        /// The problem.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// The root's marker is missing.
    #[error(
        "the root directory {0} has no marker (.kube-provisioner/root), so another file system may be mounted there: \
         mount the right one; until then the provisioner creates and removes nothing"
    )]
    Unmarked(PathBuf),
    /// The root has another marker.
    #[error(
        "the root directory {path} has the marker {found}, not {expected}: another file system is mounted there; \
         mount the right one, or restart the provisioner to use this one"
    )]
    OtherRoot {
        /// The root.
        path: PathBuf,
        /// The expected id.
        expected: String,
        /// The actual id.
        found: String,
    },
    /// The volume was created in another root.
    #[error(
        "the volume is in the root {expected}, but {path} is the root {found}: mount the disk of the volume; if its \
         data was copied here, run the provisioner's command `adopt --volume {volume}`"
    )]
    InOtherRoot {
        /// The root.
        path: PathBuf,
        /// The id of the volume's root.
        expected: String,
        /// The actual id.
        found: String,
        /// The name of the volume.
        volume: String,
    },
    /// A text is not a valid volume path.
    #[error("{path:?} cannot be the directory of a volume: {reason}")]
    InvalidPath {
        /// The beginning of the text.
        path: String,
        /// The reason.
        reason: &'static str,
    },
    /// A claim lacks a label or an annotation that its class's pattern uses.
    #[error(
        "the class's pattern needs the {what} {key} of the claim, which does not have it; create the claim with it"
    )]
    MissingMetadata {
        /// A label or an annotation.
        what: &'static str,
        /// Its key.
        key: String,
    },
    /// The root does not answer.
    #[error(
        "{path} does not answer: the file system or its server hangs; check the server. At most {threads} threads \
         wait for it, and other roots are not affected"
    )]
    Hangs {
        /// The root.
        path: PathBuf,
        /// The maximum number of waiting threads.
        threads: usize,
    },
    /// The root responds, but all threads available to the call are busy.
    #[error("{path} is busy (deletions: {removals}, other calls: {others}); this call is tried again later")]
    Occupied {
        /// The root.
        path: PathBuf,
        /// The number of calls that remove data.
        removals: usize,
        /// The number of other calls.
        others: usize,
    },
    /// A given path is not below the root.
    #[error(
        "{path:?} is not the directory of a volume below {root}; if the root was moved, leave a symlink at its former path, \
         and use that path as the root"
    )]
    Outside {
        /// The beginning of the path.
        path: String,
        /// The root.
        root: PathBuf,
    },
    /// The directory belongs to another volume.
    #[error("{path:?} is the directory of {holder}, and is not changed for this volume")]
    Taken {
        /// The path below the root.
        path: String,
        /// The owner.
        holder: Holder,
    },
    /// A directory has no mark.
    #[error(
        "{path:?} has no ownership mark, so its owner is unknown; move it away, or adopt it with the command `adopt`"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// A directory above a volume does not belong to the provisioner.
    #[error(
        "the directory {directory:?}, in which the volume would be, {what}, so others may be able to replace the \
         volume with a symlink: run the provisioner's command `adopt {directory}`, which makes it a volume or a \
         directory for volumes, or move it away"
    )]
    Exposed {
        /// The path below the root.
        directory: String,
        /// The problem.
        what: String,
    },
    /// The path of a directory is occupied by a file of another kind.
    #[error("{path:?} {what}; move it away")]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// A description of the file.
        what: &'static str,
    },
    /// The data cannot be removed now.
    #[error("{name:?} is in use: {why}; try again afterwards")]
    Busy {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The fencing token is no longer valid.
    #[error("the work on {0:?} was interrupted, and is continued later or by another replica")]
    Fenced(String),
    /// The fencing token became invalid during a removal.
    #[error("the removal of {0:?} was interrupted and continues later")]
    Interrupted(String),
    /// There is more data to remove than one call can handle.
    #[error("the data of {0:?} is being removed; it has many files, and the removal continues")]
    Continues(String),
    /// The owner cannot be changed.
    #[error(
        "cannot change the owner of {name:?}: run the provisioner as root or with CAP_CHOWN, export a share with no_root_squash, or remove uid and gid from the class"
    )]
    NotAllowed {
        /// The name.
        name: String,
    },
    /// The size cannot be enforced.
    #[error("the size of {name:?} cannot be enforced: {reason}")]
    Unlimited {
        /// The path below the root.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The class requires enforced sizes.
    #[error("the class sets enforceSize: \"true\", but the size cannot be enforced: {0}")]
    MustBeEnforced(String),
    /// The SELinux label from the class cannot be set on the directory.
    #[error("the directory {name:?} cannot have the SELinux label {label}, which the class sets: {reason}")]
    Unlabelled {
        /// The path below the root.
        name: String,
        /// The label.
        label: String,
        /// The reason.
        reason: &'static str,
    },
    /// The volume is larger than the free space.
    #[error(
        "{path} has no room for a volume of {wanted}: {free} are free, of which the class reserves {reserved}; request less, or free space"
    )]
    NoRoom {
        /// The root.
        path: PathBuf,
        /// The size of the volume.
        wanted: String,
        /// The free space.
        free: String,
        /// The space that has to stay free.
        reserved: String,
    },
    /// A mark or a trash entry cannot be parsed.
    #[error(
        "{name:?} in .kube-provisioner cannot be read: {reason}; check it, and remove it manually if it is damaged"
    )]
    Damaged {
        /// The path below `.kube-provisioner`.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The clock is earlier than a known event.
    #[error(
        "nothing in the trash expires: the clock says {now}, and {what} at {when}; set the clock of this machine{}",
        file.as_ref().map(|file| format!(", or correct the time in {file}")).unwrap_or_default()
    )]
    Clock {
        /// The time according to the clock.
        now: Timestamp,
        /// The later event.
        what: String,
        /// The time of that event.
        when: Timestamp,
        /// The file below the root with that time.
        file: Option<String>,
    },
    /// No object of this kind and name exists.
    #[error("there is no {what} {name:?}")]
    NotThere {
        /// The kind of object.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A system call failed.
    #[error("{doing} {name:?}: {source}{}", hint(source))]
    Io {
        /// The operation.
        doing: &'static str,
        /// The object of the operation.
        name: String,
        /// The cause.
        source: io::Error,
    },
}

/// The holder of a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// A volume.
    Volume(Box<Owner>),
    /// A volume with the same name, such as one that existed before the cluster was restored.
    Namesake(Box<Owner>),
    /// A deleted volume whose data is kept.
    Kept(Box<Owner>),
    /// A volume whose details the user may not see.
    Another,
    /// A volume above or below the path.
    Nested,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(owner) => owner.fmt(f),
            Self::Namesake(owner) => write!(
                f,
                "{owner}, which has the same name (if this volume was restored from a backup, or bound to another \
                 claim before its mark was up to date, the provisioner's command `adopt --volume {}` assigns the \
                 directory to it)",
                owner.volume
            ),
            Self::Kept(owner) => write!(
                f,
                "{owner}, which was deleted and whose data its class keeps (onDelete: retain); to use the data again, run the \
                 provisioner's command `adopt` with the directory, --claim and --name {}; to delete it, move it away and \
                 run `orphans --delete`",
                owner.volume
            ),
            Self::Another => f.write_str("another volume"),
            Self::Nested => f.write_str("a volume above or below it"),
        }
    }
}

impl DirectoryError {
    /// Removes and logs the details about volumes in other namespaces, which a tenant must not read.
    pub(crate) fn for_claim_of(self, owner: &Owner) -> Self {
        match self {
            Self::Taken { path, holder: Holder::Volume(holder) | Holder::Kept(holder) }
                if !holder.shares_namespace(owner) =>
            {
                tracing::warn!("{path:?} is requested by {owner}, but is the directory of {holder}");
                Self::Taken { path, holder: Holder::Another }
            }
            error => error,
        }
    }
}

/// Returns the remedy for a root that cannot be opened.
fn unusable(source: &io::Error) -> &'static str {
    match hint(source) {
        "" => "create it, or set another one",
        hint => hint.trim_start_matches("; "),
    }
}

/// Returns the remedy for a failure that affects the file system as a whole.
fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::STALE) => {
            "; the server exports another file system there than before, or lost it: check the server, then restart \
             the provisioner to mount the share again"
        }
        Some(Errno::ROFS) => "; it is mounted read-only: mount it writable",
        Some(Errno::NOSPC | Errno::DQUOT) => "; the file system is full: free space",
        Some(Errno::PERM) => {
            "; the provisioner may not do this: run it as root, export a share with no_root_squash, and check with \
             lsattr for immutable and append-only files, which chattr -i and chattr -a change"
        }
        Some(Errno::ACCESS) => {
            "; the provisioner may not do this: run it as root, and export a share with no_root_squash"
        }
        Some(Errno::IO | Errno::TIMEDOUT | Errno::HOSTDOWN) => "; check the disk or the server",
        _ => "",
    }
}

pub(crate) fn failed(doing: &'static str, name: impl Into<String>, error: Errno) -> DirectoryError {
    DirectoryError::Io { doing, name: name.into(), source: error.into() }
}
