//! A class's parameters, read once by the author's types, and the Secrets that they name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use provisioner_runtime::controller::catch_panic;
use serde::de::DeserializeOwned;

use super::secret_names::{self, SecretName};
use crate::capabilities::SecretRole;
use crate::parameters::{self, ParameterError};

/// Texts read into the author's type, which the controllers do not know.
#[derive(Clone)]
pub(crate) struct Parsed(Arc<dyn Any + Send + Sync>);

impl Parsed {
    /// Calls the author's code.
    pub(crate) fn read<T: DeserializeOwned + Send + Sync + 'static>(
        texts: &BTreeMap<String, String>,
    ) -> Result<Self, ParameterError> {
        let typed: T = parameters::from_map(texts)?;
        Ok(Self(Arc::new(typed)))
    }

    /// The author's type: the one that they were read into.
    pub(crate) fn typed<T: Send + Sync + 'static>(self) -> Arc<T> {
        let Ok(typed) = self.0.downcast::<T>() else {
            unreachable!("parameters are parsed by the provisioner that they are handed to");
        };
        typed
    }
}

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parsed")
    }
}

/// A class's parameters: the author's, and the Secrets that they name.
#[derive(Clone, Debug)]
pub(crate) struct ClassParameters {
    pub(crate) parsed: Parsed,
    pub(crate) secrets: Vec<SecretName>,
}

/// Why a class's parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadParameters {
    /// They are wrong, however often they are read.
    Wrong(String),
    /// The author's code crashed.
    Crashed(String),
}

impl ClassParameters {
    /// `parse` calls the author's code.
    pub(crate) fn read(
        parameters: BTreeMap<String, String>,
        roles: &[SecretRole],
        parse: impl FnOnce(&BTreeMap<String, String>) -> Result<Parsed, ParameterError>,
    ) -> Result<Self, BadParameters> {
        let read = catch_panic(|| read_with_secrets(parameters, roles, parse)).map_err(BadParameters::Crashed)?;
        let (parsed, secrets) = read.map_err(BadParameters::Wrong)?;
        Ok(Self { parsed, secrets })
    }
}

/// Reads the names of Secrets, and lets the author's code read the rest. An error has all problems of both.
pub(crate) fn read_with_secrets<T>(
    mut parameters: BTreeMap<String, String>,
    roles: &[SecretRole],
    parse: impl FnOnce(&BTreeMap<String, String>) -> Result<T, ParameterError>,
) -> Result<(T, Vec<SecretName>), String> {
    let secrets = secret_names::take(&mut parameters, roles);
    match (parse(&parameters).map_err(|error| error.to_string()), secrets) {
        (Ok(parsed), Ok(secrets)) => Ok((parsed, secrets)),
        (Err(problem), Ok(_)) | (Ok(_), Err(problem)) => Err(problem),
        (Err(of_author), Err(of_secrets)) => Err(format!("{of_author}; {of_secrets}")),
    }
}
