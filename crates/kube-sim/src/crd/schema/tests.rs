use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{collect_patterns, prune_object, set_defaults, validate};

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {
            "type": "object", "required": ["bucket"],
            "properties": {
                "bucket": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
                "count": {"type": "integer", "minimum": 1, "default": 2},
                "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": true},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            },
        },
    }})
}

fn texts(object: &Value) -> Vec<String> {
    let mut patterns = BTreeMap::new();
    collect_patterns(&schema(), &mut patterns);
    validate(&schema(), &patterns, object).iter().map(|cause| cause.text()).collect()
}

#[test]
fn prunes_unknown_fields() {
    let mut object = json!({
        "kind": "K", "metadata": {"name": "n"}, "other": 1,
        "spec": {"bucket": "b", "what": 1, "extra": {"any": 1}, "labels": {"l": "v"}, "list": [{"x": 1, "y": 2}]},
    });
    let mut removed = Vec::new();
    prune_object(&schema(), &mut object, &mut removed);
    removed.sort();
    assert_eq!(removed, ["other", "spec.list[0].y", "spec.what"]);
    assert_eq!(
        object,
        json!({"kind": "K", "metadata": {"name": "n"},
               "spec": {"bucket": "b", "extra": {"any": 1}, "labels": {"l": "v"}, "list": [{"x": 1}]}})
    );
}

#[test]
fn sets_defaults_only_in_existing_objects() {
    let mut object = json!({"spec": {"bucket": "b", "count": null}});
    set_defaults(&schema(), &mut object);
    assert_eq!(object["spec"]["count"], 2);
    let mut object = json!({});
    set_defaults(&schema(), &mut object);
    assert_eq!(object, json!({}));
}

#[test]
fn drops_nulls_that_the_schema_forbids() {
    let mut object = json!({"metadata": {"creationTimestamp": null}, "spec": {
        "bucket": null, "labels": {"l": null}, "extra": {"any": null}, "list": [null, {"x": null}],
    }});
    set_defaults(&schema(), &mut object);
    let spec = json!({"count": 2, "labels": {}, "extra": {"any": null}, "list": [null, {}]});
    assert_eq!(object, json!({"metadata": {"creationTimestamp": null}, "spec": spec}));
}

#[test]
fn reports_invalid_values_like_the_server() {
    let cases = [
        (
            json!({"spec": {"bucket": "B"}}),
            "spec.bucket: Invalid value: \"B\": spec.bucket in body should match '^[a-z]+$'",
        ),
        (
            json!({"spec": {"bucket": "b", "list": [{"x": "1"}]}}),
            "spec.list[0].x: Invalid value: \"string\": spec.list[0].x in body must be of type integer: \"string\"",
        ),
    ];
    for (object, expected) in cases {
        assert_eq!(texts(&object), [expected], "{object}");
    }
    assert_eq!(texts(&json!({"spec": {"bucket": "b", "port": "http", "count": 3.0}})), [""; 0]);
}
