use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const OPTIONS: PatchOptions<'static> = PatchOptions {
    field_manager: Some("p"),
    force: false,
    field_validation: FieldValidation::Warn,
    subresource: None,
    now: "2030-01-01T00:00:00Z",
};

#[test]
fn merge_patches_follow_rfc_7386() {
    for (target, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merge::patch(&target, patch.clone()).unwrap(), result, "{target} {patch}");
    }
    for patch in [json!([1]), json!(7), json!(null)] {
        assert_eq!(merge::patch(&json!({}), patch.clone()).unwrap_err().code, 400, "{patch}");
    }
}

#[test]
fn json_patches_match_the_server_library() {
    let object = json!({"m": {"a/b": 1, "c~d": 2}, "l": [1, 2, 3]});
    let done = |operations: Value| json::patch(&object, operations.to_string().as_bytes());
    for (operation, pointer, value) in [
        (json!({"op": "remove", "path": "/l/-1"}), "/l", json!([1, 2])),
        (json!({"op": "remove", "path": "/m/a~1b"}), "/m", json!({"c~d": 2})),
        (json!({"op": "replace", "path": "/m/c~0d", "value": 3}), "/m", json!({"a/b": 1, "c~d": 3})),
        (json!({"op": "replace", "path": "/m/missing", "value": 3}), "/m/missing", json!(3)),
        (json!({"op": "move", "from": "/l/0", "path": "/l/2"}), "/l", json!([2, 3, 1])),
        (json!({"op": "copy", "from": "/l", "path": "/m/l"}), "/m/l", json!([1, 2, 3])),
        (json!({"op": "test", "path": "/m/missing", "value": null}), "/l", json!([1, 2, 3])),
    ] {
        let result = done(json!([operation])).unwrap();
        assert_eq!(result.pointer(pointer), Some(&value), "{operation}");
    }
    let ignored = [json!({"op": "remove", "path": "/m"}), json!({"op": "test", "path": "/l", "value": 0})];
    assert_eq!(done(json!(ignored)).unwrap_err().code, 422, "one failing operation fails the whole patch");
}

#[test]
fn unknown_fields_cause_warnings_or_refusals() {
    let resource = Resource::builtin("", "configmaps");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    for (kind, patch, warning) in [
        (PatchKind::Merge, r#"{"foo": 1}"#, "unknown field \"foo\""),
        (PatchKind::Merge, r#"{"data": {"a": "1", "a": "2"}}"#, "duplicate field \"data.a\""),
        (PatchKind::Json, r#"[{"op": "add", "path": "/foo", "value": 1}]"#, "unknown field \"foo\""),
        (PatchKind::StrategicMerge, r#"{"foo": 1}"#, "unknown field \"foo\""),
    ] {
        let patched = |field_validation| {
            let options = PatchOptions { field_validation, ..OPTIONS };
            apply_patch(kind, &resource, Some(&object), patch.as_bytes(), &options)
        };
        assert_eq!(patched(FieldValidation::Warn).unwrap().warnings, [warning]);
        assert_eq!(patched(FieldValidation::Ignore).unwrap().warnings, [""; 0]);
        let refused = patched(FieldValidation::Strict).unwrap_err();
        assert!(refused.message.ends_with(&format!("strict decoding error: {warning}")), "{refused}");
        assert_eq!(patched(FieldValidation::Warn).unwrap().object.get("foo"), None);
    }
}

#[test]
fn creator_owns_all_fields_it_sent() {
    // Recorded from kube-apiserver 1.37.1.
    for (group, plural, sent, fields) in [
        (
            "",
            "persistentvolumes",
            json!({
                "metadata": {
                    "name": "w", "uid": "u", "creationTimestamp": "2030-01-01T00:00:00Z", "labels": {"l": "1"},
                    "annotations": {"pv.kubernetes.io/provisioned-by": "a.b"}, "finalizers": ["x.y/z"],
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "x",
                    "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
                    "csi": {"driver": "a.b", "volumeHandle": "h"},
                    "claimRef": {"namespace": "default", "name": "c", "uid": "u"},
                },
                "status": {"phase": "Pending"},
            }),
            r#"{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/provisioned-by":{}},"f:finalizers":{".":{},"v:\"x.y/z\"":{}},"f:labels":{".":{},"f:l":{}}},"f:spec":{"f:accessModes":{},"f:capacity":{".":{},"f:storage":{}},"f:claimRef":{".":{},"f:name":{},"f:namespace":{},"f:uid":{}},"f:csi":{".":{},"f:driver":{},"f:volumeHandle":{}},"f:persistentVolumeReclaimPolicy":{},"f:storageClassName":{},"f:volumeMode":{}}}"#,
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({
                "metadata": {"name": "c"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "x", "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            }),
            r#"{"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{".":{},"f:storage":{}}},"f:storageClassName":{},"f:volumeMode":{}}}"#,
        ),
        (
            "",
            "secrets",
            json!({
                "metadata": {
                    "name": "z1", "generateName": "z",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "9e1d"}],
                },
                "data": {"a": "Yg=="}, "type": "Opaque",
            }),
            r#"{"f:data":{".":{},"f:a":{}},"f:metadata":{"f:generateName":{},"f:ownerReferences":{".":{},"k:{\"uid\":\"9e1d\"}":{}}},"f:type":{}}"#,
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({
                "metadata": {"name": "z"}, "provisioner": "x.y/z", "mountOptions": ["a"], "parameters": {"a": "b"},
                "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
            }),
            r#"{"f:mountOptions":{},"f:parameters":{".":{},"f:a":{}},"f:provisioner":{},"f:reclaimPolicy":{},"f:volumeBindingMode":{}}"#,
        ),
        (
            "",
            "events",
            json!({
                "metadata": {"name": "z"}, "involvedObject": {"namespace": "default"}, "reason": "x",
                "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
                "reportingComponent": "", "reportingInstance": "",
            }),
            r#"{"f:involvedObject":{},"f:reason":{},"f:source":{"f:component":{}}}"#,
        ),
        ("coordination.k8s.io", "leases", json!({"metadata": {"name": "l"}, "spec": {}}), ""),
    ] {
        let resource = Resource::builtin(group, plural);
        let owners = Managers::of_creation(&resource, &sent, &OPTIONS);
        assert_eq!(Managers::from_json(&owners.to_json()).to_json(), owners.to_json());
        let entries: Value = serde_json::from_str(&owners.to_json()).unwrap_or_default();
        let shown = entries.pointer("/0/fieldsV1").map(Value::to_string).unwrap_or_default();
        assert_eq!(shown, fields, "{plural}");
    }
}

#[test]
fn writer_takes_over_ownership_of_changed_fields() {
    let resource = Resource::builtin("", "persistentvolumes");
    let old = json!({"metadata": {"name": "w", "annotations": {"a": "1"}, "labels": {"l": "1"}}, "status": {}});
    let mut new = old.clone();
    new["metadata"] = json!({"name": "w", "annotations": {"a": "1", "b": "yes"}});
    new["status"]["phase"] = "Bound".into();
    let by = |manager, subresource| PatchOptions { field_manager: Some(manager), subresource, ..OPTIONS };
    let owners = Managers::of_creation(&resource, &old, &by("maker", None));
    let owners = owners.after_change(&resource, &old, &new, &by("binder", None));
    let shown: Value = serde_json::from_str(&owners.to_json()).unwrap();
    assert_eq!(shown[0]["manager"], "binder");
    assert_eq!(shown[0]["fieldsV1"], json!({"f:metadata": {"f:annotations": {"f:b": {}}}}));
    assert_eq!(shown[1]["manager"], "maker");
    assert_eq!(shown[1]["fieldsV1"], json!({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}}));
    // The manager that writes the status subresource owns the status.
    let owners = Managers::default().after_change(&resource, &old, &new, &by("binder", Some("status")));
    let shown: Value = serde_json::from_str(&owners.to_json()).unwrap();
    assert_eq!(
        (shown[0]["subresource"].as_str(), &shown[0]["fieldsV1"]["f:status"]),
        (Some("status"), &json!({"f:phase": {}}))
    );
}

/// JSON without nulls, which mean something else in merge patches.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c]?".prop_map(Value::from)
    ];
    let object =
        |inner: BoxedStrategy<Value>| prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| json!(map));
    let value = leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from), object(inner.boxed())]
    });
    object(value.boxed())
}

/// Returns the merge patch that leads from one object to the other.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    let changed = changed.map(|(name, value)| match old.get(name).filter(|old| old.is_object() && value.is_object()) {
        Some(old) => (name.clone(), difference(old, value)),
        None => (name.clone(), value.clone()),
    });
    Value::Object(gone.chain(changed).collect())
}

proptest! {
    #[test]
    fn merge_patch_of_a_difference_yields_the_target(from in document(), to in document()) {
        let patch = difference(&from, &to);
        let patched = merge::patch(&from, patch.clone()).unwrap();
        prop_assert_eq!(&patched, &to);
        prop_assert_eq!(&merge::patch(&patched, patch).unwrap(), &to);
    }

    #[test]
    fn adding_and_removing_a_member_changes_nothing(object in document(), value in document()) {
        let patch = json!([
            {"op": "add", "path": "/zz", "value": value}, {"op": "test", "path": "/zz", "value": value},
            {"op": "remove", "path": "/zz"},
        ]);
        prop_assert_eq!(json::patch(&object, patch.to_string().as_bytes()).unwrap(), object);
    }
}
