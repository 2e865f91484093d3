//! Events that the provisioner writes itself, instead of the controller.

use jiff::Timestamp;
use kube_provisioner::k8s_openapi::api::core::v1::ObjectReference;
use kube_provisioner::k8s_openapi::api::events::v1::Event;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_provisioner::kube::api::PostParams;
use kube_provisioner::kube::{Api, Client, Result};

/// A warning and its source.
pub(crate) struct Warning<'a> {
    pub(crate) action: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) note: &'a str,
    pub(crate) controller: &'a str,
    pub(crate) instance: &'a str,
}

impl Warning<'_> {
    /// Writes the event about an object. `name` is the prefix of the event's name.
    pub(crate) async fn send(&self, client: &Client, name: &str, about: ObjectReference) -> Result<()> {
        let now = Timestamp::now();
        // Events about cluster-scoped objects are in this namespace.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some(self.action.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(self.note.to_owned()),
            reason: Some(self.reason.to_owned()),
            regarding: Some(about),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.instance.to_owned()),
            type_: Some("Warning".to_owned()),
            ..Event::default()
        };
        Api::<Event>::namespaced(client.clone(), &namespace).create(&PostParams::default(), &event).await.map(drop)
    }
}

/// Returns a reference to a volume.
pub(crate) fn of_volume(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolume".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
