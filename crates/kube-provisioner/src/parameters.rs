//! StorageClass parameters, which Kubernetes stores as strings, parsed into a provisioner's struct.
//!
//! ```
//! # use std::collections::BTreeMap;
//! use serde::Deserialize;
//!
//! #[derive(Debug, Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Parameters {
//!     /// Host name of the server.
//!     server: String,
//!     /// The treatment of a deleted volume's data.
//!     #[serde(default)]
//!     on_delete: OnDelete,
//! }
//!
//! #[derive(Debug, Default, Deserialize, PartialEq)]
//! #[serde(rename_all = "lowercase")]
//! enum OnDelete {
//!     #[default]
//!     Delete,
//!     Archive,
//! }
//!
//! let class = BTreeMap::from([("onDelte".into(), "keep".into())]);
//! let error = kube_provisioner::parameters::from_map::<Parameters>(&class).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     r#"unknown parameter "onDelte" (did you mean "onDelete"?); parameter "server" is required"#
//! );
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};

mod class;
mod fault;
mod quote;
mod suggest;
mod value;

#[cfg(test)]
mod tests;

use class::ClassMap;
pub(crate) use quote::{printable, quoted};
pub(crate) use suggest::nearest;

/// Reads `map`, the `parameters` of a StorageClass, into `T`.
///
/// `T` is usually a struct with one field per parameter. `()` allows no parameters, and a map such as
/// `BTreeMap<String, String>` allows any. Keys that begin with `csi.storage.k8s.io/` are never passed to `T` and never
/// count as unknown: Kubernetes reserves them for its own components
/// (<https://kubernetes-csi.github.io/docs/external-provisioner.html>).
///
/// Each value is a string, which is parsed according to the type of its field:
///
/// | type | text |
/// |---|---|
/// | `String`, `PathBuf` and similar | unchanged |
/// | `bool` | `true` or `false` |
/// | integers, floats, `char` | Rust's notation; no infinities |
/// | enum of plain variants | name of a variant |
/// | `Option<T>` | `T`; `None` only if the key is absent |
/// | `Vec<T>`, sets, arrays, tuples | elements separated by commas, surrounding blanks removed; the empty string is the empty list |
/// | a type with a custom `Deserialize` | whatever it accepts as a string |
///
/// The attributes `default`, `rename`, `rename_all`, `alias`, `with` and `deserialize_with` work as usual.
/// Unknown keys are rejected even without `deny_unknown_fields`.
///
/// # Limits
///
/// Serde hides the types behind `flatten`, `untagged` and `tag`: values read through them are always strings, so
/// `String`, `Option<String>`, plain enums and maps of these work there, but numbers do not. To serde, a struct with a
/// flattened field is a map: its unknown keys are noticed only if the flattened struct itself rejects them. A custom
/// `Deserialize` must either request a struct and name all its keys, or request a map.
///
/// # Errors
///
/// Returns one [`ParameterError`] that names every unknown key and every malformed value or, if no value is malformed,
/// the first missing key.
pub fn from_map<T: DeserializeOwned>(map: &BTreeMap<String, String>) -> Result<T, ParameterError> {
    let given = || map.iter().filter(|(key, _)| !is_reserved(key));
    let mut class = ClassMap::new(given());
    let mut result = T::deserialize(&mut class);
    let mut problems = class.into_unknown();
    let (mut malformed, unknown) = (BTreeSet::new(), problems.len());
    // Serde stops at the first problem. Problems after an omitted key may only be caused by the omission.
    loop {
        let problem = match result {
            Ok(parameters) if problems.is_empty() => return Ok(parameters),
            Ok(_) => break,
            Err(fault) => fault.into_problem(),
        };
        let key = problem.key().map(str::to_owned);
        if problems.len() == unknown || key.is_some() {
            problems.push(problem);
        }
        if problems.len() >= MAX_PROBLEMS || !key.is_some_and(|key| malformed.insert(key)) {
            break;
        }
        result = T::deserialize(&mut ClassMap::new(given().filter(|(key, _)| !malformed.contains(*key))));
    }
    Err(ParameterError { problems })
}

/// Returns the keys that `T` knows, if it is a struct.
pub(crate) fn keys_of<T: DeserializeOwned>() -> Option<&'static [&'static str]> {
    let mut class = ClassMap::new(std::iter::empty());
    // Only the requested fields matter. The result is an error if a field is required.
    let _ = T::deserialize(&mut class);
    class.fields()
}

/// The maximum number of reported problems, which is more than fit into an event.
const MAX_PROBLEMS: usize = 64;

/// Reads a parameter and treats an empty string as absent, because manifest templates produce empty strings.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Parameters {
///     #[serde(default, deserialize_with = "kube_provisioner::parameters::unless_empty")]
///     endpoint: Option<kube_provisioner::bucket::Endpoint>,
/// }
///
/// let class = [("endpoint".into(), "".into())].into();
/// let parameters: Parameters = kube_provisioner::parameters::from_map(&class).unwrap();
/// assert_eq!(parameters.endpoint, None);
/// ```
///
/// # Errors
///
/// The errors of `T`.
pub fn unless_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
}

/// Implements `Deserialize` for types with [`FromStr`](std::str::FromStr), so that they can be parameters as well as
/// flags. The calling crate needs `serde`.
///
/// ```
/// #[derive(Debug, PartialEq)]
/// struct Region(String);
///
/// impl std::str::FromStr for Region {
///     type Err = &'static str;
///
///     fn from_str(text: &str) -> Result<Self, Self::Err> {
///         if text.is_empty() { Err("expected a region") } else { Ok(Self(text.to_owned())) }
///     }
/// }
///
/// kube_provisioner::deserialize_from_str!(Region);
/// ```
#[macro_export]
macro_rules! deserialize_from_str {
    ($($type:ty),+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    )+};
}

/// The problems in the parameters of a StorageClass, displayed as one line for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    problems: Vec<Problem>,
}

impl ParameterError {
    /// Returns at least one problem, and at most 65: unknown keys first, then malformed values.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ParameterError {}

impl Problem {
    /// Returns the key that is set but cannot be used.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Unknown { key, .. }
            | Self::Repeated { key, .. }
            | Self::Malformed { key, .. }
            | Self::Unsupported { key } => Some(key),
            Self::Missing { .. } | Self::Rejected { .. } => None,
        }
    }
}

/// A problem in the parameters of a StorageClass.
///
/// Strings quoted in `reason` are truncated after 64 characters and contain no unprintable characters; `key` is
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Problem {
    /// The provisioner knows no such parameter.
    Unknown {
        /// As written in the class.
        key: String,
        /// A similar key that the provisioner knows and the class does not contain.
        suggestion: Option<String>,
    },
    /// The parameter is set a second time under another of its names.
    Repeated {
        /// The later one of the two keys.
        key: String,
        /// The parameter's canonical name.
        name: String,
    },
    /// The parameter does not accept the value.
    Malformed {
        /// As written in the class.
        key: String,
        /// The value and what is expected instead, such as `"ten" is not a whole number between 0 and 255`.
        reason: String,
    },
    /// A bug in the provisioner: the parameter's type is a map or a struct, or the variant holds data.
    Unsupported {
        /// As written in the class.
        key: String,
    },
    /// A parameter without a default is missing.
    Missing {
        /// The canonical name, not an alias.
        key: String,
    },
    /// The provisioner's type rejects the parameters as a whole.
    Rejected {
        /// The type's message.
        reason: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { key, suggestion } => {
                write!(f, "unknown parameter {}", quoted(key))?;
                f.write_str(&suggestion_text(suggestion.as_deref()))
            }
            Self::Repeated { key, name } if key == name => {
                write!(f, "parameter {} is set twice, once under an alias", quoted(key))
            }
            Self::Repeated { key, name } => {
                write!(f, "parameter {} is an alias of {}, which is already set", quoted(key), quoted(name))
            }
            Self::Malformed { key, reason } => write!(f, "parameter {}: {reason}", quoted(key)),
            Self::Unsupported { key } => write!(
                f,
                "parameter {}: the provisioner expects a nested value, but parameters can only be text, numbers, \
                 true or false, names, and comma separated lists of these",
                quoted(key)
            ),
            Self::Missing { key } => write!(f, "parameter {} is required", quoted(key)),
            Self::Rejected { reason } => f.write_str(reason),
        }
    }
}

/// Returns the "did you mean" addition for a misspelt key.
pub(crate) fn suggestion_text(suggestion: Option<&str>) -> String {
    suggestion.map(|known| format!(" (did you mean {}?)", quoted(known))).unwrap_or_default()
}

/// Returns true if Kubernetes reserves `key` for its own components.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with("csi.storage.k8s.io/")
}
