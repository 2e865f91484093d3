//! Types whose `Deserialize` behaves differently from derived implementations.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::from_map;

/// Reads `map` into each of these types; none may panic or loop.
pub(super) fn read_all(map: &BTreeMap<String, String>) {
    let _ = from_map::<Hostile<LEAVES_EARLY>>(map);
    let _ = from_map::<Hostile<NEVER_CONTENT>>(map);
    let _ = from_map::<Hostile<VALUE_FIRST>>(map);
    let _ = from_map::<Hostile<REFUSES_KEYS>>(map);
    let _ = from_map::<Untagged>(map);
    let _ = from_map::<Tagged>(map);
}

#[test]
fn counts_the_problems_of_unusual_types() {
    let map = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    let problems = |error: super::ParameterError| error.problems().len();
    assert_eq!(from_map::<Hostile<LEAVES_EARLY>>(&map).map_err(problems).err(), Some(2));
    assert_eq!(from_map::<Hostile<NEVER_CONTENT>>(&map).map_err(problems).err(), Some(3));
    assert_eq!(from_map::<Hostile<VALUE_FIRST>>(&map).map_err(problems).err(), Some(3));
    assert_eq!(from_map::<Hostile<REFUSES_KEYS>>(&map).map_err(problems).err(), Some(2));
}

#[test]
fn untagged_and_tagged_enums_receive_strings() {
    let map = |pairs: [(&str, &str); 1]| BTreeMap::from(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let server = from_map(&map([("server", "a")])).ok();
    assert_eq!(server, Some(Untagged::Server { server: "a".to_owned() }));
    assert_eq!(
        from_map(&map([("other", "1")])).ok(),
        None::<Untagged>,
        "serde passes the value as a string, which is not a number"
    );
    assert_eq!(from_map(&map([("server", "B")])).ok(), Some(Tagged::B));
    assert_eq!(from_map(&map([("server", "A")])).ok(), None::<Tagged>);
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

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Untagged {
    Server { server: String },
    Map(BTreeMap<String, u8>),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "server")]
enum Tagged {
    A { size: u8 },
    B,
}
