//! Terminating namespaces: `pkg/controller/namespace` of Kubernetes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::api::{Api, ObservedObject};
use super::storage;
use super::worker::{Controller, WorkQueue};
use crate::object;
use crate::request::Subresource;
use crate::resource::Special;
use crate::status::Status;
use crate::store::ChangeKind;
use crate::subscription::Change;

const FINALIZER: &str = "kubernetes";

/// The namespace controller.
#[derive(Default)]
pub(super) struct Namespaces {
    /// The terminating namespaces.
    terminating: BTreeSet<String>,
}

impl Controller for Namespaces {
    type Key = String;

    const RESOURCES: &'static [(&'static str, &'static str)] = &[];

    fn observe(&mut self, change: &Change, _: &Api, queue: &mut WorkQueue<String>) {
        let object = change.object();
        if change.resource.special == Special::Namespace {
            if change.kind == ChangeKind::Deleted {
                self.terminating.remove(object.name());
            } else if object.is_deleting() {
                self.terminating.insert(object.name().to_owned());
                queue.add(object.name().to_owned());
            }
        } else if change.kind == ChangeKind::Deleted && self.terminating.contains(object.namespace()) {
            queue.add(object.namespace().to_owned());
        }
    }

    async fn sync(&mut self, name: String, api: &mut Api, _: &mut WorkQueue<String>) -> Result<(), Status> {
        let Some(namespace) = api.peek(storage::namespaces(), "", &name).map(ObservedObject::from) else {
            return Ok(());
        };
        if !finalizers(&namespace.value).any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        let resources = api.cluster().resources();
        let mut left = false;
        for resource in resources.iter().filter(|resource| resource.namespaced && !resource.ephemeral) {
            // Most resources have no objects in the namespace. Checking first saves a request per resource.
            if !api.has_any(resource, &name) {
                continue;
            }
            api.delete_all(resource, &name).await?;
            left |= api.has_any(resource, &name);
        }
        if left {
            // Each deletion adds the key again.
            return Ok(());
        }
        let others: Vec<Value> =
            finalizers(&namespace.value).filter(|finalizer| *finalizer != FINALIZER).map(Value::from).collect();
        let change = |namespace: &mut Value| {
            if others.is_empty() {
                drop(object::object_mut(namespace, "spec").remove("finalizers"));
            } else {
                namespace["spec"]["finalizers"] = others.into();
            }
        };
        api.update(storage::namespaces(), &namespace, Some(Subresource::Finalize), change).await.map(drop)
    }
}

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    let list = object::at(namespace, &["spec", "finalizers"]).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}
