//! The owners of fields in `metadata.managedFields`: apimachinery's `util/managedfields`.

use serde_json::Value;

use super::PatchOptions;
use super::fields::{Comparison, Fields};
use super::shape::Shape;
use crate::resource::Resource;
use crate::{defaults, object};

/// `DefaultMaxUpdateManagers`
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager that receives the fields of the oldest managers if there are too many managers.
const ANCIENT: &str = "ancient-changes";

/// The entries of `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(pub(super) Vec<Manager>);

impl Managers {
    /// Returns the owners after a create: the manager owns all fields that it sent.
    pub(crate) fn of_creation(resource: &Resource, sent: &Value, options: &PatchOptions<'_>) -> Self {
        let mut creator = Manager::new(options.field_manager.unwrap_or_default(), false, resource, options);
        creator.fields = all_fields(resource, sent, options);
        Self(vec![creator])
    }

    /// Returns the owners after a write other than an apply: the manager owns all changed fields.
    pub(crate) fn after_change(
        mut self,
        resource: &Resource,
        old: &Value,
        new: &Value,
        options: &PatchOptions<'_>,
    ) -> Self {
        let change = Comparison::of(old, new, Shape::root(resource)).ownable(resource, options.subresource);
        self.0.iter_mut().for_each(|manager| manager.give_up(&change));
        if !change.set.is_empty() {
            let mut writer = Manager::new(options.field_manager.unwrap_or_default(), false, resource, options);
            if let Some(index) = self.0.iter().position(|manager| manager.is_same(&writer)) {
                writer.fields = self.0.remove(index).fields;
            }
            writer.fields.union(&change.set);
            self.0.push(writer);
        }
        self.0.retain(|manager| !manager.fields.is_empty());
        self.merge_oldest();
        self
    }

    /// `capUpdateManagers`: merges the oldest managers of a version if too many managers update.
    fn merge_oldest(&mut self) {
        let mut updates = self.0.iter().filter(|manager| !manager.applies).count();
        if updates <= MAX_UPDATE_MANAGERS {
            return;
        }
        self.0.sort_by(|one, other| {
            let key = |manager: &Manager| (!manager.applies, manager.time.clone(), manager.name.clone());
            key(one).cmp(&key(other))
        });
        let mut merged: Vec<Manager> = Vec::with_capacity(self.0.len());
        for manager in std::mem::take(&mut self.0) {
            let may_merge = !manager.applies && updates > MAX_UPDATE_MANAGERS;
            let first = merged.iter_mut().find(|first| !first.applies && first.api_version == manager.api_version);
            match first.filter(|_| may_merge) {
                Some(first) => {
                    ANCIENT.clone_into(&mut first.name);
                    first.subresource.clear();
                    first.fields.union(&manager.fields);
                    first.time = manager.time;
                    updates -= 1;
                }
                None => merged.push(manager),
            }
        }
        self.0 = merged;
    }

    /// Reads the JSON of [`Managers::to_json`].
    pub(crate) fn from_json(json: &str) -> Self {
        serde_json::from_str(json).map(|entries| Self::read(&entries)).unwrap_or_default()
    }

    /// Returns the entries of all managers that own something, in the server's order. Empty for none.
    pub(crate) fn to_json(&self) -> String {
        let mut owners: Vec<&Manager> = self.0.iter().filter(|manager| !manager.fields.is_empty()).collect();
        if owners.is_empty() {
            return String::new();
        }
        owners.sort_by_key(|manager| {
            (!manager.applies, &manager.time, &manager.name, &manager.api_version, &manager.subresource)
        });
        let mut json = String::with_capacity(512);
        for (index, manager) in owners.into_iter().enumerate() {
            json.push(if index == 0 { '[' } else { ',' });
            manager.write(&mut json);
        }
        json.push(']');
        json
    }

    /// Reads a list of entries.
    pub(crate) fn read(entries: &Value) -> Self {
        Self(entries.as_array().into_iter().flatten().map(Manager::read).collect())
    }
}

/// Returns all fields of an object that differ from the zero value of its kind.
pub(super) fn all_fields(resource: &Resource, object: &Value, options: &PatchOptions<'_>) -> Fields {
    let zero = defaults::zero(resource);
    Comparison::of(&zero, object, Shape::root(resource)).ownable(resource, options.subresource).set
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) applies: bool,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: String,
    pub(super) fields: Fields,
}

impl Manager {
    /// Returns the entry for the manager of a request.
    pub(super) fn new(name: &str, applies: bool, resource: &Resource, options: &PatchOptions<'_>) -> Self {
        Self {
            name: name.to_owned(),
            applies,
            api_version: resource.api_version(),
            subresource: options.subresource.unwrap_or_default().to_owned(),
            time: options.now.to_owned(),
            fields: Fields::default(),
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.applies, &self.api_version, &self.subresource)
            == (&other.name, other.applies, &other.api_version, &other.subresource)
    }

    /// Returns the name in conflicts.
    pub(super) fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applies {
            shown.push_str(&format!(" using {}", self.api_version));
        }
        shown
    }

    /// Returns the manager's fields that the change touches.
    pub(super) fn conflict(&self, change: &Comparison) -> Fields {
        self.fields.intersection(&change.set)
    }

    /// Removes the fields that the change sets or removes.
    pub(super) fn give_up(&mut self, change: &Comparison) {
        self.fields.subtract(&change.set);
        self.fields.subtract(&change.removed);
    }

    fn read(entry: &Value) -> Self {
        let text = |field: &str| object::text_at(entry, &[field]).to_owned();
        Self {
            name: text("manager"),
            applies: text("operation") == "Apply",
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: entry.get("fieldsV1").map(Fields::read).unwrap_or_default(),
        }
    }

    fn write(&self, json: &mut String) {
        let mut member = |name: &str, text: &str| {
            json.push(if name == "manager" { '{' } else { ',' });
            json.push_str(&format!("\"{name}\":{}", Value::from(text)));
        };
        member("manager", &self.name);
        member("operation", if self.applies { "Apply" } else { "Update" });
        member("apiVersion", &self.api_version);
        for (name, text) in [("time", &self.time), ("subresource", &self.subresource)] {
            if !text.is_empty() {
                member(name, text);
            }
        }
        member("fieldsType", "FieldsV1");
        json.push_str(r#","fieldsV1":"#);
        self.fields.write(json);
        json.push('}');
    }
}
