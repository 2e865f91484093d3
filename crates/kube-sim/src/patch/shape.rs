//! Division of values in server-side apply: into members, items by key, items by value, or not at all.

use serde_json::{Map, Value};

use crate::defaults::schema::{Kind, Struct, Topology, Type};
use crate::resource::Resource;

/// The type of a value, if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    form: ShapeType,
    topology: &'static Topology,
}

#[derive(Clone, Copy, Debug)]
enum ShapeType {
    Struct(&'static Struct),
    Type(&'static Type),
    /// The root of a custom resource. Only its metadata has a known type.
    Custom,
    /// Objects are divided, lists are not.
    Unknown,
}

/// Division of a value into children that can have different owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// Undivided.
    Leaf,
    /// By the names of its members.
    Members,
    /// By these keys of its items.
    Keyed(&'static [&'static str]),
    /// By its items' values.
    Set,
}

impl Shape {
    /// Returns the shape of a resource's objects. Lists in custom resources are atomic: their schema is ignored.
    pub(super) fn root(resource: &Resource) -> Self {
        let form = match Struct::of(resource) {
            Some(structure) => ShapeType::Struct(structure),
            None => ShapeType::Custom,
        };
        Self { form, topology: &Topology::Granular }
    }

    /// Returns the division of a value. An empty value is undivided.
    pub(super) fn division(self, value: &Value) -> Division {
        match value {
            Value::Object(members) if members.is_empty() => Division::Leaf,
            Value::Array(items) if items.is_empty() => Division::Leaf,
            _ => self.possible_division(value),
        }
    }

    /// Like [`Shape::division`], but also for an empty value.
    pub(super) fn possible_division(self, value: &Value) -> Division {
        let atomic = match self.topology {
            Topology::Atomic => true,
            Topology::AlwaysGranular => false,
            _ => self.is_atomic_type(),
        };
        match (value, self.topology) {
            (Value::Object(_), _) if !atomic => Division::Members,
            (Value::Array(_), Topology::Keyed(keys)) => Division::Keyed(keys),
            (Value::Array(_), Topology::Set) => Division::Set,
            _ => Division::Leaf,
        }
    }

    /// Returns the children with their names in `FieldsV1`. Null counts as missing.
    pub(super) fn children(self, value: &Value) -> Vec<(String, &Value, Self)> {
        match (self.division(value), value) {
            (Division::Members, Value::Object(members)) => members
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (format!("f:{name}"), value, self.member(name)))
                .collect(),
            (Division::Keyed(keys), Value::Array(items)) => {
                items.iter().map(|item| (key_edge(item, keys), item, self.item())).collect()
            }
            (Division::Set, Value::Array(items)) => {
                items.iter().map(|item| (format!("v:{item}"), item, self.item())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns a member's shape.
    pub(super) fn member(self, name: &str) -> Self {
        let structure = match self.form {
            ShapeType::Struct(structure) => Some(structure),
            ShapeType::Type(ty) => ty.structure(),
            ShapeType::Custom if name == "metadata" => return Self::of_struct(Struct::object_meta()),
            ShapeType::Custom | ShapeType::Unknown => None,
        };
        if let Some(structure) = structure {
            return match structure.field(name) {
                Some(field) => Self { form: ShapeType::Type(&field.ty), topology: &field.topology },
                None => Self::UNKNOWN,
            };
        }
        self.item()
    }

    /// Returns the shape of a list's items or a map's values.
    pub(super) fn item(self) -> Self {
        match self.form {
            ShapeType::Type(ty) => match ty.element() {
                Some(element) => Self { form: ShapeType::Type(element), topology: &Topology::Granular },
                None => Self::UNKNOWN,
            },
            _ => Self::UNKNOWN,
        }
    }

    const UNKNOWN: Self = Self { form: ShapeType::Unknown, topology: &Topology::Granular };

    fn of_struct(structure: &'static Struct) -> Self {
        Self { form: ShapeType::Struct(structure), topology: &Topology::Granular }
    }

    fn is_atomic_type(self) -> bool {
        match self.form {
            ShapeType::Struct(structure) => structure.atomic,
            ShapeType::Type(ty) => {
                matches!(ty.kind, Kind::Any) || ty.structure().is_some_and(|structure| structure.atomic)
            }
            ShapeType::Custom | ShapeType::Unknown => false,
        }
    }
}

/// `k:{"containerPort":80,"protocol":"TCP"}`. A port without a protocol is TCP.
fn key_edge(item: &Value, keys: &[&str]) -> String {
    let value = |key: &str| match item.get(key) {
        None if key == "protocol" => "TCP".into(),
        value => value.cloned().unwrap_or(Value::Null),
    };
    let keys: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), value(key))).collect();
    format!("k:{}", Value::Object(keys))
}
