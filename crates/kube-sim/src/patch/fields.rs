//! Sets of fields as `metadata.managedFields` writes them (`FieldsV1`), and how they follow from objects. The model is
//! structured-merge-diff's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::shape::{Parts, Shape};
use crate::resource::Resource;

/// A set of fields: a tree whose edges are named as in `FieldsV1` (`f:name`, `k:{…}`, `v:…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// Whether the field at this place itself belongs to the set.
    own: bool,
    parts: BTreeMap<String, Self>,
}

impl Fields {
    /// What an applied configuration owns: its leaves, and the items of keyed lists.
    pub(super) fn of(value: &Value, shape: Shape) -> Self {
        let parts = shape.parts(value);
        let mut fields = Self { own: matches!(parts, Parts::Leaf), parts: BTreeMap::new() };
        let keyed = matches!(parts, Parts::Keyed(_));
        for (edge, part, shape) in shape.children(value) {
            let mut part = Self::of(part, shape);
            part.own |= keyed;
            fields.parts.insert(edge, part);
        }
        fields
    }

    /// All there is at a place, inner nodes included.
    fn all(value: &Value, shape: Shape) -> Self {
        let children = shape.children(value).into_iter();
        Self { own: true, parts: children.map(|(edge, part, shape)| (edge, Self::all(part, shape))).collect() }
    }

    /// From `fieldsV1`.
    pub(super) fn read(fields: &Value) -> Self {
        let mut read = Self::default();
        for (edge, part) in fields.as_object().into_iter().flatten() {
            match edge.as_str() {
                "." => read.own = true,
                _ => {
                    let mut part = Self::read(part);
                    part.own |= part.parts.is_empty();
                    read.parts.insert(edge.clone(), part);
                }
            }
        }
        read
    }

    /// As `fieldsV1`.
    pub(super) fn write(&self) -> Value {
        let mut written = Map::new();
        if self.own && !self.parts.is_empty() {
            written.insert(".".to_owned(), json!({}));
        }
        written.extend(self.parts.iter().map(|(edge, part)| (edge.clone(), part.write())));
        Value::Object(written)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.own && self.parts.values().all(Self::is_empty)
    }

    pub(super) fn part(&self, edge: &str) -> Option<&Self> {
        self.parts.get(edge)
    }

    /// Whether the field at this place itself belongs to the set.
    pub(super) fn owns(&self) -> bool {
        self.own
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.own |= other.own;
        for (edge, part) in &other.parts {
            self.parts.entry(edge.clone()).or_default().union(part);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.own &= !other.own;
        for (edge, part) in &other.parts {
            if let Some(own) = self.parts.get_mut(edge) {
                own.subtract(part);
            }
        }
        self.parts.retain(|_, part| !part.is_empty());
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let common = self.parts.iter().filter_map(|(edge, part)| {
            let common = part.intersection(other.parts.get(edge)?);
            (!common.is_empty()).then(|| (edge.clone(), common))
        });
        Self { own: self.own && other.own, parts: common.collect() }
    }

    /// The paths of the set's members, e.g. `.metadata.labels.app` or `.spec.containers[name="a"].image`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, at: &str, paths: &mut Vec<String>) {
        if self.own {
            paths.push(at.to_owned());
        }
        for (edge, part) in &self.parts {
            let step = match edge.split_at(2) {
                ("f:", name) => format!(".{name}"),
                ("k:", keys) => {
                    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    format!("[{}]", keys.join(","))
                }
                (_, value) => format!("[{value}]"),
            };
            part.collect_paths(&format!("{at}{step}"), paths);
        }
    }

    /// Takes out what nobody owns: the type, and what the server or the path decides.
    fn without_system_fields(mut self) -> Self {
        const METADATA: [&str; 9] = [
            "f:name",
            "f:namespace",
            "f:creationTimestamp",
            "f:selfLink",
            "f:uid",
            "f:clusterName",
            "f:generation",
            "f:managedFields",
            "f:resourceVersion",
        ];
        self.own = false;
        self.parts.remove("f:apiVersion");
        self.parts.remove("f:kind");
        if let Some(metadata) = self.parts.get_mut("f:metadata") {
            metadata.own = false;
            metadata.parts.retain(|edge, _| !METADATA.contains(&edge.as_str()));
        }
        self.parts.retain(|_, part| !part.is_empty());
        self
    }

    /// Takes out what a write to this (sub)resource does not change (`GetResetFields`).
    fn without_reset_fields(mut self, resource: &Resource, subresource: Option<&str>) -> Self {
        match subresource {
            _ if !resource.status => {}
            None => drop(self.parts.remove("f:status")),
            Some("status") if resource.custom => self.parts.retain(|edge, _| edge == "f:status"),
            Some(_) => drop(self.parts.remove("f:spec")),
        }
        self
    }

    /// What may be owned at all by a write to this (sub)resource.
    pub(super) fn ownable(self, resource: &Resource, subresource: Option<&str>) -> Self {
        self.without_system_fields().without_reset_fields(resource, subresource)
    }
}

/// What differs between two versions of an object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// New or with another value.
    pub(super) set: Fields,
    pub(super) removed: Fields,
}

impl Comparison {
    pub(super) fn of(old: &Value, new: &Value, shape: Shape) -> Self {
        let mut comparison = Self::default();
        if old == new {
            return comparison;
        }
        if [old, new].into_iter().any(|value| matches!(shape.possible_parts(value), Parts::Leaf)) {
            comparison.set.own = true;
            return comparison;
        }
        let old_parts: BTreeMap<String, (&Value, Shape)> =
            shape.children(old).into_iter().map(|(edge, part, shape)| (edge, (part, shape))).collect();
        let mut seen = BTreeSet::new();
        for (edge, part, shape) in shape.children(new) {
            match old_parts.get(&edge) {
                Some((old, _)) => {
                    let inner = Self::of(old, part, shape);
                    comparison.set.parts.insert(edge.clone(), inner.set);
                    comparison.removed.parts.insert(edge.clone(), inner.removed);
                }
                None => drop(comparison.set.parts.insert(edge.clone(), Fields::all(part, shape))),
            }
            seen.insert(edge);
        }
        for (edge, (part, shape)) in old_parts.into_iter().filter(|(edge, _)| !seen.contains(edge)) {
            comparison.removed.parts.insert(edge, Fields::all(part, shape));
        }
        for fields in [&mut comparison.set, &mut comparison.removed] {
            fields.parts.retain(|_, part| !part.is_empty());
        }
        comparison
    }

    pub(super) fn ownable(self, resource: &Resource, subresource: Option<&str>) -> Self {
        Self { set: self.set.ownable(resource, subresource), removed: self.removed.ownable(resource, subresource) }
    }
}
