use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::*;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {
            "type": "object", "required": ["size"],
            "properties": {"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}},
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": schema, "subresources": {"status": {}},
               "selectableFields": [{"jsonPath": ".spec.color"}]})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
    })
}

fn things(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", version, "Thing");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk_with_plural(&kind, "things"))
}

fn thing(version: &str, spec: Value) -> DynamicObject {
    from(
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}),
    )
}

#[tokio::test(start_paused = true)]
async fn serves_custom_resources_of_a_definition() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let (code, made) = raw(&client, "POST", PATH, definition()).await;
    assert_eq!((code, made["spec"]["names"]["listKind"].as_str()), (201, Some("ThingList")));
    let established =
        cluster.get("apiextensions.k8s.io", "customresourcedefinitions", "", "things.example.com").unwrap();
    let conditions = established["status"]["conditions"].as_array().unwrap();
    let names: Vec<_> = conditions.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
    assert_eq!(names, [(&json!("NamesAccepted"), &json!("True")), (&json!("Established"), &json!("True"))]);
    assert_eq!(cluster.resource("example.com", "things").unwrap().short_names, ["th"]);

    let api = things(&client, "v1alpha1");
    let made = api.create(&PostParams::default(), &thing("v1alpha1", json!({"size": 1, "shape": "x"}))).await.unwrap();
    assert_eq!(made.data["spec"], json!({"size": 1, "color": "red"}));
    let through_v1 = things(&client, "v1").get("a").await.unwrap();
    assert_eq!(through_v1.types.unwrap().api_version, "example.com/v1");
    assert_eq!(
        refusal(api.create(&PostParams::default(), &thing("v1alpha1", json!({"size": 0}))).await),
        (
            422,
            "Thing.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or \
             equal to 1"
                .into()
        )
    );
    let red = api.list(&ListParams::default().fields("spec.color=red")).await.unwrap();
    assert_eq!((red.items.len(), red.items[0].data["spec"]["size"].as_i64()), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_definition_deletes_its_objects() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    raw(&client, "POST", PATH, definition()).await;
    let api = things(&client, "v1");
    let mut held = thing("v1", json!({"size": 1}));
    held.metadata.finalizers = Some(vec!["example.com/f".into()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    let mut stream = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    assert!(matches!(next(&mut stream).await.unwrap(), WatchEvent::Added(_)));
    let path = format!("{PATH}/things.example.com");
    assert_eq!(raw(&client, "DELETE", &path, Value::Null).await.0, 200);
    // The finalizer of the custom resource also delays the deletion of the definition.
    assert!(matches!(next(&mut stream).await.unwrap(), WatchEvent::Modified(_)));
    assert_eq!(raw(&client, "GET", &path, Value::Null).await.0, 200);
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert_eq!(raw(&client, "GET", &path, Value::Null).await.0, 404);
    assert!(matches!(next(&mut stream).await.unwrap(), WatchEvent::Deleted(_)));
    assert!(stream.next().await.is_none());
    assert_eq!(refusal(api.get("a").await).0, 404);
    // The definition can be created again.
    assert_eq!(raw(&client, "POST", PATH, definition()).await.0, 201);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 0);
}
