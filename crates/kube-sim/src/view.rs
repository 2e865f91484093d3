//! Conversion of stored objects for answers: as stored, in another version, or only their metadata.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::object::write_value;
use crate::resource::Resource;
use crate::store::{Stored, head};
use crate::{defaults, event, object};

/// The form of objects in the answers to one request.
#[derive(Clone, Debug)]
pub(crate) struct View {
    conversion: Conversion,
    /// True if `metadata.managedFields` is included.
    with_owners: bool,
    resource: Arc<Resource>,
    /// True if items of lists have neither `kind` nor `apiVersion`, like items of built-in resources.
    bare_items: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    /// As stored.
    Stored,
    /// With another `apiVersion`.
    Renamed,
    /// An event in the form of `events.k8s.io`.
    Event,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl View {
    /// `stored` is the resource in the stored version.
    pub(crate) fn new(resource: &Arc<Resource>, stored: &Resource, metadata_only: bool, with_owners: bool) -> Self {
        if metadata_only {
            return Self {
                conversion: Conversion::Metadata,
                with_owners,
                resource: Arc::clone(resource),
                bare_items: false,
            };
        }
        let conversion = match (resource.version == stored.version, resource.group == stored.group) {
            (true, true) => Conversion::Stored,
            (false, true) => Conversion::Renamed,
            // Only events are stored in another group.
            (_, false) => Conversion::Event,
        };
        Self { conversion, with_owners, resource: Arc::clone(resource), bare_items: !resource.custom }
    }

    /// Returns the object's JSON.
    pub(crate) fn bytes(&self, object: &Arc<Stored>) -> Bytes {
        match self.conversion {
            Conversion::Stored if !self.with_owners => object.bytes().clone(),
            _ => {
                let mut json = Vec::with_capacity(object.bytes().len() + 64);
                self.write(object, &mut json);
                Bytes::from(json)
            }
        }
    }

    /// Returns the object's parsed JSON.
    pub(crate) fn shown(&self, object: &Arc<Stored>) -> Value {
        let mut value = self.value(Cow::Borrowed(&*object.parsed())).into_owned();
        let owners = if self.with_owners { object.managed_fields() } else { Arc::default() };
        if let Ok(owners) = serde_json::from_str::<Value>(&owners) {
            object::set_meta(&mut value, "managedFields", owners);
        }
        value
    }

    /// Appends the object's JSON.
    pub(crate) fn write(&self, object: &Arc<Stored>, json: &mut Vec<u8>) {
        match self.conversion {
            Conversion::Stored if !self.with_owners => json.extend_from_slice(object.bytes()),
            Conversion::Stored | Conversion::Renamed => {
                json.extend_from_slice(self.head().as_bytes());
                object.write_tail(self.with_owners, json);
            }
            Conversion::Event if !self.with_owners => event::write_for_events_group(&object.parsed(), json),
            Conversion::Event | Conversion::Metadata => write_value(json, &self.shown(object)),
        }
    }

    /// Converts a stored object, without `metadata.managedFields`.
    pub(crate) fn value<'v>(&self, stored: Cow<'v, Value>) -> Cow<'v, Value> {
        match self.conversion {
            Conversion::Stored => stored,
            Conversion::Renamed => {
                let mut value = stored.into_owned();
                value["apiVersion"] = self.resource.api_version().into();
                Cow::Owned(value)
            }
            Conversion::Event => Cow::Owned(event::to_events_group(&stored)),
            Conversion::Metadata => Cow::Owned(
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored["metadata"]}),
            ),
        }
    }

    /// Converts an object from a request to the stored form.
    pub(crate) fn to_stored(&self, object: Value) -> Value {
        match self.conversion {
            Conversion::Event => event::to_core(object),
            Conversion::Stored | Conversion::Renamed | Conversion::Metadata => object,
        }
    }

    /// Returns the start of an object, up to its metadata.
    fn head(&self) -> String {
        match self.conversion {
            Conversion::Metadata => r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#.to_owned(),
            Conversion::Stored | Conversion::Renamed | Conversion::Event => head(&self.resource),
        }
    }

    /// Returns the start of a list, up to its metadata.
    pub(crate) fn list_head(&self) -> String {
        let resource = &self.resource;
        match self.conversion {
            Conversion::Metadata => r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","#.to_owned(),
            _ => format!(r#"{{"kind":"{}","apiVersion":"{}","#, resource.list_kind, resource.api_version()),
        }
    }

    /// Appends the object as an item of a list.
    pub(crate) fn write_item(&self, object: &Arc<Stored>, json: &mut Vec<u8>) {
        if self.bare_items && matches!(self.conversion, Conversion::Stored | Conversion::Renamed) {
            let start = json.len();
            object.write_tail(self.with_owners, json);
            // Replaces the comma.
            json[start] = b'{';
        } else {
            self.write(object, json);
        }
    }

    /// Returns a bookmark's object: the zero value of the type, with a resourceVersion.
    pub(crate) fn bookmark(&self, version: u64, ends_initial_events: bool) -> String {
        let annotations =
            if ends_initial_events { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let mut rest = String::new();
        if self.conversion != Conversion::Metadata {
            for (name, value) in defaults::zero(&self.resource).as_object().into_iter().flatten() {
                if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                    rest.push_str(&format!(",{}:{value}", Value::from(name.as_str())));
                }
            }
        }
        let head = self.head();
        format!(r#"{head},"metadata":{{"resourceVersion":"{version}"{annotations}}}{rest}}}"#)
    }
}
