//! Fields of claims, volumes and classes that controllers read: `component-helpers/storage/volume/pv_helpers.go` of
//! Kubernetes.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::object::{annotation, at, name, namespace, text_at, uid};
use crate::resource::Resource;
use crate::validate::quantity::Quantity;

pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(super) const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

macro_rules! resources {
    ($($name:ident: $group:literal, $plural:literal;)*) => {$(
        pub(super) fn $name() -> &'static Arc<Resource> {
            static RESOURCE: LazyLock<Arc<Resource>> = LazyLock::new(|| Resource::builtin($group, $plural));
            &RESOURCE
        }
    )*};
}

resources! {
    claims: "", "persistentvolumeclaims";
    volumes: "", "persistentvolumes";
    pods: "", "pods";
    nodes: "", "nodes";
    events: "", "events";
    namespaces: "", "namespaces";
    classes: "storage.k8s.io", "storageclasses";
    drivers: "storage.k8s.io", "csidrivers";
}

/// The claim that a volume refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimRef<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

impl ClaimRef<'_> {
    pub(super) fn key(&self) -> String {
        crate::store::key(self.namespace, self.name)
    }
}

pub(super) fn claim_ref(volume: &Value) -> Option<ClaimRef<'_>> {
    let reference = at(volume, &["spec", "claimRef"]).filter(|reference| !reference.is_null())?;
    let text = |field: &str| text_at(reference, &[field]);
    Some(ClaimRef { namespace: text("namespace"), name: text("name"), uid: text("uid") })
}

/// Returns the class of a claim or of a volume; `""` for none.
pub(super) fn class(object: &Value) -> &str {
    crate::object::class(object).unwrap_or_default()
}

pub(super) fn phase(object: &Value) -> &str {
    text_at(object, &["status", "phase"])
}

pub(super) fn volume_name(claim: &Value) -> &str {
    text_at(claim, &["spec", "volumeName"])
}

pub(super) fn volume_mode(object: &Value) -> &str {
    match text_at(object, &["spec", "volumeMode"]) {
        "" => "Filesystem",
        mode => mode,
    }
}

pub(super) fn attributes_class(object: &Value) -> &str {
    text_at(object, &["spec", "volumeAttributesClassName"])
}

pub(super) fn access_modes(object: &Value) -> impl Iterator<Item = &str> {
    at(object, &["spec", "accessModes"]).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn capacity(volume: &Value) -> Option<Quantity> {
    Quantity::parse(text_at(volume, &["spec", "capacity", "storage"])).ok()
}

pub(super) fn requested(claim: &Value) -> Option<Quantity> {
    Quantity::parse(text_at(claim, &["spec", "resources", "requests", "storage"])).ok()
}

/// Returns whether a volume of this size is large enough. An invalid quantity counts as zero.
pub(super) fn is_enough(size: Option<&Quantity>, requested: Option<&Quantity>) -> bool {
    match (size, requested) {
        (_, None) => true,
        (None, Some(requested)) => requested.sign() <= 0,
        (Some(size), Some(requested)) => size.compare(requested).is_ge(),
    }
}

/// Returns whether a volume's reference is to this claim: same name and, if the reference has one, same UID.
pub(super) fn refers_to(reference: ClaimRef<'_>, claim: &Value) -> bool {
    reference.name == name(claim)
        && reference.namespace == namespace(claim)
        && (reference.uid.is_empty() || reference.uid == uid(claim))
}

/// Returns whether the binder has finished binding a claim: `isPVCFullyBound`.
pub(super) fn is_fully_bound(claim: &Value) -> bool {
    !volume_name(claim).is_empty() && annotation(claim, BIND_COMPLETED).is_some()
}

/// `GetBindVolumeToClaim`: the change that makes a volume refer to a claim. `None` if it already does.
pub(super) fn bound_to(volume: &Value, claim: &Value) -> Option<impl FnOnce(&mut Value) + use<>> {
    let reference = claim_ref(volume);
    let reserved = reference.is_some_and(|reference| refers_to(reference, claim));
    let complete = reserved && reference.is_some_and(|reference| reference.uid == uid(claim));
    if complete {
        return None;
    }
    let mark = !reserved && annotation(volume, BOUND_BY_CONTROLLER).is_none();
    let reference = serde_json::json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace(claim), "name": name(claim),
        "uid": uid(claim), "resourceVersion": crate::object::resource_version(claim),
    });
    Some(move |volume: &mut Value| {
        volume["spec"]["claimRef"] = reference;
        if mark {
            crate::object::set_annotation(volume, BOUND_BY_CONTROLLER, "yes");
        }
    })
}
