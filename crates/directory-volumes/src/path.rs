//! Where a volume is below the root.

use std::fmt;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::error::DirectoryError;

/// File systems allow so many bytes in one name.
const LONGEST_NAME: usize = 255;
/// Below the 4096 bytes that the kernel allows, with room for the root's own path.
const LONGEST_PATH: usize = 1024;

/// The path of a volume below its root: names of letters, digits, `.`, `_` and `-`, none of which begins with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumePath(String);

impl VolumePath {
    /// The names, from the root down.
    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The names above the last one, and that.
    pub(crate) fn split(&self) -> (Vec<&str>, &str) {
        let mut above: Vec<&str> = self.names().collect();
        let last = above.pop().unwrap_or_default();
        (above, last)
    }

    /// The path as text, with `/` between the names.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part of an absolute path that is below the root.
    ///
    /// # Errors
    /// When it is not below the root, or not the path of a volume.
    pub fn below(root: &Path, path: &str) -> Result<Self, DirectoryError> {
        let outside = || DirectoryError::Outside { path: shortened(path), root: root.to_owned() };
        // `Path` would take `a/./b` and `a//b` for `a/b`.
        let plain = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_name));
        let below = Path::new(path).strip_prefix(root).map_err(|_| outside())?;
        if !plain || below.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(outside());
        }
        below.to_str().ok_or_else(outside)?.to_owned().try_into()
    }
}

/// A name inside a path that came from outside may be anything but empty or a step.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
}

impl TryFrom<String> for VolumePath {
    type Error = DirectoryError;

    fn try_from(text: String) -> Result<Self, DirectoryError> {
        let reason = match &text {
            text if text.is_empty() => Some("it is empty"),
            text if text.starts_with('/') => Some("it is absolute"),
            text if text.len() > LONGEST_PATH => Some("it is longer than 1024 bytes"),
            text => text.split('/').find_map(wrong),
        };
        match reason {
            Some(reason) => Err(DirectoryError::InvalidPath { path: shortened(&text), reason }),
            None => Ok(Self(text)),
        }
    }
}

/// Letters and digits are those of ASCII: others may look like a dot or a slash.
fn wrong(name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("a name in it is empty"),
        name if name.starts_with('.') => Some("a name in it begins with a dot"),
        name if name.len() > LONGEST_NAME => Some(
            "a name in it is longer than 255 bytes; create the claim with a shorter name, or put `/` between the names in the class",
        ),
        name if !name.bytes().all(allowed) => Some("it may have letters, digits, `.`, `_`, `-` and `/` only"),
        _ => None,
    }
}

/// What is shown of a text that anybody may have written.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

impl From<VolumePath> for String {
    fn from(path: VolumePath) -> Self {
        path.0
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<VolumePath, DirectoryError> {
        text.to_owned().try_into()
    }

    #[test]
    fn a_path_is_made_of_plain_names() {
        for text in ["pvc-1", "shop/data", "a/b/c", "A_b.c-1", &"a".repeat(255)] {
            assert_eq!(path(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_may_lead_out_is_no_path() {
        let long = ["a".repeat(256), format!("{}a", "a/".repeat(600))];
        let rest = [
            "",
            "/",
            "/etc",
            ".",
            "..",
            "../x",
            "a/..",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            ".hidden",
            "a/.hidden",
            "a\0b",
            "a\nb",
            "a b",
            "a\\b",
            "ä",
            "．．/a",
            "a∕b",
            "a\u{202e}b",
            "~",
            "$HOME",
            "*",
            "a\u{7f}",
        ];
        for text in long.iter().map(String::as_str).chain(rest) {
            assert!(path(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_what_is_below_the_root_is_one_of_its_volumes() {
        let below = |text: &str| VolumePath::below(Path::new("/srv/volumes"), text).map(String::from);
        assert_eq!(below("/srv/volumes/pvc-1").unwrap(), "pvc-1");
        assert_eq!(below("/srv/volumes/shop/data").unwrap(), "shop/data");
        for outside in [
            "",
            "/",
            "/srv/volumes",
            "/srv/volumes/",
            "/srv/volumesx/pvc-1",
            "/srv/volumes/../x",
            "srv/volumes/x",
            "/etc",
            "/srv/volumes/.kube-provisioner/trash",
            "/srv/volumes//x",
            "/srv/./volumes/x",
            "/srv/volumes/x/",
            "/srv/volumes/a/../../x",
            "/srv/volumes/x\0",
        ] {
            assert!(below(outside).is_err(), "{outside:?}");
        }
    }
}
