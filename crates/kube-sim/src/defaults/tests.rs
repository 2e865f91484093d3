use serde_json::json;

use super::*;

#[test]
fn sets_defaults_of_new_objects() {
    for (group, plural, mut object, path, value) in [
        ("", "persistentvolumes", json!({"spec": {"iscsi": {}}}), "/spec/iscsi/iscsiInterface", json!("default")),
        ("storage.k8s.io", "csidrivers", json!({}), "/spec/attachRequired", json!(true)),
    ] {
        types::set_defaults(&Resource::builtin(group, plural), &mut object);
        assert_eq!(object.pointer(path), Some(&value), "{plural} {path}");
    }
}
