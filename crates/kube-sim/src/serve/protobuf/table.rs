//! The field numbers of `shapes/protobuf.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A message type.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: BTreeMap<u32, MessageField>,
}

#[derive(Debug)]
pub(super) struct MessageField {
    /// Name in JSON. `None` for an embedded struct, whose fields belong to the outer type.
    pub(super) name: Option<&'static str>,
    pub(super) omit_empty: bool,
    pub(super) ty: FieldType,
}

#[derive(Debug)]
pub(super) struct FieldType {
    pub(super) pointer: bool,
    pub(super) kind: FieldKind,
}

#[derive(Debug)]
pub(super) enum FieldKind {
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
    /// A list of strings in a separate message.
    Texts,
    List(Box<FieldType>),
    Map(Box<FieldType>),
    Message(&'static str),
}

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> =
    LazyLock::new(|| read(include_str!("../../../shapes/protobuf.txt")));

impl Message {
    /// Returns the type of a built-in kind's objects.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        MESSAGES.get(format!("{api_version}.{kind}").as_str())
    }

    /// Returns a message type by its name in the table.
    pub(super) fn named(name: &str) -> &'static Self {
        MESSAGES.get(name).expect("the table has every type it refers to, which a test checks")
    }

    pub(super) fn field(&self, number: u32) -> Option<&MessageField> {
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
fn field(line: &'static str) -> Option<(u32, MessageField)> {
    let mut columns = line.splitn(4, ' ');
    let number = columns.next()?.parse().ok()?;
    let name = Some(columns.next()?).filter(|name| *name != "-");
    let omit_empty = columns.next()? == "o";
    Some((number, MessageField { name, omit_empty, ty: ty(columns.next()?)? }))
}

fn ty(text: &'static str) -> Option<FieldType> {
    let (pointer, text) = match text.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (word, element) = text.split_once(' ').unwrap_or((text, ""));
    let kind = match word {
        "text" => FieldKind::Text,
        "bool" => FieldKind::Bool,
        "int" => FieldKind::Int,
        "bytes" => FieldKind::Bytes,
        "quantity" => FieldKind::Quantity,
        "time" => FieldKind::Time,
        "microtime" => FieldKind::MicroTime,
        "intorstring" => FieldKind::IntOrString,
        "json" => FieldKind::Json,
        "texts" => FieldKind::Texts,
        "list" => FieldKind::List(Box::new(ty(element)?)),
        "map" => FieldKind::Map(Box::new(ty(element)?)),
        _ => FieldKind::Message(word.strip_prefix('@')?),
    };
    Some(FieldType { pointer, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtins;

    #[test]
    fn reads_every_field_of_the_table() {
        let lines = include_str!("../../../shapes/protobuf.txt").lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(MESSAGES.values().map(|message| message.fields.len()).sum::<usize>(), lines);
        fn check(ty: &FieldType) {
            match &ty.kind {
                FieldKind::List(element) | FieldKind::Map(element) => check(element),
                FieldKind::Message(name) => assert!(MESSAGES.contains_key(name), "{name}"),
                _ => {}
            }
        }
        MESSAGES.values().flat_map(|message| message.fields.values()).for_each(|field| check(&field.ty));
    }

    #[test]
    fn every_builtin_resource_except_crds_has_a_message() {
        let missing = builtins().iter().filter(|one| Message::of(&one.api_version(), &one.kind).is_none());
        assert_eq!(missing.map(|one| one.kind.as_str()).collect::<Vec<_>>(), ["CustomResourceDefinition"]);
    }
}
