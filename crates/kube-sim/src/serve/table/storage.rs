//! The columns of volumes, claims, classes and the objects of CSI drivers.

use jiff::Timestamp;
use serde_json::Value;

use super::columns::{Columns, age, phase, text, text_or};
use crate::object::{at, class, name, text_at};

pub(super) const VOLUMES: Columns = Columns {
    names: &[
        "Name",
        "Capacity",
        "Access Modes",
        "Reclaim Policy",
        "Status",
        "Claim",
        "StorageClass",
        "VolumeAttributesClass",
        "Reason",
        "Age",
        "+VolumeMode",
    ],
    cells: volume,
};

pub(super) const CLAIMS: Columns = Columns {
    names: &[
        "Name",
        "Status",
        "Volume",
        "Capacity",
        "Access Modes",
        "StorageClass",
        "VolumeAttributesClass",
        "Age",
        "+VolumeMode",
    ],
    cells: claim,
};

pub(super) const CLASSES: Columns = Columns {
    names: &["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"],
    cells: |object, now| {
        vec![
            name(object).into(),
            text(object, &["provisioner"]),
            text_or(object, &["reclaimPolicy"], "Delete"),
            text_or(object, &["volumeBindingMode"], "Immediate"),
            flag(object, &["allowVolumeExpansion"], false),
            age(object, now),
        ]
    },
};

pub(super) const ATTRIBUTES_CLASSES: Columns = Columns {
    names: &["Name", "DriverName", "Age"],
    cells: |object, now| vec![name(object).into(), text(object, &["driverName"]), age(object, now)],
};

pub(super) const DRIVERS: Columns = Columns {
    names: &[
        "Name",
        "AttachRequired:boolean",
        "PodInfoOnMount:boolean",
        "StorageCapacity:boolean",
        "TokenRequests",
        "RequiresRepublish:boolean",
        "Modes",
        "Age",
    ],
    cells: |object, now| {
        let requests = at(object, &["spec", "tokenRequests"]).and_then(Value::as_array);
        let audiences = requests.map(|requests| {
            requests.iter().map(|request| text_at(request, &["audience"])).collect::<Vec<&str>>().join(",")
        });
        let modes = joined(object, &["spec", "volumeLifecycleModes"]);
        vec![
            name(object).into(),
            flag(object, &["spec", "attachRequired"], true),
            flag(object, &["spec", "podInfoOnMount"], false),
            flag(object, &["spec", "storageCapacity"], false),
            audiences.unwrap_or_else(|| "<unset>".to_owned()).into(),
            flag(object, &["spec", "requiresRepublish"], false),
            if modes.is_empty() { "<none>".into() } else { modes.into() },
            age(object, now),
        ]
    },
};

pub(super) const CSI_NODES: Columns = Columns {
    names: &["Name", "Drivers:integer", "Age"],
    cells: |object, now| {
        let drivers = at(object, &["spec", "drivers"]).and_then(Value::as_array).map_or(0, Vec::len);
        vec![name(object).into(), drivers.into(), age(object, now)]
    },
};

pub(super) const CAPACITIES: Columns = Columns {
    names: &["Name", "StorageClassName", "Capacity"],
    cells: |object, _| {
        vec![name(object).into(), text(object, &["storageClassName"]), text_or(object, &["capacity"], "<unset>")]
    },
};

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = at(object, &["spec", "claimRef"]).filter(|claim| claim.is_object());
    let claim = claim.map(|claim| format!("{}/{}", text_at(claim, &["namespace"]), text_at(claim, &["name"])));
    vec![
        name(object).into(),
        text_or(object, &["spec", "capacity", "storage"], "0"),
        access_modes(object, &["spec", "accessModes"]).into(),
        text(object, &["spec", "persistentVolumeReclaimPolicy"]),
        phase(object),
        claim.unwrap_or_default().into(),
        class(object).unwrap_or_default().into(),
        text_or_unset(object, &["spec", "volumeAttributesClassName"]),
        text(object, &["status", "reason"]),
        age(object, now),
        text_or_unset(object, &["spec", "volumeMode"]),
    ]
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_bound = !text_at(object, &["spec", "volumeName"]).is_empty();
    let (capacity, modes) = if is_bound {
        (text_or(object, &["status", "capacity", "storage"], "0"), access_modes(object, &["status", "accessModes"]))
    } else {
        ("".into(), String::new())
    };
    vec![
        name(object).into(),
        phase(object),
        text(object, &["spec", "volumeName"]),
        capacity,
        modes.into(),
        class(object).unwrap_or_default().into(),
        text_or_unset(object, &["spec", "volumeAttributesClassName"]),
        age(object, now),
        text_or_unset(object, &["spec", "volumeMode"]),
    ]
}

/// `GetAccessModesAsString`: each once, in this order.
fn access_modes(object: &Value, path: &[&str]) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let modes = at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has = |mode: &str| modes.iter().any(|one| one == mode);
    SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<&str>>().join(",")
}

fn joined(object: &Value, path: &[&str]) -> String {
    let items = at(object, path).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect::<Vec<&str>>().join(",")
}

/// Returns the text at a path. An unset value is shown differently from an empty one.
fn text_or_unset(object: &Value, path: &[&str]) -> Value {
    at(object, path).and_then(Value::as_str).unwrap_or("<unset>").into()
}

fn flag(object: &Value, path: &[&str], default: bool) -> Value {
    at(object, path).and_then(Value::as_bool).unwrap_or(default).into()
}
