//! Readers for what others wrote: what cannot be read is nothing, so that one odd object stops no list.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::bucket::ClaimReference;

/// Makes a missing field of this type, and `null`, its default. The type derives its own code with `serde(remote = "Self")`.
///
/// The derived kinds allow no attribute at their field `spec`, and some CRDs of the field do not ask for one.
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

/// Anything but a text reads as "".
pub(crate) fn string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(optional_string(deserializer)?.unwrap_or_default())
}

/// "" reads as none.
pub(crate) fn optional_string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(read::<String, _>(deserializer)?.filter(|text| !text.is_empty()))
}

/// "" reads as none.
pub(crate) fn word<'de, T: for<'a> From<&'a str>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(optional_string(deserializer)?.map(|word| T::from(&word)))
}

/// A value without quotes reads as its text: `maxObjects: 1000` is what its writer meant, and some CRDs let it pass.
pub(crate) fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let text = |value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let entries = read::<BTreeMap<String, Value>, _>(deserializer)?.unwrap_or_default();
    Ok(entries.into_iter().map(|(key, value)| (key, text(value))).collect())
}

/// A port that is none reads as 0.
pub(crate) fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(read(deserializer)?.unwrap_or_default())
}

pub(crate) fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    read(deserializer)
}

/// `{}` reads as none: some CRDs prune the reference to that.
pub(crate) fn claim_reference<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClaimReference>, D::Error> {
    Ok(read(deserializer)?.filter(|reference| *reference != ClaimReference::default()))
}

/// Conditions that are none are left out, each by itself.
pub(crate) fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let values = read::<Vec<Value>, _>(deserializer)?.unwrap_or_default();
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}

fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}
