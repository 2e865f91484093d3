//! PersistentVolumes: `ValidatePersistentVolume*` of core's validation.

use serde_json::{Value, json};

use super::go::{self, GoValue};
use super::metadata::{self, CheckedFields, invalid};
use super::quantity::Quantity;
use super::{IMMUTABLE, NOT_POSITIVE, names, selectors, text, texts, volume_source};
use crate::defaults::schema::Struct;
use crate::object::{self, at};
use crate::resource::Resource;
use crate::status::Cause;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
/// The annotation that preceded the field for mount options.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// On create.
pub(super) fn create(resource: &Resource, volume: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core(resource, volume, touched, causes);
    spec(volume, false, causes);
    mount_options(volume, causes);
}

/// On update of everything except the status.
pub(super) fn update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    let old_affinity = at(old, &["spec", "nodeAffinity"]);
    let lenient = old_affinity.and_then(|affinity| affinity.get("required")).is_some_and(selectors::has_invalid_values);
    let same_spec = new.get("spec") == old.get("spec");
    let volume_and_metadata = |causes: &mut Vec<Cause>| {
        metadata::check_core(resource, new, touched, causes);
        if !same_spec {
            spec(new, lenient, causes);
        }
    };
    // The server validates the volume twice: in the strategy, and in the validation of the update.
    volume_and_metadata(causes);
    mount_options(new, causes);
    volume_and_metadata(causes);
    // The unchanged spec was valid when it was written.
    if same_spec {
        return;
    }
    source_is_immutable(new, old, causes);
    let mode = |volume| at(volume, &["spec", "volumeMode"]).unwrap_or(&Value::Null);
    if mode(new) != mode(old) {
        causes.push(Cause::invalid("volumeMode", mode(new), IMMUTABLE));
    }
    if let Some(old_affinity) = old_affinity {
        affinity_is_immutable(at(new, &["spec", "nodeAffinity"]), old_affinity, causes);
    }
    let class = ["spec", "volumeAttributesClassName"];
    if at(old, &class).is_some() && at(new, &class).is_none() {
        causes
            .push(Cause::forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"));
    }
}

/// On update of the status.
pub(super) fn update_status(new: &Value, old: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core_update(new, old, touched, causes);
    if object::resource_version(new).is_empty() {
        causes.push(Cause::required("resourceVersion", ""));
    }
}

/// Checks that a volume or claim has access modes.
pub(super) fn access_modes_are_given(spec: &Value, detail: &str, causes: &mut Vec<Cause>) {
    if texts(spec, "accessModes").next().is_none() {
        causes.push(Cause::required("spec.accessModes", detail));
    }
}

/// Checks that the access modes of a volume or claim are known and can be combined.
pub(super) fn access_modes_are_known(spec: &Value, causes: &mut Vec<Cause>) {
    let (mut one_pod, mut others) = (false, false);
    for mode in texts(spec, "accessModes") {
        let known = ACCESS_MODES.contains(&mode);
        if !known {
            causes.push(Cause::not_supported("spec.accessModes", &json!(mode), &ACCESS_MODES));
        }
        one_pod |= mode == "ReadWriteOncePod";
        others |= known && mode != "ReadWriteOncePod";
    }
    if one_pod && others {
        let detail = "may not use ReadWriteOncePod with other access modes";
        causes.push(Cause::forbidden("spec.accessModes", detail));
    }
}

/// `volumeMode` of volumes and claims.
pub(super) fn volume_mode(spec: &Value, causes: &mut Vec<Cause>) {
    if let Some(mode) = spec.get("volumeMode").filter(|mode| !VOLUME_MODES.iter().any(|known| *mode == known)) {
        causes.push(Cause::not_supported("spec.volumeMode", mode, &VOLUME_MODES));
    }
}

fn spec(volume: &Value, lenient: bool, causes: &mut Vec<Cause>) {
    let spec = volume.get("spec").unwrap_or(&Value::Null);
    access_modes_are_given(spec, "", causes);
    access_modes_are_known(spec, causes);
    capacity(spec, causes);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        causes.push(Cause::not_supported("spec.persistentVolumeReclaimPolicy", &json!(policy), &RECLAIM_POLICIES));
    }
    let affinity = spec.get("nodeAffinity");
    match affinity.map(|affinity| affinity.get("required")) {
        None => {}
        Some(Some(required)) => selectors::node_selector(required, "spec.nodeAffinity.required", lenient, causes),
        Some(None) => {
            causes.push(Cause::required("spec.nodeAffinity.required", "must specify required node constraints"));
        }
    }
    volume_source::check(spec, affinity.is_some(), causes);
    if policy == "Recycle" && spec.get("hostPath").is_some_and(|source| is_root(text(source, "path"))) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        causes.push(Cause::forbidden("spec.persistentVolumeReclaimPolicy", detail));
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        invalid("spec.storageClassName", class, names::dns_subdomain(class), causes);
    }
    volume_mode(spec, causes);
    if let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) {
        match class {
            "" => causes.push(Cause::required("spec.volumeAttributesClassName", "an empty string is disallowed")),
            _ => invalid("spec.volumeAttributesClassName", class, names::dns_subdomain(class), causes),
        }
        if spec.get("csi").is_none() {
            let detail = "has to be specified when using volumeAttributesClassName";
            causes.push(Cause::required("spec.csi", detail));
        }
    }
}

fn capacity(spec: &Value, causes: &mut Vec<Cause>) {
    let capacity = spec.get("capacity").and_then(Value::as_object);
    if capacity.is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required("spec.capacity", ""));
    }
    if capacity.is_none_or(|capacity| !capacity.contains_key("storage") || capacity.len() > 1) {
        causes.push(Cause::not_supported("spec.capacity", spec.get("capacity").unwrap_or(&Value::Null), &["storage"]));
    }
    for (name, amount) in capacity.into_iter().flatten() {
        let Some(amount) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
        if amount.value() < 0 {
            let detail = "must be a valid resource quantity";
            causes.push(Cause::invalid(format!("spec.capacity[{name}]"), &json!(amount.value()), detail));
        }
        if amount.sign() <= 0 {
            let written = json!(amount.to_string());
            causes.push(Cause::invalid(format!("spec.capacity[{name}]"), &written, NOT_POSITIVE));
        }
    }
}

/// `path.Clean(p) == "/"`
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn mount_options(volume: &Value, causes: &mut Vec<Cause>) {
    const MOUNTED: [&str; 13] = [
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    ];
    if object::annotation(volume, MOUNT_OPTIONS).is_some()
        && MOUNTED.iter().all(|source| at(volume, &["spec", source]).is_none())
    {
        let path = format!("metadata.annotations.{MOUNT_OPTIONS}");
        causes.push(Cause::forbidden(path, "may not specify mount options for this volume type"));
    }
}

fn source_is_immutable(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let structure = Struct::named("core/v1.PersistentVolumeSpec");
    let Some((new, old)) = new.get("spec").zip(old.get("spec")) else { return };
    let same = |new: &Value| structure.embedded().all(|field| new.get(field.name) == old.get(field.name));
    if same(new) {
        return;
    }
    // An update may add a missing secret for expansion.
    let secret = |spec| at(spec, &["csi", "controllerExpandSecretRef"]);
    let mut compared = new.clone();
    if old.get("csi").is_some() && secret(old).is_none() && secret(new).is_some() {
        object::object_mut(&mut compared, "csi").remove("controllerExpandSecretRef");
        if same(&compared) {
            return;
        }
    }
    let shown = |spec: &Value| GoValue::fields(spec, structure, |field| !field.embedded.is_empty());
    let diff = go::diff(&shown(old), &shown(&compared));
    let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
    causes.push(Cause::forbidden("spec.persistentvolumesource", &detail));
}

/// Node affinity is immutable, but beta labels may be replaced by their successors.
fn affinity_is_immutable(new: Option<&Value>, old: &Value, causes: &mut Vec<Cause>) {
    if new == Some(old) || new.is_some_and(|new| *new == with_ga_labels(old, new)) {
        return;
    }
    let shown = match new {
        Some(new) => GoValue::structure(new, Struct::named("core/v1.VolumeNodeAffinity")).to_string(),
        None => "null".to_owned(),
    };
    let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
    causes.push(super::invalid_as_shown("nodeAffinity", &shown, &detail));
}

const BETA_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Returns the old affinity with its beta labels replaced wherever the new affinity has their GA successors.
fn with_ga_labels(old: &Value, new: &Value) -> Value {
    let mut renamed = old.clone();
    let terms = renamed.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (at_term, term) in terms.into_iter().flatten().enumerate() {
        let requirements = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
        for (at, requirement) in requirements.into_iter().flatten().enumerate() {
            let same = new.pointer(&format!("/required/nodeSelectorTerms/{at_term}/matchExpressions/{at}"));
            let new_key = same.map_or("", |requirement| text(requirement, "key"));
            if BETA_LABELS.contains(&(text(requirement, "key"), new_key)) {
                requirement["key"] = new_key.into();
            }
        }
    }
    renamed
}
