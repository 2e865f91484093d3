//! The information that a provisioner collects before an attempt begins.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The result of [`Hooks::prepare`](crate::Hooks::prepare), which all calls of an attempt receive. Empty by default.
///
/// ```
/// use kube_provisioner::Prepared;
///
/// let prepared = Prepared::new(&("zone-a", 3))?;
/// assert_eq!(prepared.read::<(String, u32)>()?, ("zone-a".to_owned(), 3));
/// assert_eq!(Prepared::default().read::<Option<String>>()?, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Prepared {
    own: Option<Box<RawValue>>,
    /// A separate part of the record.
    #[serde(skip)]
    pub(crate) shared: Option<Arc<str>>,
}

impl Prepared {
    /// Stores a value as JSON. It becomes part of the attempt's record, so it must be small and contain no secrets.
    ///
    /// # Errors
    /// If the value cannot be serialized as JSON.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        Ok(Self { own: Some(serde_json::value::to_raw_value(value)?), shared: None })
    }

    /// Stores an additional string, which may be larger: the records of all attempts with the same string contain it
    /// once.
    ///
    /// # Panics
    /// If the string contains line breaks, because they separate the texts in the journal.
    #[must_use]
    pub fn with_shared(self, text: impl Into<Arc<str>>) -> Self {
        let text: Arc<str> = text.into();
        assert!(!text.contains(['\n', '\r']), "Prepared::with_shared: the string must not contain line breaks");
        Self { shared: Some(text), ..self }
    }

    /// Returns the additional string.
    pub fn shared(&self) -> Option<&str> {
        self.shared.as_deref()
    }

    /// Returns the stored value, or reads `null` if there is none.
    ///
    /// # Errors
    /// If the value cannot be deserialized as `T`.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.own.as_deref().map_or("null", RawValue::get))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "must not contain line breaks")]
    fn rejects_line_breaks_in_a_shared_string() {
        drop(Prepared::default().with_shared("first\nspec-0c1f {}"));
    }
}
