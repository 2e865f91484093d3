use serde_json::{Value, json};

use super::*;

fn decoded(group: &str, plural: &str, mut object: Value) -> (Value, Vec<String>) {
    let resource = Resource::builtin(group, plural);
    let warnings =
        decode(&resource, &mut object, &[], FieldValidation::Warn).unwrap_or_else(|error| panic!("{}", error.message));
    (object, warnings)
}

fn volume(spec: Value) -> Value {
    let mut volume =
        json!({"kind": "PersistentVolume", "metadata": {"name": "p"}, "spec": {"capacity": {"storage": "1Gi"}}});
    for (key, value) in spec.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    volume
}

#[test]
fn normalizes_objects_like_go() {
    let (object, warnings) = decoded(
        "",
        "persistentvolumes",
        volume(json!({
            "capacity": {"storage": 5.5, "x": null, "y": "1024Mi"}, "storageClassName": "", "mountOptions": [], "claimRef": null,
            "volumeMode": "Block", "colour": "red", "hostPath": {"path": "/x", "type": "", "wrong": 1},
        })),
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "p"},
            "spec": {"capacity": {"storage": "5500m", "x": "0", "y": "1Gi"}, "volumeMode": "Block", "hostPath": {"path": "/x", "type": ""}},
            "status": {},
        })
    );
    assert_eq!(warnings, [r#"unknown field "spec.colour""#, r#"unknown field "spec.hostPath.wrong""#]);
}

#[test]
fn adds_required_fields_and_omits_empty_ones() {
    let (lease, _) =
        decoded("coordination.k8s.io", "leases", json!({"metadata": {"labels": {}, "annotations": {"a": null}}}));
    let metadata = json!({"annotations": {"a": ""}});
    assert_eq!(
        lease,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}})
    );
    let (event, _) = decoded("", "events", json!({}));
    assert_eq!(
        event,
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {}, "involvedObject": {}, "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": "",
        })
    );
    let (map, _) = decoded("", "configmaps", json!({"binaryData": {"a": "aG\nk="}, "immutable": false}));
    assert_eq!((&map["binaryData"], &map["immutable"]), (&json!({"a": "aGk="}), &json!(false)));
}

#[test]
fn decoding_is_idempotent() {
    for resource in crate::resource::builtins() {
        let mut object = json!({"metadata": {"name": "x"}});
        decode(resource, &mut object, &[], FieldValidation::Strict).unwrap();
        let once = object.clone();
        decode(resource, &mut object, &[], FieldValidation::Strict).unwrap();
        assert_eq!(object, once, "{}", resource.kind);
    }
}

#[test]
fn rejects_wrong_types_with_go_errors() {
    let lease = |spec: Value| json!({"metadata": {"name": "l"}, "spec": spec});
    // Recorded from kube-apiserver 1.37.1, without `… cannot be handled as a …: `.
    for (group, plural, object, error) in [
        (
            "",
            "persistentvolumes",
            volume(json!({"storageClassName": 5})),
            "json: cannot unmarshal number into Go struct field PersistentVolumeSpec.spec.storageClassName of type string",
        ),
        (
            "",
            "persistentvolumes",
            volume(json!({"capacity": "x"})),
            "json: cannot unmarshal string into Go struct field PersistentVolumeSpec.spec.capacity of type v1.ResourceList",
        ),
        (
            "",
            "persistentvolumes",
            volume(json!({"capacity": {"storage": true}})),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "",
            "persistentvolumes",
            volume(json!({"accessModes": [1]})),
            "json: cannot unmarshal number into Go struct field PersistentVolumeSpec.spec.accessModes of type v1.PersistentVolumeAccessMode",
        ),
        (
            "",
            "persistentvolumes",
            volume(json!({"hostPath": [1]})),
            "json: cannot unmarshal array into Go struct field PersistentVolumeSpec.spec.PersistentVolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        (
            "",
            "persistentvolumes",
            json!({"metadata": {"generation": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            "",
            "persistentvolumes",
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "",
            "persistentvolumes",
            volume(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": 1}]}]}}})),
            "json: cannot unmarshal number into Go struct field NodeSelectorRequirement.spec.nodeAffinity.required.nodeSelectorTerms.matchExpressions.key of type string",
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({"parameters": []}),
            "json: cannot unmarshal array into Go struct field StorageClass.parameters of type map[string]string",
        ),
        (
            "",
            "configmaps",
            json!({"binaryData": {"a": 5}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.binaryData of type []uint8",
        ),
        ("", "configmaps", json!({"binaryData": {"a": "aGk"}}), "illegal base64 data at input byte 0"),
        (
            "coordination.k8s.io",
            "leases",
            lease(json!({"renewTime": "x"})),
            r#"parsing time "x" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "x" as "2006""#,
        ),
    ] {
        let resource = Resource::builtin(group, plural);
        let refused = decode(&resource, &mut object.clone(), &[], FieldValidation::Warn).expect_err(error);
        let kind = &resource.kind;
        let message = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {error}");
        assert_eq!((refused.code, refused.message), (400, message));
    }
}

#[test]
fn strict_rejects_and_ignore_drops_unknown_fields() {
    let volumes = Resource::builtin("", "persistentvolumes");
    let mut object = volume(json!({"foo": 1, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"x": 1}]}}}));
    let refused = decode(&volumes, &mut object.clone(), &[], FieldValidation::Strict).unwrap_err();
    assert_eq!(
        refused.message,
        "PersistentVolume in version \"v1\" cannot be handled as a PersistentVolume: strict decoding error: unknown field \
         \"spec.foo\", unknown field \"spec.nodeAffinity.required.nodeSelectorTerms[0].x\""
    );
    assert_eq!(decode(&volumes, &mut object, &[], FieldValidation::Ignore), Ok(Vec::new()));
    assert_eq!(object["spec"].get("foo"), None);
}

#[test]
fn custom_resources_lose_only_unknown_metadata() {
    let custom = Resource { custom: true, ..(*Resource::builtin("", "configmaps")).clone() };
    let mut object = json!({"metadata": {"name": "x", "nonsense": 1}, "spec": {"any": null}});
    decode(&custom, &mut object, &[], FieldValidation::Warn).unwrap();
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "spec": {"any": null}})
    );
}
