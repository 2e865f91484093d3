//! Defaulting: `pkg/apis/*/v1/defaults.go`, and the conversion of `stringData`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::object;
use crate::resource::{Resource, Special};

/// Sets the defaults of missing fields.
pub(super) fn set_defaults(resource: &Resource, object: &mut Value) {
    match resource.special {
        Special::Volume => volume(object),
        Special::Claim => {
            default(object, &["spec"], "volumeMode", "Filesystem");
            default(object, &["status"], "phase", "Pending");
        }
        Special::Class => {
            // An empty policy counts as set.
            default(object, &[], "reclaimPolicy", "Delete");
            default(object, &[], "volumeBindingMode", "Immediate");
        }
        Special::CsiDriver => csi_driver(object),
        Special::Secret => secret(object),
        Special::Namespace => {
            let name = object::name(object).to_owned();
            if !name.is_empty() {
                object::set_label(object, "kubernetes.io/metadata.name", &name);
            }
            default(object, &["status"], "phase", "Active");
        }
        Special::Node => {
            if let Some(capacity) = object::at(object, &["status", "capacity"]).cloned() {
                default(object, &["status"], "allocatable", capacity);
            }
        }
        _ => {}
    }
    without_repeated_owners(object);
}

fn volume(volume: &mut Value) {
    default(volume, &["spec"], "persistentVolumeReclaimPolicy", "Retain");
    default(volume, &["spec"], "volumeMode", "Filesystem");
    default(volume, &["status"], "phase", "Pending");
    const SOURCES: [(&str, &str, &str); 10] = [
        ("hostPath", "type", ""),
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "fsType", "ext4"),
        ("azureDisk", "kind", "Shared"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ];
    let Some(spec) = volume.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for (source, field, value) in SOURCES {
        if let Some(source) = spec.get_mut(source) {
            default(source, &[], field, value);
        }
    }
}

fn csi_driver(driver: &mut Value) {
    default(driver, &["spec"], "attachRequired", true);
    default(driver, &["spec"], "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default(driver, &["spec"], "volumeLifecycleModes", json!(["Persistent"]));
    for field in
        ["podInfoOnMount", "preventPodSchedulingIfMissing", "requiresRepublish", "seLinuxMount", "storageCapacity"]
    {
        default(driver, &["spec"], field, false);
    }
}

fn secret(secret: &mut Value) {
    default(secret, &[], "type", "Opaque");
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|secret| secret.remove("stringData")) else {
        return;
    };
    let data = object::object_mut(secret, "data");
    for (key, text) in texts {
        data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

/// Removes repeated owner references.
fn without_repeated_owners(object: &mut Value) {
    let references = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(Value::Array(references)) = references else { return };
    let mut known: Vec<Value> = Vec::with_capacity(references.len());
    for reference in references.drain(..) {
        if !known.contains(&reference) {
            known.push(reference);
        }
    }
    *references = known;
}

fn default(object: &mut Value, path: &[&str], field: &str, value: impl Into<Value>) {
    let parent = path.iter().fold(object, |parent, key| member(parent, key));
    if let Value::Object(members) = parent
        && !members.contains_key(field)
    {
        members.insert(field.to_owned(), value.into());
    }
}

/// Returns a member for writing, and creates it if it is missing.
fn member<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    let child = &mut parent[key];
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child
}
