//! The numbers of fields, from `shapes/protobuf.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A type of messages.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: BTreeMap<u32, Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    /// Name in JSON; none of an embedded struct, whose fields are the outer type's.
    pub(super) name: Option<&'static str>,
    pub(super) omit_empty: bool,
    pub(super) ty: Type,
}

#[derive(Debug)]
pub(super) struct Type {
    pub(super) pointer: bool,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Text,
    Bool,
    Int,
    Bytes,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    /// JSON in bytes.
    Json,
    /// A list of texts with a message of its own.
    Texts,
    List(Box<Type>),
    Map(Box<Type>),
    Message(&'static str),
}

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> =
    LazyLock::new(|| read(include_str!("../../../shapes/protobuf.txt")));

impl Message {
    /// The type of a built-in kind's objects.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        MESSAGES.get(format!("{api_version}.{kind}").as_str())
    }

    /// A type by its name in the table.
    pub(super) fn named(name: &str) -> &'static Self {
        MESSAGES.get(name).expect("the table has every type it refers to, which a test checks")
    }

    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.get(&number)
    }
}

fn read(table: &'static str) -> BTreeMap<&'static str, Message> {
    let mut messages: BTreeMap<&'static str, Message> = BTreeMap::new();
    let mut current = "";
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix(' ').and_then(field) {
            Some((number, field)) => drop(messages.entry(current).or_default().fields.insert(number, field)),
            None => {
                current = line;
                messages.insert(current, Message::default());
            }
        }
    }
    messages
}

/// `2 data o map text`
fn field(line: &'static str) -> Option<(u32, Field)> {
    let mut columns = line.splitn(4, ' ');
    let number = columns.next()?.parse().ok()?;
    let name = Some(columns.next()?).filter(|name| *name != "-");
    let omit_empty = columns.next()? == "o";
    Some((number, Field { name, omit_empty, ty: ty(columns.next()?)? }))
}

fn ty(text: &'static str) -> Option<Type> {
    let (pointer, text) = match text.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (word, element) = text.split_once(' ').unwrap_or((text, ""));
    let kind = match word {
        "text" => Kind::Text,
        "bool" => Kind::Bool,
        "int" => Kind::Int,
        "bytes" => Kind::Bytes,
        "quantity" => Kind::Quantity,
        "time" => Kind::Time,
        "microtime" => Kind::MicroTime,
        "intorstring" => Kind::IntOrString,
        "json" => Kind::Json,
        "texts" => Kind::Texts,
        "list" => Kind::List(Box::new(ty(element)?)),
        "map" => Kind::Map(Box::new(ty(element)?)),
        _ => Kind::Message(word.strip_prefix('@')?),
    };
    Some(Type { pointer, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtins;

    #[test]
    fn the_table_is_whole() {
        let lines = include_str!("../../../shapes/protobuf.txt").lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(MESSAGES.values().map(|message| message.fields.len()).sum::<usize>(), lines);
        fn check(ty: &Type) {
            match &ty.kind {
                Kind::List(element) | Kind::Map(element) => check(element),
                Kind::Message(name) => assert!(MESSAGES.contains_key(name), "{name}"),
                _ => {}
            }
        }
        MESSAGES.values().flat_map(|message| message.fields.values()).for_each(|field| check(&field.ty));
    }

    #[test]
    fn every_built_in_resource_is_there_but_definitions() {
        let missing = builtins().iter().filter(|one| Message::of(&one.api_version(), &one.kind).is_none());
        assert_eq!(missing.map(|one| one.kind.as_str()).collect::<Vec<_>>(), ["CustomResourceDefinition"]);
    }
}
