//! An actor's access to the cluster, with the latency that its pace sets.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::recorder::{EventType, Recorder};
use super::{Actor, Pace, storage};
use crate::cluster::Cluster;
use crate::faults::time_in;
use crate::object;
use crate::ownership::Credit;
use crate::request::{Content, DeleteOptions, Request, Subresource, Verb};
use crate::resource::Resource;
use crate::status::Status;
use crate::store::Stored;

/// One actor's access to the cluster.
pub(super) struct Api {
    cluster: Cluster,
    user: Arc<str>,
    pace: Pace,
    pub(super) random: fastrand::Rng,
    recorder: Recorder,
}

/// An object as an actor has observed it.
#[derive(Clone, Debug)]
pub(super) struct ObservedObject {
    pub(super) stored: Arc<Stored>,
    pub(super) value: Arc<Value>,
}

impl From<Arc<Stored>> for ObservedObject {
    fn from(stored: Arc<Stored>) -> Self {
        Self { value: stored.parsed(), stored }
    }
}

impl Api {
    pub(super) fn new(cluster: &Cluster, actor: Actor, pace: Pace) -> Self {
        let component = match actor {
            Actor::Scheduler => "default-scheduler",
            _ => "persistentvolume-controller",
        };
        Self {
            cluster: cluster.clone(),
            user: Arc::from(actor.user()),
            pace,
            random: cluster.random_for(actor.user()),
            recorder: Recorder::new(component),
        }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Draws a delay from a range of the pace.
    pub(super) fn draw(&mut self, part: impl FnOnce(&Pace) -> &RangeInclusive<Duration>) -> Duration {
        time_in(&mut self.random, part(&self.pace))
    }

    /// Reads an object from the API server.
    pub(super) async fn get(&mut self, resource: &Resource, namespace: &str, name: &str) -> Option<ObservedObject> {
        self.travel().await;
        self.peek(resource, namespace, name).map(ObservedObject::from)
    }

    /// Lists a resource's objects from the API server.
    pub(super) async fn list(&mut self, resource: &Resource, namespace: Option<&str>) -> Vec<Arc<Stored>> {
        self.travel().await;
        let state = self.cluster.0.lock();
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        state.storage(resource.storage).range(&prefix, "").cloned().collect()
    }

    /// Updates an object, or its subresource, by applying `change` to the observed state. The update fails with a
    /// conflict if the object has changed since.
    pub(super) async fn update(
        &mut self,
        resource: &Arc<Resource>,
        seen: &ObservedObject,
        part: Option<Subresource>,
        change: impl FnOnce(&mut Value),
    ) -> Result<ObservedObject, Status> {
        let mut value = Value::clone(&seen.value);
        change(&mut value);
        self.travel().await;
        let (namespace, name) = (seen.stored.namespace(), seen.stored.name());
        let mut request = self.request(Verb::Update, resource, namespace, name);
        request.subresource = part;
        request.content = Content::Value(value);
        request.decoded = true;
        self.handle(request)?;
        // The update may have removed the object's last finalizer, which deletes the object.
        Ok(self.peek(resource, namespace, name).map_or_else(|| seen.clone(), ObservedObject::from))
    }

    /// Binds a pod to a node through the subresource `binding`; updates cannot set the node.
    pub(super) async fn bind_pod(
        &mut self,
        pod: &ObservedObject,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Status> {
        self.travel().await;
        let resource = storage::pods();
        let mut state = self.cluster.0.lock();
        let now = state.find(resource, pod.stored.namespace(), pod.stored.name()).cloned();
        let now = now.ok_or_else(|| Status::not_found(resource, pod.stored.name()))?;
        if now.uid() != pod.stored.uid() || now.is_deleting() {
            return Err(Status::modified(resource, now.name()));
        }
        let mut value = Value::clone(&now.parsed());
        change(&mut value);
        state.update(resource.storage, &now, value, Credit::Server);
        Ok(())
    }

    /// Deletes an object.
    pub(super) async fn delete(
        &mut self,
        resource: &Arc<Resource>,
        seen: &Stored,
        options: DeleteOptions,
    ) -> Result<(), Status> {
        self.travel().await;
        let mut request = self.request(Verb::Delete, resource, seen.namespace(), seen.name());
        request.options.delete = options;
        self.handle(request)
    }

    /// Deletes all objects of a resource in a namespace.
    pub(super) async fn delete_all(&mut self, resource: &Arc<Resource>, namespace: &str) -> Result<(), Status> {
        self.travel().await;
        let mut request = self.request(Verb::DeleteCollection, resource, namespace, "");
        request.options.delete.propagation_policy = Some("Background".to_owned());
        self.handle(request)
    }

    /// Sends an event about an object. Errors are ignored.
    pub(super) fn event(&mut self, regarding: &Value, kind: EventType, reason: &str, message: &str) {
        let now = self.cluster.clock();
        if let Some(event) = self.recorder.record(now, regarding, kind, reason, message) {
            let resource = storage::events();
            let namespace = object::namespace(&event).to_owned();
            let (verb, name) = match self.peek(resource, &namespace, object::name(&event)) {
                Some(_) => (Verb::Update, object::name(&event).to_owned()),
                None => (Verb::Create, String::new()),
            };
            let mut request = self.request(verb, resource, &namespace, &name);
            request.content = Content::Value(event);
            drop(self.handle(request));
        }
    }

    /// Reads an object without latency.
    pub(super) fn peek(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.cluster.0.lock().find(resource, namespace, name).cloned()
    }

    /// Returns whether a namespace has any object of a resource.
    pub(super) fn has_any(&self, resource: &Resource, namespace: &str) -> bool {
        let prefix = format!("{namespace}/");
        self.cluster.0.lock().storage(resource.storage).range(&prefix, "").next().is_some()
    }

    /// Returns the resource whose objects have this `apiVersion` and `kind`.
    pub(super) fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.cluster.0.lock().registry.of_kind(api_version, kind).cloned()
    }

    /// Waits for the latency of one request.
    async fn travel(&mut self) {
        let time = self.draw(|pace| &pace.request);
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    fn request(&self, verb: Verb, resource: &Arc<Resource>, namespace: &str, name: &str) -> Request {
        Request::new(Arc::clone(&self.user), verb, Arc::clone(resource), namespace, name)
    }

    fn handle(&self, mut request: Request) -> Result<(), Status> {
        request.options.complete(request.verb, None)?;
        self.cluster.0.handle(&mut request).map(drop)
    }
}
