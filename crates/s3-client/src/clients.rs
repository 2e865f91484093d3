//! Reuses clients, for programs that read the address of a service before each call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::client::{Client, Settings, SettingsError};
use crate::sign::Credentials;

/// Certificates change, and what was used with old ones is of no more use.
const MOST: usize = 100;

/// The clients that were made, by where they connect and what they sign for.
#[derive(Default)]
pub struct Clients {
    known: Mutex<BTreeMap<Key, Client>>,
}

/// Address, region, service and certificates.
type Key = (String, String, String, Option<Vec<u8>>);

impl Clients {
    /// A client with these settings, which signs with no key yet. Those with the same address, region, service and
    /// certificates share their connections, their limits and their clock.
    ///
    /// # Errors
    /// When the address or the certificates make no sense.
    pub fn get(&self, settings: Settings) -> Result<Client, SettingsError> {
        let Settings { endpoint, region, service, ca_bundle, .. } = &settings;
        let key = (endpoint.clone(), region.clone(), service.clone(), ca_bundle.clone());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        let client = Client::new(settings, Credentials::new("", ""))?;
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, client.clone());
        Ok(client)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
