//! Selection of objects for lists and watches.

use std::sync::Arc;

use crate::request::Request;
use crate::selector::{FieldSelector, LabelSelector};
use crate::state::State;
use crate::status::Status;
use crate::store::Stored;

/// Namespace, label selector and field selector.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// The prefix of all selected keys: `namespace/`, or empty.
    pub(crate) prefix: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn new(state: &State, request: &Request) -> Result<Self, Status> {
        let resource = &request.resource;
        let options = &request.options;
        let labels = LabelSelector::parse(&options.label_selector)?;
        let selectable =
            state.definition(resource).map(|definition| definition.selectable_fields()).unwrap_or_default();
        let fields = match (request.name.as_str(), options.field_selector.as_str()) {
            ("", text) => FieldSelector::parse(text, resource, selectable)?,
            (name, "") => FieldSelector::parse(&format!("metadata.name={name}"), resource, selectable)?,
            (name, text) => {
                let fields = FieldSelector::parse(text, resource, selectable)?;
                if fields.name() != Some(name) {
                    return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
                }
                fields
            }
        };
        let namespace = match request.namespace.as_str() {
            "" if resource.namespaced => fields.namespace().unwrap_or_default(),
            namespace => namespace,
        };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        Ok(Self { prefix, labels, fields })
    }

    pub(crate) fn matches(&self, object: &Arc<Stored>) -> bool {
        object.key().starts_with(&self.prefix)
            && (self.labels.is_empty() || self.labels.matches(|key| object.label(key)))
            && if self.fields.uses_only_names() {
                self.fields.matches_name(object.namespace(), object.name())
            } else {
                self.fields.matches(&object.parsed())
            }
    }

    /// Returns whether there are no selectors.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}
