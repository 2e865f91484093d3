//! Lenient readers for objects of other writers: unreadable values count as missing, so that one malformed object does
//! not break a list.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::bucket::ClaimReference;

/// Deserializes a missing field of this type, and `null`, as its default. The type derives its own code with
/// `serde(remote = "Self")`.
///
/// The derived kinds allow no attribute on their field `spec`, and some existing CRDs do not require the field.
macro_rules! absent_is_default {
    ($type:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($type);
                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        <$type>::deserialize(deserializer).map(Self)
                    }
                }
                Ok(Option::<Present>::deserialize(deserializer)?.map(|present| present.0).unwrap_or_default())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    };
}
pub(crate) use absent_is_default;

/// Reads anything but a string as "".
pub(crate) fn string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(optional_string(deserializer)?.unwrap_or_default())
}

/// Reads "" as `None`.
pub(crate) fn optional_string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(read::<String, _>(deserializer)?.filter(|text| !text.is_empty()))
}

/// Reads "" as `None`.
pub(crate) fn word<'de, T: for<'a> From<&'a str>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(optional_string(deserializer)?.map(|word| T::from(&word)))
}

/// Reads a value without quotes as its text: `maxObjects: 1000` is unambiguous, and some CRDs accept it.
pub(crate) fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let text = |value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let entries = read::<BTreeMap<String, Value>, _>(deserializer)?.unwrap_or_default();
    Ok(entries.into_iter().map(|(key, value)| (key, text(value))).collect())
}

/// Reads an invalid port as 0.
pub(crate) fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(read(deserializer)?.unwrap_or_default())
}

pub(crate) fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    read(deserializer)
}

/// Reads `{}` as `None`: some CRDs prune the reference to that.
pub(crate) fn claim_reference<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClaimReference>, D::Error> {
    Ok(read(deserializer)?.filter(|reference| *reference != ClaimReference::default()))
}

/// Reads conditions, and omits each one that is malformed.
pub(crate) fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let values = read::<Vec<Value>, _>(deserializer)?.unwrap_or_default();
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}

fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}
