use serde_json::{Value, json};

use super::*;
use crate::object::at;

const NOW: &str = "2030-01-01T00:00:00Z";

/// A cluster with these objects.
struct Objects(Vec<Value>);

impl Lookup for Objects {
    fn list(&self, group: &str, plural: &str) -> Vec<Value> {
        let resource = Resource::builtin(group, plural);
        self.0.iter().filter(|object| object["kind"] == resource.kind).cloned().collect()
    }

    fn get(&self, group: &str, plural: &str, _: Option<&str>, name: &str) -> Option<Value> {
        self.list(group, plural).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn is_terminating(&self, namespace: &str) -> Option<bool> {
        let found = self.get("", "namespaces", None, namespace)?;
        Some(found["status"]["phase"] == "Terminating")
    }

    fn has_cross_namespace_data_sources(&self) -> bool {
        false
    }
}

fn namespace(phase: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": "default"}, "status": {"phase": phase}})
}

fn class(name: &str, default: bool, created: &str, grows: bool) -> Value {
    json!({
        "kind": "StorageClass", "allowVolumeExpansion": grows,
        "metadata": {
            "name": name, "creationTimestamp": created,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()},
        },
    })
}

fn claim(spec: Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
}

#[test]
fn what_a_new_object_gets() {
    for (group, plural, sent, path, value) in [
        ("", "persistentvolumes", json!({}), "/spec/persistentVolumeReclaimPolicy", json!("Retain")),
        ("", "persistentvolumes", json!({}), "/spec/volumeMode", json!("Filesystem")),
        ("", "persistentvolumes", json!({"spec": {"hostPath": {"path": "/a"}}}), "/spec/hostPath/type", json!("")),
        ("", "persistentvolumes", json!({"spec": {"iscsi": {}}}), "/spec/iscsi/iscsiInterface", json!("default")),
        ("", "persistentvolumes", json!({}), "/metadata/finalizers", json!(["kubernetes.io/pv-protection"])),
        (
            "",
            "persistentvolumes",
            json!({"status": {"phase": "Bound"}}),
            "/status",
            json!({"phase": "Pending", "lastPhaseTransitionTime": NOW}),
        ),
        ("", "persistentvolumeclaims", claim(json!({})), "/spec", json!({"volumeMode": "Filesystem"})),
        (
            "",
            "persistentvolumeclaims",
            claim(json!({})),
            "/metadata/finalizers",
            json!(["kubernetes.io/pvc-protection"]),
        ),
        (
            "",
            "persistentvolumeclaims",
            claim(json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}})),
            "/spec/dataSourceRef",
            json!({"kind": "PersistentVolumeClaim", "name": "a"}),
        ),
        (
            "",
            "persistentvolumeclaims",
            claim(json!({"dataSource": {"kind": "Odd", "name": "a"}})),
            "/spec/dataSource",
            Value::Null,
        ),
        ("storage.k8s.io", "storageclasses", json!({}), "/reclaimPolicy", json!("Delete")),
        ("storage.k8s.io", "storageclasses", json!({}), "/volumeBindingMode", json!("Immediate")),
        ("storage.k8s.io", "csidrivers", json!({}), "/spec/attachRequired", json!(true)),
        (
            "",
            "secrets",
            json!({"metadata": {"namespace": "default"}, "stringData": {"a": "b"}}),
            "/data/a",
            json!("Yg=="),
        ),
        (
            "",
            "namespaces",
            json!({"metadata": {"name": "n"}}),
            "/metadata/labels",
            json!({"kubernetes.io/metadata.name": "n"}),
        ),
        ("", "namespaces", json!({"metadata": {"name": "n"}}), "/spec/finalizers", json!(["kubernetes"])),
    ] {
        let mut object = sent.clone();
        on_create(&Resource::builtin(group, plural), &mut object, &Objects(vec![namespace("Active")]), NOW).unwrap();
        assert_eq!(object.pointer(path).unwrap_or(&Value::Null), &value, "{plural} {sent} {path}");
    }
}

#[test]
fn a_claim_without_a_class_gets_the_newest_default() {
    let old = class("old", true, "2020-01-01T00:00:00Z", false);
    let new = class("new", true, "2021-01-01T00:00:00Z", false);
    let same = class("also-new", true, "2021-01-01T00:00:00Z", false);
    let other = class("other", false, "2022-01-01T00:00:00Z", false);
    for (classes, spec, expected) in [
        (vec![], json!({}), Value::Null),
        (vec![&other], json!({}), Value::Null),
        (vec![&old, &new, &other], json!({}), json!("new")),
        (vec![&new, &same], json!({}), json!("also-new")),
        (vec![&old], json!({"storageClassName": ""}), json!("")),
        (vec![&old], json!({"storageClassName": "x"}), json!("x")),
    ] {
        let cluster = Objects(classes.into_iter().cloned().chain([namespace("Active")]).collect());
        let mut object = claim(spec.clone());
        on_create(&Resource::builtin("", "persistentvolumeclaims"), &mut object, &cluster, NOW).unwrap();
        assert_eq!(object["spec"]["storageClassName"], expected, "{spec}");
    }
}

#[test]
fn nothing_is_made_in_a_namespace_that_is_missing_or_going() {
    let resource = Resource::builtin("", "persistentvolumeclaims");
    for (cluster, code) in [(vec![], 404), (vec![namespace("Terminating")], 403)] {
        let refused = on_create(&resource, &mut claim(json!({})), &Objects(cluster), NOW).unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
    }
}

#[test]
fn an_update_touches_only_its_own_part() {
    let volumes = Resource::builtin("", "persistentvolumes");
    let old = json!({
        "metadata": {"name": "v", "uid": "u", "creationTimestamp": NOW}, "spec": {"volumeMode": "Block"},
        "status": {"phase": "Pending", "lastPhaseTransitionTime": NOW},
    });
    let sent = json!({
        "metadata": {"name": "v", "creationTimestamp": "2031-01-01T00:00:00Z", "selfLink": "/x", "generation": 7},
        "spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Bound", "lastPhaseTransitionTime": NOW},
    });
    let updated = |part| {
        let mut new = sent.clone();
        on_update(&volumes, &old, &mut new, part, &Objects(Vec::new()), "2030-06-01T00:00:00Z");
        new
    };
    let (whole, status) = (updated(None), updated(Some("status")));
    assert_eq!((&whole["status"], &status["spec"]), (&old["status"], &old["spec"]));
    assert_eq!((&whole["metadata"], &status["metadata"]), (&old["metadata"], &old["metadata"]));
    assert_eq!(whole["spec"]["volumeMode"], "Filesystem");
    let stamped = json!({"phase": "Bound", "lastPhaseTransitionTime": "2030-06-01T00:00:00Z"});
    assert_eq!(status["status"], stamped);
}

#[test]
fn only_bound_claims_of_classes_that_allow_it_grow() {
    let sized = |size: &str, class: &str, phase: &str| {
        let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": size}}});
        let mut claim = claim(spec);
        claim["status"] = json!({"phase": phase});
        claim
    };
    let cluster = Objects(vec![class("grows", false, NOW, true), class("stays", false, NOW, false)]);
    let resource = Resource::builtin("", "persistentvolumeclaims");
    for (old, new, allowed) in [
        (sized("1Gi", "grows", "Bound"), sized("2Gi", "grows", "Bound"), true),
        (sized("1Gi", "grows", "Bound"), sized("1024Mi", "grows", "Bound"), true),
        (sized("1Gi", "grows", "Pending"), sized("2Gi", "grows", "Pending"), false),
        (sized("1Gi", "stays", "Bound"), sized("2Gi", "stays", "Bound"), false),
        (sized("1Gi", "none", "Bound"), sized("2Gi", "none", "Bound"), false),
        (sized("1Gi", "", "Bound"), sized("2Gi", "", "Bound"), false),
    ] {
        let admitted = admit_update(&resource, &old, &new, None, &cluster);
        assert_eq!(admitted.is_ok(), allowed, "{:?} {:?}", at(&old, &["spec"]), at(&new, &["spec"]));
    }
}
