//! A class's parameters, parsed once with the provisioner's types, and the Secrets that they name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use provisioner_runtime::controller::catch_panic;
use serde::de::DeserializeOwned;

use super::secret_names::{self, SecretName};
use crate::capabilities::SecretRole;
use crate::parameters::{self, ParameterError};

/// Strings parsed into the provisioner's type, which the controllers do not know.
#[derive(Clone)]
pub(crate) struct Parsed(Arc<dyn Any + Send + Sync>);

impl Parsed {
    /// Parses the strings. Calls the provisioner's code.
    pub(crate) fn read<T: DeserializeOwned + Send + Sync + 'static>(
        texts: &BTreeMap<String, String>,
    ) -> Result<Self, ParameterError> {
        let typed: T = parameters::from_map(texts)?;
        Ok(Self(Arc::new(typed)))
    }

    /// Returns the provisioner's type, into which the strings were parsed.
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

/// A class's parsed parameters, and the Secrets that they name.
#[derive(Clone, Debug)]
pub(crate) struct ClassParameters {
    pub(crate) parsed: Parsed,
    pub(crate) secrets: Vec<SecretName>,
}

/// The reason why a class's parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadParameters {
    /// The parameters are invalid, however often they are parsed.
    Invalid(String),
    /// The provisioner's code panicked.
    Crashed(String),
}

impl ClassParameters {
    /// Parses the parameters; `parse` calls the provisioner's code.
    pub(crate) fn read(
        parameters: BTreeMap<String, String>,
        roles: &[SecretRole],
        parse: impl FnOnce(&BTreeMap<String, String>) -> Result<Parsed, ParameterError>,
    ) -> Result<Self, BadParameters> {
        let read = catch_panic(|| read_with_secrets(parameters, roles, parse)).map_err(BadParameters::Crashed)?;
        let (parsed, secrets) = read.map_err(BadParameters::Invalid)?;
        Ok(Self { parsed, secrets })
    }
}

/// Reads the names of Secrets, and parses the rest with the provisioner's code. An error contains all problems of both.
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
