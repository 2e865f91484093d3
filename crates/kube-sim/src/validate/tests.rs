use serde_json::{Value, json};

use super::*;

/// Checks the fields, in the server's order, that the refusal names for each change of a valid object.
fn refusals(group: &str, plural: &str, good: &Value, cases: &[(&str, Value, &[&str])]) {
    let resource = Resource::builtin(group, plural);
    assert_eq!(on_create(&resource, good), [], "the good one");
    for (pointer, value, fields) in cases {
        let mut object = good.clone();
        set(&mut object, pointer, value.clone());
        let causes = on_create(&resource, &object);
        let found: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, *fields, "{pointer} {value}: {causes:?}");
    }
}

/// Sets a member at a pointer whose parents exist. Null removes it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => drop(parent.remove(field)),
        value => drop(parent.insert(field.to_owned(), value)),
    }
}

fn volume() -> Value {
    json!({
        "metadata": {"name": "v", "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
            "csi": {"driver": "example.com", "volumeHandle": "h"},
        },
    })
}

fn claim() -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
            "storageClassName": "fast",
        },
        "status": {"phase": "Pending"},
    })
}

#[test]
fn volumes() {
    refusals(
        "",
        "persistentvolumes",
        &volume(),
        &[
            ("/spec/accessModes", json!([]), &["spec.accessModes"]),
            ("/spec/accessModes", json!(["Odd"]), &["spec.accessModes"]),
            ("/spec/accessModes", json!(["ReadWriteOnce", "ReadWriteOncePod"]), &["spec.accessModes"]),
            ("/spec/capacity", Value::Null, &["spec.capacity", "spec.capacity"]),
            ("/spec/capacity", json!({"storage": "0"}), &["spec.capacity[storage]"]),
            ("/spec/capacity", json!({"storage": "9223372036854775808"}), &["spec.capacity[storage]"]),
            ("/spec/persistentVolumeReclaimPolicy", json!("Burn"), &["spec.persistentVolumeReclaimPolicy"]),
            ("/spec/storageClassName", json!("A b"), &["spec.storageClassName"]),
            ("/spec/volumeMode", json!("Odd"), &["spec.volumeMode"]),
            ("/spec/csi", Value::Null, &["spec"]),
            ("/spec/csi", json!({}), &["spec.csi.driver", "spec.csi.volumeHandle"]),
            ("/spec/nfs", json!({"server": "s", "path": "/p"}), &["spec.csi"]),
            ("/metadata/name", json!("A"), &["metadata.name"]),
            ("/metadata/finalizers", json!(["odd"]), &["metadata.finalizers[0]"]),
        ],
    );
}

#[test]
fn sources_of_volumes() {
    let mut sourceless = volume();
    set(&mut sourceless, "/spec/csi", Value::Null);
    let resource = Resource::builtin("", "persistentvolumes");
    for (source, value, fields) in [
        ("hostPath", json!({"path": "/a/../b"}), vec!["spec.hostPath.path"]),
        ("hostPath", json!({"path": "/a", "type": "Odd"}), vec!["spec.hostPath.type"]),
        ("nfs", json!({"server": "s", "path": "p"}), vec!["spec.nfs.path"]),
        ("local", json!({"path": "/p"}), vec!["spec.nodeAffinity"]),
        ("iscsi", json!({}), vec!["spec.iscsi.targetPortal", "spec.iscsi.iqn"]),
        ("iscsi", json!({"targetPortal": "a", "iqn": "x", "lun": 256}), vec!["spec.iscsi.iqn", "spec.iscsi.lun"]),
        ("rbd", json!({"monitors": ["a"]}), vec!["spec.rbd.image"]),
        ("cephfs", json!({"monitors": ["a"]}), vec![]),
        ("flexVolume", json!({}), vec!["spec.flexVolume.driver"]),
        ("fc", json!({"targetWWNs": ["a"]}), vec!["spec.fc.lun"]),
        ("fc", json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 1}), vec!["spec.fc.targetWWNs"]),
        ("cinder", json!({}), vec![]),
    ] {
        let mut volume = sourceless.clone();
        set(&mut volume, &format!("/spec/{source}"), value.clone());
        let causes = on_create(&resource, &volume);
        let found: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, fields, "{source} {value}");
    }
}

#[test]
fn claims() {
    refusals(
        "",
        "persistentvolumeclaims",
        &claim(),
        &[
            ("/spec/accessModes", json!([]), &["spec.accessModes"]),
            ("/spec/resources", json!({}), &["spec.resources[storage]"]),
            ("/spec/resources", json!({"requests": {"storage": "0"}}), &["spec.resources[storage]"]),
            ("/spec/storageClassName", json!("A"), &["spec.storageClassName"]),
            ("/spec/volumeMode", json!("Odd"), &["spec.volumeMode"]),
            ("/metadata/namespace", Value::Null, &["metadata.namespace"]),
            ("/metadata/labels", json!({"a b": "c"}), &["metadata.labels"]),
        ],
    );
}

#[test]
fn other_kinds() {
    let class = json!({
        "metadata": {"name": "c"}, "provisioner": "example.com/p", "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    });
    refusals(
        "storage.k8s.io",
        "storageclasses",
        &class,
        &[
            ("/provisioner", json!(""), &["provisioner"]),
            ("/provisioner", json!("a b"), &["provisioner"]),
            ("/reclaimPolicy", json!("Recycle"), &["reclaimPolicy"]),
            ("/volumeBindingMode", json!("Later"), &["volumeBindingMode"]),
            ("/parameters", json!({"": "x"}), &["parameters"]),
        ],
    );
    let map = json!({"metadata": {"name": "m", "namespace": "n"}, "data": {"a": "b"}});
    refusals(
        "",
        "configmaps",
        &map,
        &[("/data", json!({"a b": ""}), &["data[a b]"]), ("/binaryData", json!({"a": "AAAA"}), &["data[a]"])],
    );
    let lease = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"holderIdentity": "a"}});
    refusals(
        "coordination.k8s.io",
        "leases",
        &lease,
        &[
            ("/spec/leaseDurationSeconds", json!(0), &["spec.leaseDurationSeconds"]),
            ("/spec/leaseTransitions", json!(-1), &["spec.leaseTransitions"]),
        ],
    );
}

#[test]
fn what_may_not_change() {
    for (plural, good, pointer, value, fields) in [
        ("persistentvolumes", volume(), "/spec/storageClassName", json!("slow"), vec![]),
        ("persistentvolumes", volume(), "/spec/csi/volumeHandle", json!("x"), vec!["spec.persistentvolumesource"]),
        ("persistentvolumes", volume(), "/spec/volumeMode", json!("Block"), vec!["volumeMode"]),
        ("persistentvolumes", volume(), "/metadata/uid", json!("x"), vec!["metadata.uid"]),
        ("persistentvolumeclaims", claim(), "/spec/volumeName", json!("v"), vec![]),
        ("persistentvolumeclaims", claim(), "/spec/accessModes", json!(["ReadWriteMany"]), vec!["spec"]),
        ("persistentvolumeclaims", claim(), "/metadata/resourceVersion", Value::Null, vec!["metadata.resourceVersion"]),
        ("persistentvolumeclaims", claim(), "/metadata/labels", json!({"a": "b"}), vec![]),
    ] {
        let mut changed = good.clone();
        set(&mut changed, pointer, value.clone());
        let mut causes = on_update(&Resource::builtin("", plural), &good, &changed, None);
        // Equal causes from several rules count once.
        causes.dedup_by_key(|cause| cause.field.clone());
        let found: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, fields, "{plural} {pointer} {value}: {causes:?}");
    }
}

#[test]
fn access_reviews_are_about_one_thing() {
    let resources = json!({"resourceAttributes": {"verb": "get"}});
    for (plural, spec, fields) in [
        ("selfsubjectaccessreviews", resources.clone(), vec![]),
        ("selfsubjectaccessreviews", json!({}), vec!["spec"]),
        ("subjectaccessreviews", resources, vec!["spec.user"]),
        ("subjectaccessreviews", json!({"groups": ["g"], "nonResourceAttributes": {"path": "/"}}), vec![]),
        (
            "localsubjectaccessreviews",
            json!({"user": "u", "resourceAttributes": {}}),
            vec!["spec.resourceAttributes.namespace"],
        ),
        ("selfsubjectrulesreviews", json!({}), vec![]),
    ] {
        let resource = Resource::builtin("authorization.k8s.io", plural);
        let causes = review(&resource, &json!({"metadata": {"namespace": "n"}, "spec": spec}));
        let found: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, fields, "{plural}");
    }
}
