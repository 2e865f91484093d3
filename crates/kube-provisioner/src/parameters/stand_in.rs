//! A made-up value, for a field that must have one before serde looks at the next.

use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};

use super::fault::Fault;
use super::value::Variant;

/// One of several guesses at what a field may accept.
#[derive(Clone, Copy)]
pub(super) struct StandIn {
    choice: usize,
}

impl StandIn {
    pub(super) const CHOICES: usize = TEXTS.len();

    pub(super) fn new(choice: usize) -> Self {
        Self { choice }
    }

    fn text(self) -> &'static str {
        TEXTS[self.choice % TEXTS.len()]
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $number:ty;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.choice as $number)
        }
    )*};
}

impl<'de> Deserializer<'de> for StandIn {
    type Error = Fault;

    numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bool(self.choice % 2 == 1)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_char(self.text().chars().next().unwrap_or('a'))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bytes(self.text().as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.choice {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// No element at first, then a single one.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Copies { left: self.choice.min(1), of: self })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Copies { left: length, of: self })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        Err(Fault::NotFlat)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fault> {
        Err(Fault::NotFlat)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match variants.get(self.choice) {
            Some(variant) => visitor.visit_enum(Variant(variant)),
            None => Err(Fault::NotFlat),
        }
    }

    serde::forward_to_deserialize_any! { str string identifier ignored_any }
}

struct Copies {
    left: usize,
    of: StandIn,
}

impl<'de> SeqAccess<'de> for Copies {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.of).map(Some)
    }
}

/// What types that are written as text commonly accept: at least one of numbers, durations, sizes, names, paths,
/// addresses, links, assignments, dates and ids.
const TEXTS: [&str; 16] = [
    "",
    "1",
    "a",
    "1s",
    "1Gi",
    "/",
    "true",
    "a.b",
    "a=b",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.0/8",
    "http://a/",
    "2000-01-01",
    "2000-01-01T00:00:00Z",
    "00000000-0000-0000-0000-000000000000",
];
