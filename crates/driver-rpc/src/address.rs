//! Addresses of drivers, in the forms that the Go sidecars accept.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The socket of a driver: `/path`, `unix:///path` or `unix:path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(PathBuf);

/// The error for a text that is not a valid driver address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a driver address: write an absolute path or unix:///path")]
pub struct AddressError(String);

impl Address {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let path = match text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            Some(path) => path,
            None if text.starts_with('/') => text,
            None => return Err(AddressError(text.to_owned())),
        };
        if path.is_empty() {
            return Err(AddressError(text.to_owned()));
        }
        Ok(Self(path.into()))
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_address_forms_of_the_go_sidecars() {
        for (text, path) in [
            ("/run/csi/socket", "/run/csi/socket"),
            ("unix:///run/csi/socket", "/run/csi/socket"),
            ("unix:/run/csi/socket", "/run/csi/socket"),
            ("unix:csi.sock", "csi.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().path(), Path::new(path), "{text}");
        }
        for text in ["", "unix:", "unix://", "csi.sock", "tcp://localhost:1", "dns:///driver"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
