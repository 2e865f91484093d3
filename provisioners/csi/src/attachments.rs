//! Tracks the nodes that volumes are attached to, with a watch of VolumeAttachments.

use std::sync::{Arc, Mutex, PoisonError};

use kube_provisioner::k8s_openapi::api::storage::v1::VolumeAttachment;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::{Change, ObjectWatch, Trigger};

use crate::watched_objects::{ChangedObjects, WatchedObjects};

/// A shared handle: clones refer to the same attachments.
#[derive(Clone, Default)]
pub(crate) struct Attachments(Arc<Mutex<WatchedObjects<Attachment>>>);

#[derive(PartialEq)]
struct Attachment {
    volume: String,
    node: String,
}

impl Attachments {
    /// Returns the node that a volume is attached to, or an error until the attachments are known.
    pub(crate) fn node_of(&self, volume: &str) -> Result<Option<String>, NotListed> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.all().ok_or(NotListed)?;
        Ok(known.values().find(|attachment| attachment.volume == volume).map(|attachment| attachment.node.clone()))
    }

    pub(crate) fn watch(&self, client: &Client) -> ObjectWatch {
        let api = Api::all_with(client.clone(), &ApiResource::erase::<VolumeAttachment>(&()));
        let this = self.clone();
        ObjectWatch::new("volumeattachments", api, move |change| this.apply(change))
    }

    fn apply(&self, change: Change<DynamicObject>) -> Vec<Trigger> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match state.apply(change.map(|object| (object.name_any(), read(&object)))) {
            ChangedObjects::Nothing => return Vec::new(),
            ChangedObjects::One { name, before } => before.map(|before| (name, before)).into_iter().collect(),
            ChangedObjects::Many { before } => before,
        };
        let is_gone = |name: &String| state.all().is_some_and(|all| !all.contains_key(name));
        let gone = before.into_iter().filter(|(name, _)| is_gone(name));
        gone.map(|(_, attachment)| Trigger::Volume(attachment.volume)).collect()
    }
}

/// The attachments have not been listed yet.
pub(crate) struct NotListed;

/// Returns `None` for a volume that is inline in a pod.
fn read(object: &DynamicObject) -> Option<Attachment> {
    let text = |pointer: &str| object.data.pointer(pointer)?.as_str().map(str::to_owned);
    Some(Attachment { volume: text("/spec/source/persistentVolumeName")?, node: text("/spec/nodeName")? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, volume: &str) -> DynamicObject {
        let source = json!({"persistentVolumeName": volume});
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "example.com", "nodeName": "node-1", "source": source},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn wakes_volumes_that_are_detached() {
        let attachments = Attachments::default();
        let is_attached = |volume: &str| attachments.node_of(volume).ok().map(|node| node.is_some());
        assert_eq!(attachments.apply(Change::Begin), []);
        attachments.apply(Change::Listed(attachment("a", "one")));
        assert_eq!(is_attached("one"), None);
        attachments.apply(Change::Listed(attachment("b", "two")));
        attachments.apply(Change::Ready);
        assert_eq!([is_attached("one"), is_attached("other")], [Some(true), Some(false)]);
        attachments.apply(Change::Applied(attachment("c", "three")));
        assert_eq!(attachments.apply(Change::Deleted(attachment("a", "one"))), [Trigger::Volume("one".to_owned())]);
        assert_eq!([is_attached("one"), is_attached("three")], [Some(false), Some(true)]);
        // A list after a gap: volumes that it lacks were detached.
        attachments.apply(Change::Begin);
        attachments.apply(Change::Listed(attachment("c", "three")));
        assert_eq!(attachments.apply(Change::Ready), [Trigger::Volume("two".to_owned())]);
        assert_eq!([is_attached("two"), is_attached("three")], [Some(false), Some(true)]);
    }
}
