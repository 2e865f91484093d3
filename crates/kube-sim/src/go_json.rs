//! JSON as Go's `encoding/json` reads it: repeated members, and its errors for invalid JSON.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A parsed text.
#[derive(Debug, PartialEq)]
pub(crate) struct Parsed {
    /// The value. The last of several repeated members counts.
    pub(crate) value: Value,
    /// Paths of repeated members, e.g. `data.a`.
    pub(crate) duplicates: Vec<String>,
}

/// Parses a text. Errors are Go's.
pub(crate) fn parse(json: &[u8]) -> Result<Parsed, String> {
    let mut repeated = false;
    // Checks UTF-8 once instead of per string.
    let value = str::from_utf8(json).map_err(|error| error.to_string()).and_then(|text| {
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = Seed { repeated: &mut repeated }.deserialize(&mut reader);
        value.and_then(|value| reader.end().map(|()| value)).map_err(|error| error.to_string())
    });
    match value {
        // Searches for their paths only if there are any.
        Ok(value) if repeated => Ok(Parsed { value, duplicates: duplicates(json) }),
        Ok(value) => Ok(Parsed { value, duplicates: Vec::new() }),
        Err(error) => Err(Scanner { text: json, at: 0 }.document().err().unwrap_or(error)),
    }
}

/// Returns the kind of a value as Go's type errors name it.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Reads a value and notes whether it has repeated members.
struct Seed<'a> {
    repeated: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed { repeated: self.repeated })? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut list: Vec<(String, Value)> = Vec::new();
        while let Some(name) = members.next_key()? {
            list.push((name, members.next_value_seed(Seed { repeated: self.repeated })?));
        }
        let count = list.len();
        // Usually the list is already sorted. The last of several repeated members stays.
        let map: Map<String, Value> = list.into_iter().collect();
        *self.repeated |= map.len() < count;
        Ok(map.into())
    }
}

/// Returns the paths of repeated members of valid JSON.
fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // This cannot fail: the text was parsed before.
    let _ = DuplicateFinder { at: String::new(), found: &mut found }.deserialize(&mut reader);
    found
}

/// Walks a value and collects the paths of repeated members.
struct DuplicateFinder<'a> {
    at: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for DuplicateFinder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateFinder<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        while items
            .next_element_seed(DuplicateFinder { at: format!("{}[{index}]", self.at), found: self.found })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut known: Vec<String> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            let at = if self.at.is_empty() { name.clone() } else { format!("{}.{name}", self.at) };
            if known.contains(&name) && !self.found.contains(&at) {
                self.found.push(at.clone());
            }
            known.push(name);
            members.next_value_seed(DuplicateFinder { at, found: self.found })?;
        }
        Ok(())
    }
}

/// `encoding/json/scanner.go`: finds the first invalid character.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn document(mut self) -> Result<(), String> {
        self.value()?;
        match self.after_space() {
            None => Ok(()),
            Some(_) => self.refuse("after top-level value"),
        }
    }

    fn value(&mut self) -> Result<(), String> {
        const START: &str = "looking for beginning of value";
        match self.after_space() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => self.refuse(START),
        }
    }

    fn object(&mut self) -> Result<(), String> {
        self.at += 1;
        if self.after_space() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            match self.after_space() {
                Some(b'"') => self.string()?,
                _ => return self.refuse("looking for beginning of object key string"),
            }
            match self.after_space() {
                Some(b':') => self.at += 1,
                _ => return self.refuse("after object key"),
            }
            self.value()?;
            match self.after_space() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.refuse("after object key:value pair"),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn list(&mut self) -> Result<(), String> {
        self.at += 1;
        if self.after_space() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            match self.after_space() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return self.refuse("after array element"),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            self.at += 1;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'u') => {
                            for _ in 0..4 {
                                self.at += 1;
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return self.refuse("in \\u hexadecimal character escape");
                                }
                            }
                        }
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {}
                        _ => return self.refuse("in string escape code"),
                    }
                }
                Some(0x20..) => {}
                _ => return self.refuse("in string literal"),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.refuse("in numeric literal"),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            match self.peek() {
                Some(b'0'..=b'9') => self.digits(),
                _ => return self.refuse("after decimal point in numeric literal"),
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            match self.peek() {
                Some(b'0'..=b'9') => self.digits(),
                _ => return self.refuse("in exponent of numeric literal"),
            }
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return self.refuse(&format!("in literal {word} (expecting {:?})", char::from(expected)));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn after_space(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn refuse(&self, context: &str) -> Result<(), String> {
        // Go prints single bytes, as Latin-1 characters.
        Err(match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(b'\'') => format!(r"invalid character '\'' {context}"),
            Some(b'"') => format!("invalid character '\"' {context}"),
            Some(byte) => format!("invalid character '{}' {context}", char::from(byte).escape_debug()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn last_of_repeated_members_wins() {
        let parsed = parse(br#"{"a":{"b":1,"b":2},"l":[{"c":1,"c":1,"c":3}],"a":{"b":3}}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": {"b": 3}, "l": [{"c": 3}]}));
        assert_eq!(parsed.duplicates, ["a.b", "l[0].c", "a"]);
        assert_eq!(parse(b" 7 ").unwrap(), Parsed { value: json!(7), duplicates: Vec::new() });
    }

    #[test]
    fn rejects_invalid_json_with_go_errors() {
        let end = "unexpected end of JSON input";
        for (text, error) in [
            ("", end),
            ("{", end),
            ("[1,", end),
            (r#""a"#, end),
            ("no json", "invalid character 'o' in literal null (expecting 'u')"),
            ("\u{69}\u{b7}", "invalid character 'i' looking for beginning of value"),
            ("{} more", "invalid character 'm' after top-level value"),
            ("{a}", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\n\"", r"invalid character '\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00x""#, "invalid character 'x' in \\u hexadecimal character escape"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), error, "{text}");
        }
    }
}
