//! Objects that did not exist when they were last requested.
//!
//! The charts of drivers do not grant permission to watch Secrets, so claims that wait for an object request it every
//! [`PAUSE`]. Regardless of the number of waiting claims, the API server receives one request per object in [`AGE`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two attempts of a claim that waits for an object.
pub(crate) const PAUSE: Duration = Duration::from_secs(4);
/// Time for which the answer that an object does not exist remains valid.
const AGE: Duration = Duration::from_secs(3);
/// After this time without a request, no claim waits for the object any more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The time of the last request for each missing object. Objects are texts, such as `the Secret default/admin`.
#[derive(Default)]
pub(crate) struct MissingObjects(Mutex<BTreeMap<String, Instant>>);

impl MissingObjects {
    /// Reads an object, unless it was found missing within [`AGE`].
    pub(crate) async fn read<T, E>(
        &self,
        object: &str,
        read: impl Future<Output = Result<Option<T>, E>>,
    ) -> Result<Option<T>, E> {
        if self.is_known_missing(object) {
            return Ok(None);
        }
        let found = read.await?;
        self.note(object, found.is_some());
        Ok(found)
    }

    /// Returns true if the object was found missing within [`AGE`]. Otherwise reserves the request for the caller.
    fn is_known_missing(&self, object: &str) -> bool {
        let mut known = self.lock();
        let Some(asked) = known.get_mut(object) else { return false };
        let is_known_missing = asked.elapsed() < AGE;
        if !is_known_missing {
            *asked = Instant::now();
        }
        is_known_missing
    }

    /// Returns true if the object was missing when it was last requested.
    pub(crate) fn was_missing(&self, object: &str) -> bool {
        self.lock().contains_key(object)
    }

    fn note(&self, object: &str, exists: bool) {
        let mut known = self.lock();
        known.retain(|name, asked| name != object && asked.elapsed() < FORGOTTEN);
        if !exists {
            known.insert(object.to_owned(), Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
