//! Which volumes are attached to nodes, from a watch of the VolumeAttachments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube_provisioner::k8s_openapi::api::storage::v1::VolumeAttachment;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::{Change, ObjectWatch, Wake};

/// Clones are the same attachments.
#[derive(Clone, Default)]
pub(crate) struct Attachments(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By name. `None` until all have been listed once.
    known: Option<HashMap<String, Attachment>>,
    /// Those of the list that is being read.
    listed: HashMap<String, Attachment>,
}

struct Attachment {
    volume: String,
    node: String,
}

impl Attachments {
    /// The node that a volume is attached to. The error says that the attachments are not known.
    pub(crate) fn node_of(&self, volume: &str) -> Result<Option<String>, NotListed> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.known.as_ref().ok_or(NotListed)?;
        Ok(known.values().find(|attachment| attachment.volume == volume).map(|attachment| attachment.node.clone()))
    }

    pub(crate) fn watch(&self, client: &Client) -> ObjectWatch {
        let api = Api::all_with(client.clone(), &ApiResource::erase::<VolumeAttachment>(&()));
        let this = self.clone();
        ObjectWatch::new("volumeattachments", api, move |change| this.apply(change))
    }

    fn apply(&self, change: Change<DynamicObject>) -> Vec<Wake> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        match change {
            Change::Begin => state.listed.clear(),
            Change::Listed(object) => {
                state.listed.extend(read(&object).map(|attachment| (object.name_any(), attachment)));
            }
            Change::Ready => {
                let now = std::mem::take(&mut state.listed);
                let before = state.known.take().unwrap_or_default();
                let gone = before.into_iter().filter(|(name, _)| !now.contains_key(name));
                let wakes = gone.map(|(_, attachment)| Wake::Volume(attachment.volume)).collect();
                state.known = Some(now);
                return wakes;
            }
            Change::Applied(object) => {
                let known = state.known.get_or_insert_default();
                known.extend(read(&object).map(|attachment| (object.name_any(), attachment)));
            }
            Change::Deleted(object) => {
                let gone = state.known.as_mut().and_then(|known| known.remove(&object.name_any()));
                return gone.into_iter().map(|attachment| Wake::Volume(attachment.volume)).collect();
            }
        }
        Vec::new()
    }
}

/// The attachments have not been listed yet.
pub(crate) struct NotListed;

/// `None` for one of a volume inline in a pod.
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
    fn who_is_detached_is_woken() {
        let attachments = Attachments::default();
        let is_attached = |volume: &str| attachments.node_of(volume).ok().map(|node| node.is_some());
        assert_eq!(attachments.apply(Change::Begin), []);
        attachments.apply(Change::Listed(attachment("a", "one")));
        assert_eq!(is_attached("one"), None);
        attachments.apply(Change::Listed(attachment("b", "two")));
        attachments.apply(Change::Ready);
        assert_eq!([is_attached("one"), is_attached("other")], [Some(true), Some(false)]);
        attachments.apply(Change::Applied(attachment("c", "three")));
        assert_eq!(attachments.apply(Change::Deleted(attachment("a", "one"))), [Wake::Volume("one".to_owned())]);
        assert_eq!([is_attached("one"), is_attached("three")], [Some(false), Some(true)]);
        // A list after a gap: what is not in it was detached.
        attachments.apply(Change::Begin);
        attachments.apply(Change::Listed(attachment("c", "three")));
        assert_eq!(attachments.apply(Change::Ready), [Wake::Volume("two".to_owned())]);
        assert_eq!([is_attached("two"), is_attached("three")], [Some(false), Some(true)]);
    }
}
