//! The search for every problem, although serde gives up at the first.
//!
//! A run over all parameters ends with at most one fault. The search notes it, puts something harmless where the
//! fault was, and runs again: behind a malformed value or a missing key stands a made-up value that the field's
//! type accepts. Nothing that is found out with made-up values is reported unless it is true without them.

use std::cell::Cell;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::Problem;
use super::fault::Fault;
use super::stand_in::StandIn;
use super::suggest::nearest;
use super::value::Text;

pub(super) struct Search<'a> {
    entries: Vec<Entry<'a>>,
    problems: Vec<Problem>,
    /// The names that the struct asks for, aliases included; `None` while it is a map.
    fields: Option<&'static [&'static str]>,
    /// What the current run is reading.
    position: Option<Position>,
}

struct Entry<'a> {
    key: &'a str,
    state: State<'a>,
}

#[derive(Clone, Copy)]
enum State<'a> {
    /// As the class has it.
    Given(&'a str),
    /// A made-up value takes the place; this is the how manieth.
    StandIn(usize),
    /// The key was refused: it is shown to nobody any more.
    Refused,
    /// No made-up value did. `blamed` once the key was found missing under its own name.
    Opaque { blamed: bool },
}

#[derive(Clone, Copy)]
struct Position {
    index: usize,
    in_value: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(parameters: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let entry = |(key, value): (&'a String, &'a String)| Entry { key, state: State::Given(value) };
        Self { entries: parameters.map(entry).collect(), problems: vec![], fields: None, position: None }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Notes the fault that ended a run. `false` if another run could find nothing more.
    pub(super) fn learn(&mut self, fault: Fault) -> bool {
        match (fault, self.position.take()) {
            (Fault::Missing(name), None) => self.learn_missing(name),
            (fault, Some(Position { index, in_value: true })) => self.learn_value(index, fault),
            (fault, Some(Position { index, in_value: false })) => {
                let key = self.entries[index].key.to_owned();
                self.entries[index].state = State::Refused;
                self.problems.push(match fault {
                    Fault::Duplicate(name) => Problem::Repeated { key, name: name.into() },
                    Fault::Unknown => Problem::Unknown { key, suggestion: None },
                    other => Problem::Malformed { reason: other.about(&key).to_string(), key },
                });
            }
            (fault, None) => {
                // May be due to a made-up value, if there is one.
                if self.is_clean() {
                    self.problems.push(Problem::Rejected { reason: fault.to_string() });
                }
                return false;
            }
        }
        self.problems.len() < MOST_PROBLEMS && !self.is_blocked()
    }

    fn learn_missing(&mut self, name: &'static str) {
        match self.entries.iter_mut().find(|entry| entry.key == name) {
            Some(Entry { state: State::Opaque { blamed }, .. }) => *blamed = true,
            // Only a hand-written `Deserialize` asks for a key that it was shown.
            Some(entry) => entry.state = State::Opaque { blamed: true },
            None => {
                self.problems.push(Problem::Missing { key: name.into() });
                self.entries.push(Entry { key: name, state: State::StandIn(0) });
            }
        }
        if self.is_clean() {
            self.problems.push(Problem::Missing { key: name.into() });
        }
    }

    fn learn_value(&mut self, index: usize, fault: Fault) {
        let Entry { key, state } = &mut self.entries[index];
        *state = match *state {
            State::Given(value) => {
                let key = (*key).to_owned();
                self.problems.push(match fault {
                    Fault::NotFlat => Problem::Unsupported { key },
                    fault => Problem::Malformed { key, reason: fault.about(value).to_string() },
                });
                State::StandIn(0)
            }
            State::StandIn(tried) if tried + 1 < StandIn::CHOICES => State::StandIn(tried + 1),
            _ => State::Opaque { blamed: false },
        };
    }

    /// A run cannot get past a missing key for which there is nothing to make up.
    fn is_blocked(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, State::Opaque { blamed: true }))
    }

    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        // A key that had to be left out may have been meant, under an alias, for a field that then seemed missing.
        if self.entries.iter().any(|entry| matches!(entry.state, State::Opaque { blamed: false })) {
            self.problems.retain(|problem| !matches!(problem, Problem::Missing { .. }));
        }
        let is_given = |name: &str| {
            let given = |entry: &Entry<'_>| entry.key == name && matches!(entry.state, State::Given(_));
            self.entries.iter().any(given)
        };
        let known: Vec<_> = self.fields.unwrap_or_default().iter().filter(|name| !is_given(name)).collect();
        for problem in &mut self.problems {
            if let Problem::Unknown { key, suggestion } = problem {
                *suggestion = nearest(key, known.iter().map(|name| **name)).map(str::to_owned);
            }
        }
        self.problems.sort();
        self.problems
    }

    /// Nobody wanted the value of this entry.
    fn ignored(&mut self, index: usize) {
        let Entry { key, state } = &mut self.entries[index];
        let is_unknown = self.fields.is_some_and(|fields| !fields.contains(key));
        if is_unknown && matches!(state, State::Given(_)) {
            *state = State::Refused;
            if self.problems.len() < MOST_PROBLEMS {
                self.problems.push(Problem::Unknown { key: (*key).to_owned(), suggestion: None });
            }
        }
    }

    fn run<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        let mut entries = Entries { search: self, next: 0 };
        let value = visitor.visit_map(&mut entries)?;
        // A hand-written visitor may leave early.
        for index in entries.next..entries.search.entries.len() {
            self.ignored(index);
        }
        self.position = None;
        Ok(value)
    }
}

impl<'de> Deserializer<'de> for &mut Search<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.run(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields = Some(fields);
        self.run(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.fields = Some(&[]);
        (0..self.entries.len()).for_each(|index| self.ignored(index));
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

/// One run over the entries that are left.
struct Entries<'s, 'a> {
    search: &'s mut Search<'a>,
    next: usize,
}

impl<'de> MapAccess<'de> for &mut Entries<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.search.position = None;
        let left = self.search.entries[self.next..].iter();
        let Some(skipped) = left.map(|entry| entry.state).position(State::is_shown) else {
            self.next = self.search.entries.len();
            return Ok(None);
        };
        let index = self.next + skipped;
        self.next = index + 1;
        self.search.position = Some(Position { index, in_value: false });
        let key = self.search.entries[index].key;
        seed.deserialize(Text::new(key)).map(Some).map_err(|fault| fault.about(key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some(Position { index, .. }) = self.search.position else {
            return Err(Fault::Custom("a value was asked for before its key".into()));
        };
        self.search.position = Some(Position { index, in_value: true });
        let ignored = Cell::new(false);
        let value = match self.search.entries[index].state {
            State::Given(text) => seed.deserialize(Text::watched(text, &ignored)),
            State::StandIn(choice) => seed.deserialize(StandIn::new(choice)),
            State::Refused | State::Opaque { .. } => return Err(Fault::NotFlat),
        }?;
        self.search.position = None;
        if ignored.get() {
            self.search.ignored(index);
        }
        Ok(value)
    }
}

impl State<'_> {
    fn is_shown(self) -> bool {
        matches!(self, Self::Given(_) | Self::StandIn(_))
    }
}

/// More than fit into an event, and few enough to bound the number of runs.
const MOST_PROBLEMS: usize = 64;
