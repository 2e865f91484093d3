//! The error type for serde, which stops at the first error.

use std::fmt::{self, Display};

use serde::de::{Error, Expected, Unexpected};

use super::{Problem, printable, quoted};

#[derive(Debug)]
pub(super) enum Fault {
    /// A message from the provisioner's type.
    Custom(String),
    /// A field occurs a second time.
    Duplicate(&'static str),
    /// The expected value.
    Expected(String),
    /// A field without a default is missing.
    Missing(&'static str),
    /// The type requires a nested value.
    NotFlat,
    /// The complete problem.
    Problem(Problem),
    /// The complete reason, including the value.
    Malformed(String),
}

impl Fault {
    pub(super) fn malformed(text: &str, complaint: impl Display) -> Self {
        // A URL may contain a password, and tenants read the event.
        let user = text.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        Self::Malformed(format!("{} {complaint}", quoted(user.map_or(text, |(_, host)| host))))
    }

    /// Adds the text that was read, unless the fault already names a part of it.
    pub(super) fn about(self, text: &str) -> Self {
        match self {
            Self::Custom(message) => Self::malformed(text, format_args!("is not valid: {}", printable(&message))),
            Self::Expected(expected) => Self::malformed(text, format_args!("is not {}", printable(&expected))),
            other => other,
        }
    }

    /// Turns the fault into one of the parameter `key`, at `text`.
    pub(super) fn of(self, key: &str, text: &str) -> Self {
        let key = key.to_owned();
        Self::Problem(match self {
            Self::NotFlat => Problem::Unsupported { key },
            fault => Problem::Malformed { key, reason: fault.about(text).to_string() },
        })
    }

    /// Converts the fault into a problem of all parameters, unless it names one.
    pub(super) fn into_problem(self) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            Self::Missing(name) => Problem::Missing { key: name.to_owned() },
            fault => Problem::Rejected { reason: fault.to_string() },
        }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(message) => f.write_str(&printable(message)),
            Self::Duplicate(name) => write!(f, "parameter {name:?} is given twice"),
            Self::Expected(expected) => write!(f, "expected {}", printable(expected)),
            Self::Missing(name) => write!(f, "parameter {name:?} is required"),
            Self::NotFlat => f.write_str("only flat values can be given"),
            Self::Problem(problem) => write!(f, "{problem}"),
            Self::Malformed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::Custom(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let names: Vec<_> = expected.iter().map(|name| quoted(name)).collect();
        match names.as_slice() {
            [only] => Self::malformed(variant, format_args!("is not {only}")),
            names => Self::malformed(variant, format_args!("is not one of {}", names.join(", "))),
        }
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Problem::Unknown { key: field.to_owned(), suggestion: None }.into()
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }
}
