//! Sets of fields as in `metadata.managedFields` (`FieldsV1`), computed from objects. The model is
//! structured-merge-diff's.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::shape::{Division, Shape};
use crate::resource::Resource;

/// A set of fields: a tree whose edges have the names of `FieldsV1` (`f:name`, `k:{…}`, `v:…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// True if the field at this node belongs to the set.
    own: bool,
    parts: BTreeMap<String, Self>,
}

impl Fields {
    /// Returns the fields that an applied configuration owns: its leaves, and the items of keyed lists.
    pub(super) fn of(value: &Value, shape: Shape) -> Self {
        let division = shape.division(value);
        let mut fields = Self { own: matches!(division, Division::Leaf), parts: BTreeMap::new() };
        let keyed = matches!(division, Division::Keyed(_));
        for (edge, part, shape) in shape.children(value) {
            let mut part = Self::of(part, shape);
            part.own |= keyed;
            fields.parts.insert(edge, part);
        }
        fields
    }

    /// Returns all fields of a value, inner nodes included.
    fn all(value: &Value, shape: Shape) -> Self {
        let children = shape.children(value).into_iter();
        Self { own: true, parts: children.map(|(edge, part, shape)| (edge, Self::all(part, shape))).collect() }
    }

    /// Reads `fieldsV1`.
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

    /// Appends `fieldsV1` as JSON.
    pub(super) fn write(&self, json: &mut String) {
        json.push('{');
        if self.own && !self.parts.is_empty() {
            json.push_str(r#"".":{},"#);
        }
        for (edge, part) in &self.parts {
            json.push_str(&Value::from(edge.as_str()).to_string());
            json.push(':');
            part.write(json);
            json.push(',');
        }
        if json.ends_with(',') {
            json.pop();
        }
        json.push('}');
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.own && self.parts.values().all(Self::is_empty)
    }

    pub(super) fn part(&self, edge: &str) -> Option<&Self> {
        self.parts.get(edge)
    }

    /// Returns whether the field at this node belongs to the set.
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

    /// Returns the paths of the set's members, e.g. `.metadata.labels.app` or `.spec.containers[name="a"].image`.
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

    /// Removes fields that have no owner: the type, and the fields that the server or the path determines.
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

    /// Removes fields that a write to this (sub)resource cannot change (`GetResetFields`).
    fn without_reset_fields(mut self, resource: &Resource, subresource: Option<&str>) -> Self {
        match subresource {
            _ if !resource.status => {}
            None => drop(self.parts.remove("f:status")),
            Some("status") if resource.custom => self.parts.retain(|edge, _| edge == "f:status"),
            Some(_) => drop(self.parts.remove("f:spec")),
        }
        self
    }

    /// Returns the fields that a write to this (sub)resource can own.
    pub(super) fn ownable(self, resource: &Resource, subresource: Option<&str>) -> Self {
        self.without_system_fields().without_reset_fields(resource, subresource)
    }
}

/// The difference between two versions of an object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// New fields, and fields with another value.
    pub(super) set: Fields,
    pub(super) removed: Fields,
}

impl Comparison {
    pub(super) fn of(old: &Value, new: &Value, shape: Shape) -> Self {
        let mut comparison = Self::default();
        if old == new {
            return comparison;
        }
        if [old, new].into_iter().any(|value| matches!(shape.possible_division(value), Division::Leaf)) {
            comparison.set.own = true;
            return comparison;
        }
        match (shape.possible_division(new), old, new) {
            // The common case: edges are only named for differences.
            (Division::Members, Value::Object(old), Value::Object(new)) => {
                for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                    let before = old.get(name).filter(|before| !before.is_null());
                    if before != Some(value) {
                        comparison.add(format!("f:{name}"), before, Some(value), shape.member(name));
                    }
                }
                let kept = |name: &str| new.get(name).is_some_and(|value| !value.is_null());
                for (name, before) in old.iter().filter(|(name, before)| !before.is_null() && !kept(name)) {
                    comparison.add(format!("f:{name}"), Some(before), None, shape.member(name));
                }
            }
            _ => {
                let mut old: BTreeMap<String, (&Value, Shape)> =
                    shape.children(old).into_iter().map(|(edge, part, shape)| (edge, (part, shape))).collect();
                for (edge, part, shape) in shape.children(new) {
                    let before = old.remove(&edge).map(|(before, _)| before);
                    comparison.add(edge, before, Some(part), shape);
                }
                for (edge, (before, shape)) in old {
                    comparison.add(edge, Some(before), None, shape);
                }
            }
        }
        comparison
    }

    /// Adds the difference of one child.
    fn add(&mut self, edge: String, old: Option<&Value>, new: Option<&Value>, shape: Shape) {
        match (old, new) {
            (Some(old), Some(new)) => {
                let Self { set, removed } = Self::of(old, new, shape);
                if !set.is_empty() {
                    self.set.parts.insert(edge.clone(), set);
                }
                if !removed.is_empty() {
                    self.removed.parts.insert(edge, removed);
                }
            }
            (None, Some(new)) => drop(self.set.parts.insert(edge, Fields::all(new, shape))),
            (Some(old), None) => drop(self.removed.parts.insert(edge, Fields::all(old, shape))),
            (None, None) => {}
        }
    }

    pub(super) fn ownable(self, resource: &Resource, subresource: Option<&str>) -> Self {
        Self { set: self.set.ownable(resource, subresource), removed: self.removed.ownable(resource, subresource) }
    }
}
