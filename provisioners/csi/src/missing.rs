//! Objects that did not exist when they were last asked for.
//!
//! The charts of drivers do not grant to watch Secrets, so claims that wait for an object ask for it every [`PAUSE`]. However many
//! wait, the API server is asked for each object once in [`AGE`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two attempts of a claim that waits for an object.
pub(crate) const PAUSE: Duration = Duration::from_secs(4);
/// How long the answer that there is no such object counts.
const AGE: Duration = Duration::from_secs(3);
/// After this time nobody waits any more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// When each missing object was asked for. Objects are texts, such as `the Secret default/admin`.
#[derive(Default)]
pub(crate) struct Missing(Mutex<BTreeMap<String, Instant>>);

impl Missing {
    /// Whether it was missing a moment ago. Otherwise the caller asks for it, and nobody else does at the same time.
    pub(crate) fn is_certain(&self, object: &str) -> bool {
        let mut known = self.lock();
        let Some(asked) = known.get_mut(object) else { return false };
        let is_certain = asked.elapsed() < AGE;
        if !is_certain {
            *asked = Instant::now();
        }
        is_certain
    }

    /// Whether it was missing when it was last asked for.
    pub(crate) fn is_likely(&self, object: &str) -> bool {
        self.lock().contains_key(object)
    }

    /// Notes whether it exists.
    pub(crate) fn note(&self, object: &str, exists: bool) {
        let mut known = self.lock();
        match exists {
            true => drop(known.remove(object)),
            false => {
                known.retain(|_, asked| asked.elapsed() < FORGOTTEN);
                known.insert(object.to_owned(), Instant::now());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
