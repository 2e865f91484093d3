use serde_json::json;

use super::*;

#[test]
fn checks_volume_sources() {
    let resource = Resource::builtin("", "persistentvolumes");
    for (source, value, fields) in [
        ("iscsi", json!({"targetPortal": "a", "iqn": "x", "lun": 256}), vec!["spec.iscsi.iqn", "spec.iscsi.lun"]),
        ("rbd", json!({"monitors": ["a"]}), vec!["spec.rbd.image"]),
        ("cephfs", json!({"monitors": ["a"]}), vec![]),
        ("fc", json!({"targetWWNs": ["a"]}), vec!["spec.fc.lun"]),
        ("fc", json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 1}), vec!["spec.fc.targetWWNs"]),
        ("cinder", json!({}), vec![]),
    ] {
        let volume = json!({
            "metadata": {"name": "v", "resourceVersion": "1"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast", source: value,
            },
        });
        let causes = on_create(&resource, &volume);
        let found: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, fields, "{source} {value}");
    }
}

#[test]
fn checks_specs_of_access_reviews() {
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
