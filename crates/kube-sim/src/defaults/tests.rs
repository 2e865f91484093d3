use serde_json::{Value, json};

use super::*;

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

fn namespace() -> Value {
    json!({"kind": "Namespace", "metadata": {"name": "default"}, "status": {"phase": "Active"}})
}

fn class(name: &str, default: bool, created: &str) -> Value {
    json!({
        "kind": "StorageClass",
        "metadata": {
            "name": name, "creationTimestamp": created,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()},
        },
    })
}

#[test]
fn what_a_new_object_gets() {
    for (group, plural, sent, path, value) in [
        ("", "persistentvolumes", json!({"spec": {"iscsi": {}}}), "/spec/iscsi/iscsiInterface", json!("default")),
        ("storage.k8s.io", "csidrivers", json!({}), "/spec/attachRequired", json!(true)),
    ] {
        let mut object = sent.clone();
        on_create(&Resource::builtin(group, plural), &mut object, &Objects(vec![namespace()]), NOW).unwrap();
        assert_eq!(object.pointer(path).unwrap_or(&Value::Null), &value, "{plural} {sent} {path}");
    }
}

#[test]
fn a_claim_without_a_class_gets_the_newest_default() {
    let old = class("old", true, "2020-01-01T00:00:00Z");
    let new = class("new", true, "2021-01-01T00:00:00Z");
    let same = class("also-new", true, "2021-01-01T00:00:00Z");
    let other = class("other", false, "2022-01-01T00:00:00Z");
    for (classes, spec, expected) in [
        (vec![], json!({}), Value::Null),
        (vec![&other], json!({}), Value::Null),
        (vec![&old, &new, &other], json!({}), json!("new")),
        (vec![&new, &same], json!({}), json!("also-new")),
        (vec![&old], json!({"storageClassName": ""}), json!("")),
        (vec![&old], json!({"storageClassName": "x"}), json!("x")),
    ] {
        let cluster = Objects(classes.into_iter().cloned().chain([namespace()]).collect());
        let mut object = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": spec});
        on_create(&Resource::builtin("", "persistentvolumeclaims"), &mut object, &cluster, NOW).unwrap();
        assert_eq!(object["spec"]["storageClassName"], expected, "{spec}");
    }
}
