//! The simulated admission plugins: NamespaceLifecycle, DefaultStorageClass, StorageObjectInUseProtection,
//! TaintNodesByCondition, PersistentVolumeClaimResize.

use serde_json::{Value, json};

use crate::object;
use crate::resource::{Resource, Special};
use crate::state::State;
use crate::status::{Cause, CauseReason, Status};
use crate::validate::quantity::Quantity;

/// The annotations that mark a StorageClass as default.
const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// NamespaceLifecycle: refuses creations in missing or terminating namespaces.
pub(super) fn namespace_lives(resource: &Resource, object: &Value, state: &State) -> Result<(), Status> {
    if !resource.namespaced {
        return Ok(());
    }
    let (namespaces, name) = (Resource::builtin("", "namespaces"), object::namespace(object));
    match state.find(&namespaces, "", name).map(|namespace| namespace.is_deleting()) {
        None => return Err(Status::not_found(&namespaces, name)),
        Some(false) => return Ok(()),
        Some(true) => {}
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut refused = Status::forbidden(resource, object::name(object), &why);
    refused.details.get_or_insert_default().causes.push(Cause {
        reason: CauseReason::NamespaceTerminating,
        field: "metadata.namespace".to_owned(),
        message: format!("namespace {name} is being terminated"),
    });
    Err(refused)
}

/// The mutating plugins.
pub(super) fn mutate_on_create(resource: &Resource, object: &mut Value, state: &State) {
    match resource.special {
        Special::Volume => add_finalizer(object, "kubernetes.io/pv-protection"),
        Special::Claim => {
            add_finalizer(object, "kubernetes.io/pvc-protection");
            default_class(object, state);
        }
        Special::AttributesClass => add_finalizer(object, "kubernetes.io/vac-protection"),
        Special::Node => taint(object),
        _ => {}
    }
}

/// PersistentVolumeClaimResize: only bound claims can be expanded, and only if their class allows it.
pub(super) fn claim_may_grow(resource: &Resource, old: &Value, new: &Value, state: &State) -> Result<(), Status> {
    let size = |claim| {
        let text = object::text_at(claim, &["spec", "resources", "requests", "storage"]);
        Quantity::parse(text).ok()
    };
    match (size(old), size(new)) {
        (Some(old), Some(new)) if new.compare(&old).is_gt() => {}
        _ => return Ok(()),
    }
    let refuse = |why| Err(Status::forbidden(resource, object::name(new), why));
    if object::text_at(old, &["status", "phase"]) != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let class = object::class(new).filter(|class| !class.is_empty() && object::class(old) == Some(class));
    let classes = Resource::builtin("storage.k8s.io", "storageclasses");
    let class = class.and_then(|class| state.find(&classes, "", class)).map(|class| class.value());
    match class.and_then(|class| class.get("allowVolumeExpansion")?.as_bool()) {
        Some(true) => Ok(()),
        _ => refuse(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        ),
    }
}

fn add_finalizer(object: &mut Value, name: &str) {
    if object::finalizers(object).any(|known| known == name) {
        return;
    }
    match object::metadata_mut(object).get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) => finalizers.push(name.into()),
        None => object::set_meta(object, "finalizers", json!([name])),
    }
}

/// DefaultStorageClass.
fn default_class(claim: &mut Value, state: &State) {
    if object::class(claim).is_some() {
        return;
    }
    let classes = state.storage(Resource::builtin("storage.k8s.io", "storageclasses").storage).range("", "");
    let classes: Vec<Value> = classes.map(|class| class.value()).collect();
    if let Some(class) = default_among(classes.iter()) {
        object::object_mut(claim, "spec").insert("storageClassName".to_owned(), object::name(class).into());
    }
}

/// `GetDefaultClass`: the newest default class, and among equally new ones the first by name.
pub(crate) fn default_among<'a>(classes: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    let is_default = |class: &&Value| IS_DEFAULT.iter().any(|key| object::annotation(class, key) == Some("true"));
    let created = |class: &'a Value| object::meta(class, "creationTimestamp").and_then(Value::as_str);
    classes.filter(is_default).max_by(|left, right| {
        created(left).cmp(&created(right)).then_with(|| object::name(right).cmp(object::name(left)))
    })
}

/// Taints a new node until it is known to be ready.
fn taint(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let taints = &mut object::object_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
    if let Value::Array(taints) = taints
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
