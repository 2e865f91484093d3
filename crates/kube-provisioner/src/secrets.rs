//! The Secrets named by classes. Their data is never printed.

use std::collections::BTreeMap;
use std::fmt;

/// The Secrets of one call, by the roles that [the provisioner declares](crate::Capabilities::secret).
///
/// ```
/// # use kube_provisioner::Secrets;
/// let secrets = Secrets::new([("admin", [("password", "open sesame")])]);
/// assert_eq!(secrets.text("admin", "password"), Some("open sesame"));
/// assert_eq!(format!("{secrets:?}"), "Secrets [admin]");
/// ```
#[derive(Clone, Default)]
pub struct Secrets(BTreeMap<String, BTreeMap<String, Vec<u8>>>);

impl Secrets {
    /// Creates the Secrets of these roles from their data, for use in tests.
    pub fn new<R, D, K, V>(roles: impl IntoIterator<Item = (R, D)>) -> Self
    where
        R: Into<String>,
        D: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<Vec<u8>>,
    {
        let mut secrets = Self::default();
        for (role, data) in roles {
            secrets.insert(role.into(), data.into_iter().map(|(key, value)| (key.into(), value.into())).collect());
        }
        secrets
    }

    pub(crate) fn insert(&mut self, role: String, data: BTreeMap<String, Vec<u8>>) {
        self.0.insert(role, data);
    }

    /// Returns one entry of a role's Secret, or `None` if the Secret has no such key or the class names no Secret for
    /// this role.
    pub fn bytes(&self, role: &str, key: &str) -> Option<&[u8]> {
        self.0.get(role)?.get(key).map(Vec::as_slice)
    }

    /// Returns one entry of a role's Secret, as text without surrounding white space.
    pub fn text(&self, role: &str, key: &str) -> Option<&str> {
        str::from_utf8(self.bytes(role, key)?).ok().map(str::trim)
    }

    /// Returns true if the class names a Secret for this role.
    pub fn has(&self, role: &str) -> bool {
        self.0.contains_key(role)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets [{}]", self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}
