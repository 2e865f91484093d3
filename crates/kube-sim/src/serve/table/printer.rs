//! The columns of each resource.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Columns};
use super::custom::{self, CustomColumn};
use super::storage;
use crate::cluster::Cluster;
use crate::defaults::default_among;
use crate::object::name;
use crate::resource::{Resource, Special};

/// The columns of one resource.
pub(super) enum Printer {
    BuiltIn(&'static Columns),
    Custom(Vec<CustomColumn>),
}

impl Printer {
    pub(super) fn of(cluster: &Cluster, resource: &Resource) -> Self {
        if resource.custom {
            return Self::Custom(custom::columns(cluster, resource));
        }
        Self::BuiltIn(match resource.plural.as_str() {
            "persistentvolumes" => &storage::VOLUMES,
            "persistentvolumeclaims" => &storage::CLAIMS,
            "storageclasses" => &storage::CLASSES,
            "volumeattributesclasses" => &storage::ATTRIBUTES_CLASSES,
            "csidrivers" => &storage::DRIVERS,
            "csinodes" => &storage::CSI_NODES,
            "csistoragecapacities" => &storage::CAPACITIES,
            "pods" => &columns::PODS,
            "events" => &columns::EVENTS,
            "namespaces" => &columns::NAMESPACES,
            "nodes" => &columns::NODES,
            "secrets" => &columns::SECRETS,
            "configmaps" => &columns::CONFIG_MAPS,
            "leases" => &columns::LEASES,
            "rolebindings" | "clusterrolebindings" => &columns::BINDINGS,
            "roles" | "clusterroles" | "limitranges" | "customresourcedefinitions" => &columns::UNKNOWN,
            _ => &columns::OTHERS,
        })
    }

    /// Returns the `columnDefinitions`.
    pub(super) fn columns(&self) -> Value {
        match self {
            Self::BuiltIn(columns) => columns.names.iter().map(|name| definition(name)).collect(),
            Self::Custom(columns) => {
                let own = columns.iter().map(|column| column.definition.clone());
                std::iter::once(definition("Name")).chain(own).collect()
            }
        }
    }

    /// Returns the cells of one row; `marked` is the name of the default storage class.
    pub(super) fn cells(&self, object: &Value, now: Timestamp, marked: Option<&str>) -> Vec<Value> {
        let mut cells = match self {
            Self::BuiltIn(columns) => (columns.cells)(object, now),
            Self::Custom(columns) => {
                let own = columns.iter().map(|column| column.cell(object, now));
                std::iter::once(name(object).into()).chain(own).collect()
            }
        };
        if marked == Some(name(object)) {
            cells[0] = format!("{} (default)", name(object)).into();
        }
        cells
    }
}

/// Returns the default storage class in a list of classes.
pub(super) fn default_class<'a>(resource: &Resource, objects: &'a [Value]) -> Option<&'a str> {
    if resource.special != Special::Class || objects.len() == 1 && objects[0].get("kind").is_some() {
        return None;
    }
    default_among(objects.iter()).map(name)
}

/// `+Source` or `Created At:date`
fn definition(column: &str) -> Value {
    let (priority, column) = match column.strip_prefix('+') {
        Some(column) => (1, column),
        None => (0, column),
    };
    let (name, ty) = column.split_once(':').unwrap_or((column, "string"));
    let format = if name == "Name" { "name" } else { "" };
    json!({"name": name, "type": ty, "format": format, "description": "", "priority": priority})
}
