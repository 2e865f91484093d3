//! What an author has found out before an attempt begins.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The result of [`Hooks::prepare`](crate::Hooks::prepare), which all calls of an attempt get. Empty by default.
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
pub struct Prepared(Option<Box<RawValue>>);

impl Prepared {
    /// Keeps a value as JSON. It becomes part of the attempt's record, so it must be small and contain no secrets.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        Ok(Self(Some(serde_json::value::to_raw_value(value)?)))
    }

    /// The value that was kept; `null` where there is none.
    ///
    /// # Errors
    /// If the value has another shape.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.0.as_deref().map_or("null", RawValue::get))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
