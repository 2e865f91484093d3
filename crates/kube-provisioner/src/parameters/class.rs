//! The serde deserializer of a class's parameters: a struct or a map of strings.

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::fault::Fault;
use super::suggest::nearest;
use super::value::Text;
use super::{MAX_PROBLEMS, Problem};

pub(super) struct ClassMap<'a> {
    /// Keys without a field are removed once the fields are known.
    parameters: Vec<(&'a str, &'a str)>,
    unknown: Vec<Problem>,
    fields: Option<&'static [&'static str]>,
}

impl<'a> ClassMap<'a> {
    pub(super) fn new(parameters: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let parameters = parameters.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Self { parameters, unknown: Vec::new(), fields: None }
    }

    pub(super) fn into_unknown(self) -> Vec<Problem> {
        self.unknown
    }

    /// Returns all the names that a struct has requested, including aliases.
    pub(super) fn fields(&self) -> Option<&'static [&'static str]> {
        self.fields
    }

    fn allow(&mut self, fields: &'static [&'static str]) {
        self.fields = Some(fields);
        let (known, unknown): (Vec<_>, Vec<_>) = self.parameters.iter().partition(|(key, _)| fields.contains(key));
        self.parameters = known;
        let is_given = |name: &str| self.parameters.iter().any(|(key, _)| *key == name);
        let free: Vec<&str> = fields.iter().copied().filter(|name| !is_given(name)).collect();
        let problem = |(key, _): (&str, &str)| Problem::Unknown {
            key: key.to_owned(),
            suggestion: nearest(key, free.iter().copied()).map(str::to_owned),
        };
        self.unknown = unknown.into_iter().take(MAX_PROBLEMS).map(problem).collect();
    }
}

impl<'de> Deserializer<'de> for &mut ClassMap<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let mut entries = Entries { rest: self.parameters.iter(), last: None };
        visitor.visit_map(&mut entries).map_err(|fault| match (fault, entries.last) {
            (Fault::Duplicate(name), Some((key, _))) => {
                Problem::Repeated { key: (*key).to_owned(), name: name.to_owned() }.into()
            }
            (fault, _) => fault,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.allow(fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.allow(&[]);
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq tuple tuple_struct map
        enum identifier
    }
}

struct Entries<'s, 'a> {
    rest: std::slice::Iter<'s, (&'a str, &'a str)>,
    /// The entry of the last key.
    last: Option<&'s (&'a str, &'a str)>,
}

impl<'de> MapAccess<'de> for &mut Entries<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.last = self.rest.next();
        let Some((key, _)) = self.last else { return Ok(None) };
        seed.deserialize(Text::new(key)).map(Some).map_err(|fault| fault.of(key, key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((key, value)) = self.last else {
            return Err(Fault::Custom("a value was asked for before its key".into()));
        };
        seed.deserialize(Text::new(value)).map_err(|fault| fault.of(key, value))
    }
}
