use serde_json::json;

use super::{Cause, Status};
use crate::resource::Resource;

#[test]
fn names_are_qualified_by_the_group() {
    let claims = Resource::builtin("", "persistentvolumeclaims");
    let classes = Resource::builtin("storage.k8s.io", "storageclasses");
    assert_eq!(Status::not_found(&claims, "a").message, "persistentvolumeclaims \"a\" not found");
    assert_eq!(Status::already_exists(&classes, "a").message, "storageclasses.storage.k8s.io \"a\" already exists");
    let cause = Cause::required("provisioner", "");
    assert_eq!(
        Status::invalid(&classes, "a", vec![cause]).message,
        "StorageClass.storage.k8s.io \"a\" is invalid: provisioner: Required value"
    );
}

#[test]
fn several_causes_stand_in_brackets_and_repeated_ones_count_once() {
    let volumes = Resource::builtin("", "persistentvolumes");
    let causes = vec![
        Cause::forbidden("spec.x", "is immutable after creation"),
        Cause::forbidden("spec.x", "is immutable after creation"),
        Cause::invalid("spec.y", &json!("z"), "must be good"),
    ];
    let status = Status::invalid(&volumes, "v", causes);
    assert_eq!(
        status.message,
        "PersistentVolume \"v\" is invalid: [spec.x: Forbidden: is immutable after creation, \
         spec.y: Invalid value: \"z\": must be good]"
    );
    let value = status.to_value();
    assert_eq!(value["details"]["kind"], "PersistentVolume");
    assert_eq!(
        value["details"]["causes"][1],
        json!({"reason": "FieldValueInvalid", "message": "Invalid value: \"z\": must be good", "field": "spec.y"})
    );
}

#[test]
fn a_refusal_in_json() {
    let claims = Resource::builtin("", "persistentvolumeclaims");
    assert_eq!(
        Status::modified(&claims, "a").to_value(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409, "reason": "Conflict",
            "message": "Operation cannot be fulfilled on persistentvolumeclaims \"a\": the object has been modified; \
                        please apply your changes to the latest version and try again",
            "details": {"name": "a", "kind": "persistentvolumeclaims"},
        })
    );
    let value = Status::resource_version_too_large(9, 4, 1).to_value();
    assert_eq!(value["message"], "Timeout: Too large resource version: 9, current: 4");
    assert_eq!(
        value["details"],
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
               "retryAfterSeconds": 1})
    );
}
