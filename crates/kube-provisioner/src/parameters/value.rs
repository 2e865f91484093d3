//! The serde deserializer of one value, which parses its string as the type requires.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::fault::Fault;

/// A whole value, a key, or one element of a list.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    text: &'a str,
    is_element: bool,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, is_element: false }
    }

    fn list<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_element {
            return Err(Fault::NotFlat);
        }
        let is_empty = self.text.trim().is_empty();
        let mut elements = Elements { list: self.text, rest: (!is_empty).then_some(self.text) };
        let value = visitor.visit_seq(&mut elements).map_err(|fault| fault.about(self.text))?;
        match elements.rest {
            None => Ok(value),
            Some(_) => Err(Fault::malformed(self.text, "has too many elements")),
        }
    }
}

macro_rules! whole_numbers {
    ($($deserialize:ident $visit:ident $number:ty;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let (min, max) = (<$number>::MIN, <$number>::MAX);
            match self.text.parse() {
                Ok(number) => visitor.$visit::<Fault>(number).map_err(|fault| fault.about(self.text)),
                Err(_) => Err(Fault::malformed(self.text, format_args!("is not a whole number between {min} and {max}"))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Fault;

    whole_numbers! {
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
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str::<Fault>(self.text).map_err(|fault| fault.about(self.text))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Fault::malformed(other, r#"is not "true" or "false""#)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text.parse::<f32>() {
            Ok(number) if number.is_finite() => visitor.visit_f32(number),
            _ => Err(Fault::malformed(self.text, "is not a number")),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text.parse::<f64>() {
            Ok(number) if number.is_finite() => visitor.visit_f64(number),
            _ => Err(Fault::malformed(self.text, "is not a number")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text.parse() {
            Ok(character) => visitor.visit_char(character),
            Err(_) => Err(Fault::malformed(self.text, "is not a single character")),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bytes(self.text.as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text {
            "" => visitor.visit_unit(),
            other => Err(Fault::malformed(other, "is not empty")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.list(visitor)
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
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(Variant(self.text))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        str string identifier
    }
}

/// The elements of a comma separated list.
struct Elements<'a> {
    list: &'a str,
    /// `None` after the last element.
    rest: Option<&'a str>,
}

impl<'de> SeqAccess<'de> for &mut Elements<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some(rest) = self.rest else { return Ok(None) };
        let (element, rest) = match rest.split_once(',') {
            Some((element, rest)) => (element, Some(rest)),
            None => (rest, None),
        };
        self.rest = rest;
        let text = element.trim();
        if text.is_empty() {
            return Err(Fault::malformed(self.list, "has an empty element"));
        }
        seed.deserialize(Text { text, is_element: true }).map(Some).map_err(|fault| fault.about(text))
    }
}

/// The name of a variant without data.
struct Variant<'a>(&'a str);

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let name: StrDeserializer<'_, Fault> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, Fault> {
        Err(Fault::NotFlat)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        Err(Fault::NotFlat)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Fault> {
        Err(Fault::NotFlat)
    }
}
