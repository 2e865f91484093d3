//! Types whose `Deserialize` does not do what derived ones do.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::from_map;

/// Reads `map` into each of them; none may panic or loop.
pub(super) fn read_all(map: &BTreeMap<String, String>) {
    let _ = from_map::<Hostile<LEAVES_EARLY>>(map);
    let _ = from_map::<Hostile<NEVER_CONTENT>>(map);
    let _ = from_map::<Hostile<VALUE_FIRST>>(map);
    let _ = from_map::<Hostile<REFUSES_KEYS>>(map);
    let _ = from_map::<Untagged>(map);
    let _ = from_map::<Tagged>(map);
}

#[test]
fn problems_of_unusual_types() {
    let map = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    let problems = |error: super::ParameterError| error.problems().len();
    assert_eq!(from_map::<Hostile<LEAVES_EARLY>>(&map).map_err(problems).err(), Some(2));
    assert_eq!(from_map::<Hostile<NEVER_CONTENT>>(&map).map_err(problems).err(), Some(1));
    assert_eq!(from_map::<Hostile<VALUE_FIRST>>(&map).map_err(problems).err(), Some(1));
    assert_eq!(from_map::<Hostile<REFUSES_KEYS>>(&map).map_err(problems).err(), Some(2));
}

const LEAVES_EARLY: u8 = 0;
const NEVER_CONTENT: u8 = 1;
const VALUE_FIRST: u8 = 2;
const REFUSES_KEYS: u8 = 3;

#[derive(Debug)]
struct Hostile<const HOW: u8>;

impl<'de, const HOW: u8> Deserialize<'de> for Hostile<HOW> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Hostile", &["c"], Self)
    }
}

impl<'de, const HOW: u8> Visitor<'de> for Hostile<HOW> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trouble")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        match HOW {
            NEVER_CONTENT => {
                while map.next_entry::<String, String>()?.is_some() {}
                Err(A::Error::missing_field("a"))
            }
            VALUE_FIRST => map.next_value::<String>().map(|_| self),
            REFUSES_KEYS => match map.next_key::<String>()? {
                Some(_) => Err(A::Error::custom("no")),
                None => Ok(self),
            },
            _ => Ok(self),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[allow(dead_code)]
enum Untagged {
    Server { server: String },
    Map(BTreeMap<String, u8>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "server")]
#[allow(dead_code)]
enum Tagged {
    A { size: u8 },
    B,
}
