//! The SELinux label of a volume's directory. Files created in it inherit the label, according to the node's policy.

use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, fsync};
use rustix::io::Errno;

use crate::error::{DirectoryError, failed};
use crate::mark::Owner;
use crate::open_directory;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::open_down;

/// The extended attribute that stores the label.
const ATTRIBUTE: &str = "security.selinux";
/// Maximum length of a label; the kernel's own limit is a page.
const LONGEST: usize = 1024;

/// A label, such as `system_u:object_r:container_file_t:s0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeLinuxLabel(String);

impl FromStr for SeLinuxLabel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "_.-,".contains(letter);
        let parts: Vec<&str> = text.split(':').collect();
        let is_plain = |part: &&str| !part.is_empty() && part.chars().all(letter);
        // The level may have categories after another colon, and a range consists of two levels.
        if (3..=6).contains(&parts.len()) && parts.iter().all(is_plain) && text.len() <= LONGEST {
            Ok(Self(text.to_owned()))
        } else {
            Err("expected USER:ROLE:TYPE:LEVEL, such as system_u:object_r:container_file_t:s0")
        }
    }
}

kube_provisioner::deserialize_from_str!(SeLinuxLabel);

impl Root {
    /// Labels the directory of a volume before it is used.
    ///
    /// # Errors
    /// Fails if the directory does not belong to that volume, if this kernel does not use SELinux, or if its policy
    /// refuses the label.
    pub fn label(&self, path: &VolumePath, owner: &Owner, label: &SeLinuxLabel) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let (above, last) = path.split();
        let opened = match self.own_mark(&state, path, owner)? {
            Some(_) => {
                open_down(state.root.as_fd(), &above).and_then(|above| open_directory::open(above.as_fd(), last))
            }
            None => Err(Errno::NOENT),
        };
        let directory = opened.map_err(|error| self.not_a_directory(path, error, "cannot open the directory"))?;
        let refused = |reason| DirectoryError::Unlabelled { name: path.to_string(), label: label.0.clone(), reason };
        // With SELinux, every file has a label. Without it, root can set one, but it has no effect.
        let mut current = [0; LONGEST + 1];
        match fgetxattr(&directory, ATTRIBUTE, &mut current) {
            Ok(_) | Err(Errno::RANGE) => {}
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Err(refused("SELinux is not enabled on this node")),
            Err(error) => return Err(failed("cannot read the label of", path.as_str(), error)),
        }
        let text = format!("{}\0", label.0);
        fsetxattr(&directory, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()).map_err(|error| match error {
            Errno::INVAL => refused("the node's policy does not know it"),
            Errno::OPNOTSUPP => refused("the file system has one label for all files, or none"),
            Errno::PERM | Errno::ACCESS => refused("the provisioner may not set it; see its pod's seLinuxOptions"),
            error => failed("cannot label", path.as_str(), error),
        })?;
        fsync(&directory).map_err(|error| failed("cannot label", path.as_str(), error))
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::FencingToken;

    use super::*;
    use crate::tests::{OPEN, at, owner, root};

    const LABEL: &str = "system_u:object_r:container_file_t:s0";

    #[test]
    fn parses_labels_with_three_to_six_parts() {
        for text in [LABEL, "system_u:object_r:container_file_t:s0:c1,c2", "u:r:t", "u:r:t:s0-s0:c0.c1023"] {
            assert_eq!(text.parse(), Ok(SeLinuxLabel(text.to_owned())));
        }
        for text in ["", "container_file_t", "u:r", "u:r::s0", "u:r:t:s0\n", "u:r:t:s0;", "a:b:c:d:e:f:g"] {
            assert!(text.parse::<SeLinuxLabel>().is_err(), "{text:?}");
        }
    }

    /// Without SELinux, the kernel stores the attribute for root like any other.
    #[test]
    fn refuses_labels_on_nodes_without_selinux() {
        if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
            return;
        }
        let ((folder, root), path) = (root(), at("pvc-1"));
        let label = |volume: &str| root.label(&path, &owner(volume), &LABEL.parse().unwrap());
        assert!(label("pvc-1").is_err(), "there is no volume");
        root.create(&path, &owner("pvc-1"), false, &OPEN, None, &FencingToken::unlimited()).unwrap();
        let error = label("pvc-1").unwrap_err().to_string();
        assert!(error.contains("SELinux is not enabled on this node"), "{error}");
        assert!(matches!(label("pvc-2"), Err(DirectoryError::Taken { .. })), "the directory belongs to another volume");
        let directory = std::fs::File::open(folder.path().join("pvc-1")).unwrap();
        if fsetxattr(&directory, ATTRIBUTE, b"former\0", XattrFlags::empty()).is_ok() {
            label("pvc-1").unwrap();
            let mut found = [0; 64];
            let length = fgetxattr(&directory, ATTRIBUTE, &mut found).unwrap();
            assert_eq!(&found[..length], format!("{LABEL}\0").as_bytes());
        }
    }
}
