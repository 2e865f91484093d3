//! One state of one object: its JSON, and the fields that are read without parsing it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::object::{self, write_value};
use crate::ownership::{Credit, ServerSet, Writer};
use crate::resource::Resource;

/// One state of one object, shared by the store, its history, answers and watches.
///
/// The JSON has a fixed order: `kind`, `apiVersion`, then `metadata` with `resourceVersion` and `uid` first, then all
/// other keys sorted. So states are equal if their bytes are, and the resourceVersion can be replaced without parsing.
pub struct Stored {
    bytes: Bytes,
    key: Box<str>,
    labels: Option<Box<Labels>>,
    resource_version: u64,
    version_at: u32,
    namespace_len: u16,
    deleting: bool,
    owned: bool,
    /// True if this is the object's first state.
    first: bool,
    ownership: Ownership,
}

type Labels = Vec<(Box<str>, Box<str>)>;

impl Stored {
    /// Serializes an object of a resource, with this resourceVersion.
    pub(crate) fn new(resource: &Resource, object: &Value, resource_version: u64, ownership: Ownership) -> Self {
        let namespace = if resource.namespaced { object::namespace(object) } else { "" };
        let (bytes, version_at) = write(resource, object, resource_version);
        Self {
            bytes: Bytes::from(bytes),
            key: key(namespace, object::name(object)).into_boxed_str(),
            labels: labels(object),
            resource_version,
            version_at: u32::try_from(version_at).expect("objects are limited to a few MiB"),
            namespace_len: u16::try_from(namespace.len()).expect("namespaces are validated to be short"),
            deleting: object::deletion_timestamp(object).is_some(),
            owned: object::meta(object, "ownerReferences").is_some(),
            first: false,
            ownership,
        }
    }

    /// Marks this as the object's first state.
    pub(crate) fn first(self) -> Self {
        Self { first: true, ..self }
    }

    /// Returns this state with another resourceVersion.
    pub(crate) fn at_version(self: &Arc<Self>, resource_version: u64) -> Self {
        let start = self.version_at as usize;
        let end = start + digits(self.resource_version);
        let text = resource_version.to_string();
        let mut bytes = Vec::with_capacity(self.bytes.len() + text.len() - (end - start));
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(&self.bytes[end..]);
        Self {
            bytes: Bytes::from(bytes),
            key: self.key.clone(),
            labels: self.labels.clone(),
            resource_version,
            version_at: self.version_at,
            namespace_len: self.namespace_len,
            deleting: self.deleting,
            owned: self.owned,
            first: self.first,
            ownership: Ownership::same(self),
        }
    }

    /// Returns the JSON, without `metadata.managedFields`.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the parsed JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("written by this module")
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        match self.namespace_len {
            0 => &self.key,
            len => &self.key[usize::from(len) + 1..],
        }
    }

    /// `metadata.namespace`, `""` for cluster-wide objects.
    pub fn namespace(&self) -> &str {
        &self.key[..usize::from(self.namespace_len)]
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        let start = self.version_at as usize + digits(self.resource_version) + r#"","uid":""#.len();
        let rest = self.bytes.get(start..).unwrap_or_default();
        let len = rest.iter().position(|byte| *byte == b'"').unwrap_or(0);
        str::from_utf8(&rest[..len]).unwrap_or_default()
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> u64 {
        self.resource_version
    }

    /// Returns a label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = self.labels.as_deref()?;
        labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// Returns whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Returns whether the object has `metadata.ownerReferences`.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }

    /// `namespace/name` or `name`: the sort key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether the object has not been written since its creation.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Returns the owners of the fields.
    pub(crate) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Appends the JSON from `metadata` on, without `kind` and `apiVersion`.
    pub(crate) fn write_tail(&self, with_owners: bool, json: &mut Vec<u8>) {
        let at = self.version_at as usize;
        let owners = if with_owners { self.managed_fields() } else { Arc::default() };
        if owners.is_empty() {
            json.extend_from_slice(&self.bytes[at - METADATA.len() - VERSION.len()..]);
            return;
        }
        json.extend_from_slice(METADATA.as_bytes());
        json.extend_from_slice(br#""managedFields":"#);
        json.extend_from_slice(owners.as_bytes());
        json.push(b',');
        json.extend_from_slice(&self.bytes[at - VERSION.len()..]);
    }

    /// Returns whether both states are equal except for the resourceVersion.
    pub(crate) fn same_but_version(&self, other: &Self) -> bool {
        let (start, end) = (self.version_at as usize, self.version_at as usize + digits(self.resource_version));
        let (other_start, other_end) =
            (other.version_at as usize, other.version_at as usize + digits(other.resource_version));
        self.bytes[..start] == other.bytes[..other_start] && self.bytes[end..] == other.bytes[other_end..]
    }
}

/// The owners of a state's fields, or the facts to compute them from.
pub(crate) struct Ownership(Mutex<Origin>);

pub(super) enum Origin {
    /// The owners.
    Known(Arc<str>),
    /// One writer owns everything.
    Created(Arc<Writer>, i64, ServerSet),
    /// A writer changed another state.
    Changed(Arc<Writer>, i64, ServerSet, Arc<Stored>),
    /// The owners are the same as in another state.
    Same(Arc<Stored>),
}

impl Ownership {
    /// For a new object.
    pub(crate) fn of_new(credit: Credit) -> Self {
        Self::new(match credit {
            Credit::Server => Origin::Known(Arc::default()),
            Credit::Writer(writer, at, unowned) => Origin::Created(writer, at, unowned),
            Credit::Known(owners) => Origin::Known(owners),
        })
    }

    /// For a new state of an object.
    pub(crate) fn after(before: &Arc<Stored>, credit: Credit) -> Self {
        let (writer, at, unowned) = match credit {
            Credit::Server => return Self::same(before),
            Credit::Known(owners) => return Self::new(Origin::Known(owners)),
            Credit::Writer(writer, at, unowned) => (writer, at, unowned),
        };
        Self::new(match &*before.ownership().lock() {
            // An object without owners stays without owners.
            Origin::Known(owners) if owners.is_empty() => Origin::Known(Arc::default()),
            Origin::Created(creator, _, still_unowned)
                if Arc::ptr_eq(creator, &writer) && unowned == ServerSet::NOTHING =>
            {
                Origin::Created(writer, at, *still_unowned)
            }
            _ => Origin::Changed(writer, at, unowned, Arc::clone(before)),
        })
    }

    /// Returns the owners of another state.
    pub(crate) fn same(other: &Arc<Stored>) -> Self {
        Self::new(Origin::Same(Arc::clone(other)))
    }

    fn new(origin: Origin) -> Self {
        Self(Mutex::new(origin))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Origin> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state whose owners must be computed first.
    pub(super) fn needs(&self) -> Option<Arc<Stored>> {
        match &*self.lock() {
            Origin::Known(_) | Origin::Created(..) => None,
            Origin::Changed(.., before) | Origin::Same(before) => Some(Arc::clone(before)),
        }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

/// A [`Stored`] that is ordered by its key.
#[derive(Clone)]
pub(crate) struct ByKey(pub(crate) Arc<Stored>);

impl std::borrow::Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// `namespace/name` or `name`.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        _ => [namespace, "/", name].concat(),
    }
}

/// Returns the JSON before the tail of every object of a resource.
pub(crate) fn head(resource: &Resource) -> String {
    format!(r#"{{"kind":"{}","apiVersion":"{}""#, resource.kind, resource.api_version())
}

const METADATA: &str = r#","metadata":{"#;
const VERSION: &str = r#""resourceVersion":""#;

/// Returns the JSON, and the offset of the resourceVersion.
fn write(resource: &Resource, object: &Value, resource_version: u64) -> (Vec<u8>, usize) {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut json = Vec::with_capacity(1024);
    json.extend_from_slice(head(resource).as_bytes());
    json.extend_from_slice(METADATA.as_bytes());
    json.extend_from_slice(VERSION.as_bytes());
    let version_at = json.len();
    json.extend_from_slice(resource_version.to_string().as_bytes());
    json.extend_from_slice(br#"","uid":"#);
    write_value(&mut json, metadata.get("uid").and_then(Value::as_str).unwrap_or_default());
    write_fields(&mut json, metadata, &["resourceVersion", "uid"]);
    json.push(b'}');
    write_fields(&mut json, fields, &["kind", "apiVersion", "metadata"]);
    json.push(b'}');
    json.shrink_to_fit();
    (json, version_at)
}

fn write_fields(json: &mut Vec<u8>, fields: &Map<String, Value>, written: &[&str]) {
    for (key, value) in fields {
        if !written.contains(&key.as_str()) {
            json.push(b',');
            write_value(json, key.as_str());
            json.push(b':');
            write_value(json, value);
        }
    }
}

fn labels(object: &Value) -> Option<Box<Labels>> {
    let labels = object::meta(object, "labels")?.as_object()?;
    let pairs = labels.iter().filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
    let pairs: Labels = pairs.collect();
    (!pairs.is_empty()).then(|| Box::new(pairs))
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
