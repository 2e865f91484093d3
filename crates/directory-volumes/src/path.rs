//! The path of a volume below the root.

use std::fmt;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::error::DirectoryError;

/// Maximum length of a name in bytes on common file systems.
const MAX_NAME: usize = 255;
/// Maximum length of a path. It is below the kernel's 4096 bytes, which leaves room for the root's own path.
const MAX_PATH: usize = 1024;

/// The path of a volume below its root. Its names consist of letters, digits, `.`, `_` and `-`, and do not begin with a
/// dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumePath(String);

impl VolumePath {
    /// Returns the names, from the root down.
    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the names above the last one, and the last one.
    pub(crate) fn split(&self) -> (Vec<&str>, &str) {
        let mut above: Vec<&str> = self.names().collect();
        let last = above.pop().unwrap_or_default();
        (above, last)
    }

    /// Returns the path as text, with `/` between the names.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of an absolute path that is below the root.
    ///
    /// # Errors
    /// Fails if it is not below the root, or not a valid volume path.
    pub fn below(root: &Path, path: &str) -> Result<Self, DirectoryError> {
        let outside = || DirectoryError::Outside { path: shortened(path), root: root.to_owned() };
        // `Path` would treat `a/./b` and `a//b` as `a/b`.
        let plain = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_name));
        let below = Path::new(path).strip_prefix(root).map_err(|_| outside())?;
        if !plain || below.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(outside());
        }
        below.to_str().ok_or_else(outside)?.to_owned().try_into()
    }
}

/// Returns true unless a name is empty, `.` or `..`. The root's own path may contain any other name.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
}

impl TryFrom<String> for VolumePath {
    type Error = DirectoryError;

    fn try_from(text: String) -> Result<Self, DirectoryError> {
        let reason = match &text {
            text if text.is_empty() => Some("it is empty"),
            text if text.starts_with('/') => Some("it is absolute"),
            text if text.len() > MAX_PATH => Some("it is longer than 1024 bytes"),
            text => text.split('/').find_map(name_problem),
        };
        match reason {
            Some(reason) => Err(DirectoryError::InvalidPath { path: shortened(&text), reason }),
            None => Ok(Self(text)),
        }
    }
}

/// Returns the problem with a name, if there is one. Only ASCII characters are allowed, because others may look like a
/// dot or a slash.
fn name_problem(name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("a name in it is empty"),
        name if name.starts_with('.') => Some("a name in it begins with a dot"),
        name if name.len() > MAX_NAME => Some(
            "a name in it is longer than 255 bytes; create the claim with a shorter name, or put `/` between the names in the class",
        ),
        name if !name.bytes().all(allowed) => Some("it may have letters, digits, `.`, `_`, `-` and `/` only"),
        _ => None,
    }
}

/// Shortens a text from an untrusted source for display.
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
    fn accepts_paths_of_plain_names() {
        for text in ["pvc-1", "shop/data", "a/b/c", "A_b.c-1", &"a".repeat(255)] {
            assert_eq!(path(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_paths_that_may_lead_out_of_the_root() {
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
    fn accepts_only_volumes_below_the_root() {
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
