//! Messages for the users of claims. They contain neither paths nor free space, which are only logged.

use std::error::Error;
use std::io;

use kube_provisioner::{DeleteError, ExpandError, ProvisionError};
use rustix::io::Errno;

use crate::error::DirectoryError;

type Cause = dyn Error + Send + Sync;

/// An error of a provisioner method.
pub trait CallError: Sized {
    /// Gives the error a message for the claim's user. `own` returns the message for the provisioner's own errors.
    #[must_use]
    fn for_users(self, own: fn(&Cause) -> Option<String>) -> Self;
}

macro_rules! call_error {
    ($($error:ident)*) => {$(
        impl CallError for $error {
            fn for_users(self, own: fn(&Cause) -> Option<String>) -> Self {
                let text = self.cause().downcast_ref().map(DirectoryError::user_text).or_else(|| own(self.cause()));
                match text {
                    Some(text) => self.with_user_text(text),
                    None => self,
                }
            }
        }
    )*};
}

call_error!(ProvisionError ExpandError DeleteError);

impl DirectoryError {
    /// Returns the message for the claim's user.
    pub fn user_text(&self) -> String {
        match self {
            Self::Unusable { .. }
            | Self::NotMounted(_)
            | Self::NotADirectory(_)
            | Self::Everything(_)
            | Self::NotUnicode(_)
            | Self::NotWritable { .. }
            | Self::Unsafe { .. }
            | Self::Outside { .. }
            | Self::Clock { .. }
            | Self::Damaged { .. } => "the storage of this class cannot be used; ask the administrator".to_owned(),
            Self::Unmarked(_) | Self::OtherRoot { .. } | Self::InOtherRoot { .. } => {
                "the storage of this class has no marker, or the marker of other storage; ask the administrator".to_owned()
            }
            Self::Hangs { .. } => "the storage of this class does not answer; ask the administrator".to_owned(),
            Self::Occupied { .. } => "the storage of this class is busy; the provisioner tries again".to_owned(),
            Self::InvalidPath { reason, .. } => {
                format!("the class's pattern and the claim result in an invalid directory name: {reason}")
            }
            Self::MissingMetadata { what, key } => {
                format!("the class needs the {what} {key}, which the claim lacks; delete the claim and create it with it")
            }
            Self::Taken { holder, .. } => format!(
                "the directory of this claim belongs to {holder}; delete the claim and create it with another name, or ask the administrator"
            ),
            Self::NotOurs { .. } => {
                "the directory of this claim exists and has no ownership mark; delete the claim and create it with another name, or \
                 ask the administrator to move or adopt the directory"
                    .to_owned()
            }
            Self::Exposed { .. } => {
                "a directory above the one of this claim is not protected; ask the administrator to move or adopt it".to_owned()
            }
            Self::InTheWay { .. } => {
                "something else has the name of this claim's directory; delete the claim and create it with another name, or ask the \
                 administrator"
                    .to_owned()
            }
            Self::Busy { why, .. } => format!("the directory of this claim is in use: {why}; the provisioner tries again"),
            Self::Fenced(_) | Self::Interrupted(_) | Self::Continues(_) => {
                "the work on this claim's directory takes longer; the provisioner continues".to_owned()
            }
            Self::NotAllowed { .. } => {
                "the provisioner cannot give the volume the owner that the class sets; ask the administrator".to_owned()
            }
            Self::Unlimited { .. } | Self::MustBeEnforced(_) => {
                "the class enforces sizes (enforceSize), which its storage does not support; ask the administrator".to_owned()
            }
            Self::Unlabelled { .. } => {
                "the volume cannot have the SELinux label of the class; ask the administrator".to_owned()
            }
            Self::NoRoom { wanted, .. } => format!(
                "the storage has no room for a volume of {wanted}; delete the claim and create it with less, or ask \
                 the administrator for more space"
            ),
            Self::NotThere { what, .. } => format!("the {what} of this claim does not exist; ask the administrator"),
            Self::Io { source, .. } if is_full(source) => {
                "the storage of this class is full; ask the administrator for more space".to_owned()
            }
            Self::Io { source, .. } => {
                format!("the storage of this class reports an error: {}; ask the administrator", source.kind())
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;

    use super::*;
    use crate::error::Holder;

    #[test]
    fn users_read_neither_paths_nor_free_space() {
        let (path, name) = (PathBuf::from("/srv/secret"), "/srv/secret".to_owned());
        let io = || io::Error::from(Errno::NOSPC);
        let errors = [
            DirectoryError::Unusable { path: path.clone(), source: io() },
            DirectoryError::NotMounted(path.clone()),
            DirectoryError::NotADirectory(path.clone()),
            DirectoryError::Everything(path.clone()),
            DirectoryError::NotUnicode(path.clone()),
            DirectoryError::NotWritable { path: path.clone(), source: io() },
            DirectoryError::Unsafe { path: path.clone(), what: name.clone(), remedy: name.clone() },
            DirectoryError::Unmarked(path.clone()),
            DirectoryError::OtherRoot { path: path.clone(), expected: name.clone(), found: name.clone() },
            DirectoryError::InOtherRoot {
                path: path.clone(),
                expected: name.clone(),
                found: name.clone(),
                volume: name.clone(),
            },
            DirectoryError::InvalidPath { path: name.clone(), reason: "it is too long" },
            DirectoryError::MissingMetadata { what: "label", key: "team".to_owned() },
            DirectoryError::Hangs { path: path.clone(), threads: 77 },
            DirectoryError::Occupied { path: path.clone(), removals: 77, others: 77 },
            DirectoryError::Outside { path: name.clone(), root: path.clone() },
            DirectoryError::Taken { path: name.clone(), holder: Holder::Another },
            DirectoryError::NotOurs { path: path.clone() },
            DirectoryError::Exposed { directory: name.clone(), what: name.clone() },
            DirectoryError::InTheWay { path: path.clone(), what: "is a file" },
            DirectoryError::Busy { name: name.clone(), why: "it is mounted" },
            DirectoryError::Fenced(name.clone()),
            DirectoryError::Interrupted(name.clone()),
            DirectoryError::Continues(name.clone()),
            DirectoryError::NotAllowed { name: name.clone() },
            DirectoryError::Unlimited { name: name.clone(), reason: name.clone() },
            DirectoryError::MustBeEnforced(name.clone()),
            DirectoryError::Unlabelled { name: name.clone(), label: name.clone(), reason: "no SELinux" },
            DirectoryError::NoRoom {
                path,
                wanted: "5Gi".to_owned(),
                free: "77Mi".to_owned(),
                reserved: "77Mi".to_owned(),
            },
            DirectoryError::Damaged { name: name.clone(), reason: name.clone() },
            DirectoryError::Clock {
                now: Timestamp::UNIX_EPOCH,
                what: name.clone(),
                when: Timestamp::UNIX_EPOCH,
                file: Some(name.clone()),
            },
            DirectoryError::NotThere { what: "directory", name: name.clone() },
            DirectoryError::Io { doing: "cannot make", name, source: io() },
        ];
        for error in errors {
            let shown = format!("{error:?}");
            let error = ProvisionError::retry(error).for_users(|_| None);
            let text = error.user_text();
            assert!(!text.contains("/srv") && !text.contains("77"), "{text}");
            assert!(
                ["administrator", "the provisioner", "delete the claim", "reason", "it is too long"]
                    .iter()
                    .any(|who| text.contains(who)),
                "{shown}: {text}"
            );
        }
    }
}
