//! Fields that the specification marks as secret.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

const STRIPPED: &str = "***stripped***";
/// The length of the shortest value that is removed from a text. Shorter ones, such as the name of a user, occur in
/// many texts.
const SHORTEST: usize = 6;

/// A map of secrets that shows neither keys nor values in its `Debug`.
///
/// On the wire, a map is a list of entries. This type is that list, because the `Debug` that prost derives for maps
/// shows everything.
#[derive(Clone, Default, PartialEq)]
pub struct Secrets(Vec<Entry>);

impl Secrets {
    /// Returns the value of `key`. If a key occurs twice, the last entry is used, as in any map on the wire.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    /// Returns true if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a text, such as a driver's message, without these secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut values: Vec<&str> = self.0.iter().map(|entry| entry.value.trim()).collect();
        values.retain(|value| value.len() >= SHORTEST);
        // A secret may contain another one.
        values.sort_by_key(|value| Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, STRIPPED))
    }

    /// Returns the secrets by key.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(secrets: I) -> Self {
        let by_key: BTreeMap<String, String> =
            secrets.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(by_key.into_iter().map(|(key, value)| Entry { key, value }).collect())
    }
}

impl Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STRIPPED)
    }
}

// These impls provide what prost's derived code needs for a repeated field.
#[doc(hidden)]
impl Deref for Secrets {
    type Target = Vec<Entry>;
    fn deref(&self) -> &Vec<Entry> {
        &self.0
    }
}

#[doc(hidden)]
impl DerefMut for Secrets {
    fn deref_mut(&mut self) -> &mut Vec<Entry> {
        &mut self.0
    }
}

#[doc(hidden)]
impl<'a> IntoIterator for &'a Secrets {
    type Item = &'a Entry;
    type IntoIter = std::slice::Iter<'a, Entry>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A key and a value, numbered like the entries of any map.
#[doc(hidden)]
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

impl Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STRIPPED)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Plain {
        #[prost(btree_map = "string, string", tag = "2")]
        secrets: BTreeMap<String, String>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Hidden {
        #[prost(message, repeated, tag = "2")]
        secrets: Secrets,
    }

    #[test]
    fn secrets_are_a_map_on_the_wire() {
        let map = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let request = Hidden { secrets: map.iter().map(|(key, value)| (key.clone(), value.clone())).collect() };
        let plain = Plain::decode(request.encode_to_vec().as_slice()).unwrap();
        assert_eq!(plain.secrets, map);
        let back = Hidden::decode(plain.encode_to_vec().as_slice()).unwrap();
        assert_eq!(back, request);
        assert_eq!(back.secrets.get("b"), Some("2"));
    }

    #[test]
    fn redacts_secrets_but_not_short_values() {
        let secrets = Secrets::from_iter([("user", "admin"), ("password", "hunter2\n"), ("key", "a-hunter2-b")]);
        let text = "mount -o user=admin,password=hunter2,key=a-hunter2-b: denied";
        let expected = "mount -o user=admin,password=***stripped***,key=***stripped***: denied";
        assert_eq!(secrets.redact(text), expected);
    }

    #[test]
    fn debug_shows_no_secret() {
        let secrets = Secrets::from_iter([("user", "hunter2")]);
        let shown = format!("{secrets:?} {secrets:#?} {:?}", *secrets);
        assert!(!shown.contains("hunter2") && !shown.contains("user"), "{shown}");
    }
}
