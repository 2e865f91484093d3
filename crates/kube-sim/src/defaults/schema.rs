//! The Go types of built-in resources: field names and types for decoding, merge keys for patches. The table
//! `shapes/shapes.txt` is generated from Kubernetes' Go types.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use crate::resource::Resource;

/// A Go struct.
#[derive(Debug)]
pub(crate) struct Struct {
    /// Name without its package, e.g. `PersistentVolumeSpec`.
    pub(crate) name: &'static str,
    /// Version of its package. Go prints it before the name.
    package: &'static str,
    /// True if the struct is atomic in server-side apply.
    pub(crate) atomic: bool,
    meta: bool,
    /// Sorted by JSON name.
    fields: Vec<Field>,
    /// Indices of the fields that Go writes even when they are empty.
    always_written: Vec<usize>,
}

/// A field of a Go struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// Name in JSON.
    pub(crate) name: &'static str,
    /// The embedded struct that it comes from, as in Go's errors: `PersistentVolumeSource.`, or empty.
    pub(crate) embedded: &'static str,
    /// Name in Go.
    pub(crate) go_name: &'static str,
    /// Position among the struct's fields in Go.
    pub(crate) position: usize,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    pub(crate) patch: PatchStrategy,
    pub(crate) topology: Topology,
    pub(crate) ty: Type,
}

/// Treatment of a list by a strategic merge patch. Without `merge` the patch replaces the list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PatchStrategy {
    pub(crate) merge: bool,
    /// Merge key of a list of objects; empty for a list of strings.
    pub(crate) key: &'static str,
}

/// Division of a field among owners in server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Each part has its own owners.
    #[default]
    Granular,
    /// Like [`Topology::Granular`], although its type is atomic elsewhere.
    AlwaysGranular,
    /// The whole field has the same owners.
    Atomic,
    /// A list whose items are owned one by one, by value.
    Set,
    /// A list whose items are owned one by one, by these keys.
    Keyed(Vec<&'static str>),
}

/// A Go type.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) pointer: bool,
    /// The name of a named type, e.g. `v1.PersistentVolumeMode`.
    named: Option<&'static str>,
    pub(crate) kind: Kind,
}

/// The kind of a [`Type`].
#[derive(Debug)]
pub(crate) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Quantity,
    Time,
    MicroTime,
    Duration,
    IntOrString,
    Bytes,
    Any,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(Reference),
}

/// A reference to a struct by its id in the table.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) id: &'static str,
    found: OnceLock<&'static Struct>,
}

impl Reference {
    /// Returns the struct.
    pub(crate) fn structure(&self) -> &'static Struct {
        self.found.get_or_init(|| Struct::named(self.id))
    }
}

impl Struct {
    /// Returns the struct of a built-in resource's objects. `None` for custom ones.
    pub(crate) fn of(resource: &Resource) -> Option<&'static Self> {
        Self::id_of(resource).map(Self::named)
    }

    /// Returns the struct's id in the table.
    pub(crate) fn id_of(resource: &Resource) -> Option<&'static str> {
        if resource.custom {
            return None;
        }
        let package = match resource.group.split_once('.') {
            Some((package, _)) => package,
            None if resource.group.is_empty() => "core",
            None => &resource.group,
        };
        let key = (package, resource.version.as_str(), resource.kind.as_str());
        SCHEMA.roots.get(&key).copied()
    }

    /// Returns a struct by its id in the table.
    pub(crate) fn named(id: &str) -> &'static Self {
        SCHEMA.structs.get(id).expect("the table has every struct it refers to, which a test checks")
    }

    /// `metav1.ObjectMeta`.
    pub(crate) fn object_meta() -> &'static Self {
        static OBJECT_META: LazyLock<&Struct> = LazyLock::new(|| Struct::named("meta/v1.ObjectMeta"));
        &OBJECT_META
    }

    /// Returns whether the struct belongs to `meta`. The server uses these types internally too.
    pub(crate) fn is_meta(&self) -> bool {
        self.meta
    }

    /// Returns a field by its JSON name. Most names differ in length, so a linear scan beats a binary search.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns all fields, in Go's order.
    pub(crate) fn fields_in_order(&self) -> Vec<&Field> {
        let mut fields: Vec<&Field> = self.fields.iter().collect();
        fields.sort_unstable_by_key(|field| field.position);
        fields
    }

    /// Returns the fields that come from embedded structs, such as the sources of a volume.
    pub(crate) fn embedded(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.embedded.is_empty())
    }

    /// Returns the fields that are written even when they are empty.
    pub(crate) fn always_written(&self) -> impl Iterator<Item = &Field> {
        self.always_written.iter().map(|index| &self.fields[*index])
    }
}

impl Field {
    /// `omitempty` does not omit structs. Only `omitzero` does.
    fn is_always_written(&self) -> bool {
        let is_value =
            !self.ty.pointer && matches!(self.ty.kind, Kind::Struct(_) | Kind::Quantity | Kind::Time | Kind::MicroTime);
        !self.omit_zero && (!self.omit_empty || is_value)
    }
}

impl Type {
    /// Returns whether the type is core's `ResourceList`.
    pub(crate) fn is_resource_list(&self) -> bool {
        self.named == Some("v1.ResourceList")
    }

    /// Returns the struct, if the type is one.
    pub(crate) fn structure(&self) -> Option<&'static Struct> {
        match &self.kind {
            Kind::Struct(reference) => Some(reference.structure()),
            _ => None,
        }
    }

    /// Returns the type of a list's items or a map's values.
    pub(crate) fn element(&self) -> Option<&Self> {
        match &self.kind {
            Kind::List(element) | Kind::Map(element) => Some(element),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    /// Formats the type as in errors of Go's `json`, which do not show pointers.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = self.named {
            return formatter.write_str(named);
        }
        let star = |element: &Self| if element.pointer { "*" } else { "" };
        match &self.kind {
            Kind::Text => formatter.write_str("string"),
            Kind::Bool => formatter.write_str("bool"),
            Kind::Int32 => formatter.write_str("int32"),
            Kind::Int64 => formatter.write_str("int64"),
            Kind::Bytes => formatter.write_str("[]uint8"),
            Kind::Quantity => formatter.write_str("resource.Quantity"),
            Kind::IntOrString => formatter.write_str("intstr.IntOrString"),
            // Their decoders parse a string first.
            Kind::Time | Kind::MicroTime | Kind::Duration => formatter.write_str("string"),
            Kind::Any => formatter.write_str("runtime.RawExtension"),
            Kind::List(element) => write!(formatter, "[]{}{element}", star(element)),
            Kind::Map(element) => write!(formatter, "map[string]{}{element}", star(element)),
            Kind::Struct(reference) => {
                let structure = reference.structure();
                write!(formatter, "{}.{}", structure.package, structure.name)
            }
        }
    }
}

struct Schema {
    structs: HashMap<&'static str, Struct>,
    /// Ids by package, version and kind.
    roots: HashMap<(&'static str, &'static str, &'static str), &'static str>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(include_str!("../../shapes/shapes.txt")));

impl Schema {
    fn read(table: &'static str) -> Self {
        let mut schema = Self { structs: HashMap::new(), roots: HashMap::new() };
        let mut current: Option<(&'static str, Struct)> = None;
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            match (line.strip_prefix(' '), &mut current) {
                (Some(field), Some((_, structure))) => {
                    structure.fields.extend(Field::read(field, structure.fields.len()));
                }
                _ => {
                    schema.add(current.take());
                    current = Struct::read(line);
                }
            }
        }
        schema.add(current);
        schema
    }

    fn add(&mut self, next: Option<(&'static str, Struct)>) {
        let Some((id, mut structure)) = next else { return };
        structure.fields.sort_unstable_by_key(|field| field.name);
        let fields = structure.fields.iter().enumerate();
        structure.always_written =
            fields.filter(|(_, field)| field.is_always_written()).map(|(index, _)| index).collect();
        if let Some((package, _)) = id.split_once('/').filter(|_| structure.field("kind").is_some()) {
            self.roots.insert((package, structure.package, structure.name), id);
        }
        self.structs.insert(id, structure);
    }
}

impl Struct {
    /// `core/v1.PersistentVolumeSpec atomic`
    fn read(line: &'static str) -> Option<(&'static str, Self)> {
        let (id, atomic) = match line.split_once(' ') {
            Some((id, word)) => (id, word == "atomic"),
            None => (line, false),
        };
        let (package, name) = id.rsplit_once('/')?.1.split_once('.')?;
        let meta = id.starts_with("meta/");
        Some((id, Self { name, package, atomic, meta, fields: Vec::new(), always_written: Vec::new() }))
    }
}

impl Field {
    /// `finalizers Finalizers o merge set list text`
    fn read(line: &'static str, position: usize) -> Option<Self> {
        let mut columns = line.splitn(6, ' ');
        let path = columns.next()?;
        let split = path.rfind('.').map_or(0, |dot| dot + 1);
        let go_name = columns.next()?;
        let omission = columns.next()?;
        let (strategy, key) = split_key(columns.next()?);
        let topology = match split_key(columns.next()?) {
            ("atomic", _) => Topology::Atomic,
            ("granular", _) => Topology::AlwaysGranular,
            ("set", _) => Topology::Set,
            ("map", keys) => Topology::Keyed(keys.split('+').collect()),
            _ => Topology::Granular,
        };
        Some(Self {
            name: &path[split..],
            embedded: &path[..split],
            go_name,
            position,
            omit_empty: omission.contains('o'),
            omit_zero: omission.contains('z'),
            patch: PatchStrategy { merge: strategy.split(',').any(|one| one == "merge"), key },
            topology,
            ty: Type::read(columns.next()?)?,
        })
    }
}

impl Type {
    /// `*text:v1.PersistentVolumeMode`, `map:v1.ResourceList quantity`, `@core/v1.PersistentVolumeSpec`
    fn read(text: &'static str) -> Option<Self> {
        let (pointer, text) = match text.strip_prefix('*') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if let Some(id) = text.strip_prefix('@') {
            let reference = Reference { id, found: OnceLock::new() };
            return Some(Self { pointer, named: None, kind: Kind::Struct(reference) });
        }
        let (base, element) = match text.split_once(' ') {
            Some((base, element)) => (base, Some(element)),
            None => (text, None),
        };
        let (base, named) = match base.split_once(':') {
            Some((base, named)) => (base, Some(named)),
            None => (base, None),
        };
        let element = || Some(Box::new(Self::read(element?)?));
        let kind = match base {
            "text" => Kind::Text,
            "bool" => Kind::Bool,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "quantity" => Kind::Quantity,
            "time" => Kind::Time,
            "microtime" => Kind::MicroTime,
            "duration" => Kind::Duration,
            "intorstring" => Kind::IntOrString,
            "bytes" => Kind::Bytes,
            "any" => Kind::Any,
            "list" => Kind::List(element()?),
            "map" => Kind::Map(element()?),
            _ => return None,
        };
        Some(Self { pointer, named, kind })
    }
}

fn split_key(column: &'static str) -> (&'static str, &'static str) {
    column.split_once('=').unwrap_or((column, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtins;

    #[test]
    fn reads_every_field_of_the_table() {
        let lines = include_str!("../../shapes/shapes.txt").lines().filter(|line| line.starts_with(' ')).count();
        let fields: usize = SCHEMA.structs.values().map(|structure| structure.fields.len()).sum();
        assert_eq!(fields, lines, "every field of the table is read");
        fn check(ty: &Type) {
            if let Some(element) = ty.element() {
                check(element);
            }
            ty.structure();
        }
        SCHEMA.structs.values().flat_map(|structure| &structure.fields).for_each(|field| check(&field.ty));
    }

    #[test]
    fn every_builtin_resource_except_crds_has_a_struct() {
        let missing: Vec<_> = builtins().iter().filter(|resource| Struct::of(resource).is_none()).collect();
        let kinds: Vec<_> = missing.iter().map(|resource| resource.kind.as_str()).collect();
        assert_eq!(kinds, ["CustomResourceDefinition"]);
    }

    #[test]
    fn reads_field_properties() {
        let spec = Struct::named("core/v1.PersistentVolumeSpec");
        let host_path = spec.field("hostPath").unwrap();
        assert_eq!((host_path.embedded, host_path.ty.pointer), ("PersistentVolumeSource.", true));
        assert_eq!(host_path.ty.to_string(), "v1.HostPathVolumeSource");
        assert_eq!(spec.field("capacity").unwrap().ty.to_string(), "v1.ResourceList");
        assert_eq!(spec.field("accessModes").unwrap().ty.to_string(), "[]v1.PersistentVolumeAccessMode");
        assert!(spec.field("claimRef").unwrap().ty.structure().unwrap().atomic);
        let finalizers = Struct::object_meta().field("finalizers").unwrap();
        assert!(finalizers.patch.merge && finalizers.topology == Topology::Set);
        let ports = Struct::named("core/v1.Container").field("ports").unwrap();
        assert_eq!(
            (ports.patch.key, &ports.topology),
            ("containerPort", &Topology::Keyed(vec!["containerPort", "protocol"]))
        );
    }
}
