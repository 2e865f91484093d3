//! Discovery and OpenAPI.

use kube::discovery::{Discovery, Scope, verbs};

use super::*;

fn definition(versions: &[&str]) -> Value {
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": *name == versions[0], "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "string"}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": versions.iter().map(version).collect::<Vec<Value>>(),
        },
    })
}

#[tokio::test]
async fn aggregated_and_unaggregated_discovery_agree() {
    let served = Served::new(Cluster::new()).await;
    served.cluster.create(&definition(&["v1beta1", "v2alpha1", "v1"])).unwrap();
    for aggregated in [false, true] {
        let discovery = Discovery::new(served.client(None));
        let discovery = if aggregated { discovery.run_aggregated().await } else { discovery.run().await }.unwrap();
        let group = discovery.get("example.com").unwrap();
        assert_eq!(group.preferred_version_or_latest(), "v1", "aggregated: {aggregated}");
        assert_eq!(group.versions().collect::<Vec<_>>(), ["v1", "v1beta1", "v2alpha1"], "aggregated: {aggregated}");
        let (resource, capabilities) = discovery.get("").unwrap().recommended_kind("PersistentVolumeClaim").unwrap();
        assert_eq!((resource.plural.as_str(), &capabilities.scope), ("persistentvolumeclaims", &Scope::Namespaced));
        assert!(capabilities.supports_operation(verbs::PATCH));
        assert!(capabilities.subresources.iter().any(|(part, _)| part.plural == "status"));
        let things: Api<DynamicObject> =
            Api::default_namespaced_with(served.client(None), &group.recommended_kind("Thing").unwrap().0);
        assert_eq!(things.list(&ListParams::default()).await.unwrap().items.len(), 0);
    }
}

#[tokio::test]
async fn missing_paths_return_404_or_501() {
    let served = Served::new(Cluster::new()).await;
    let gone = json!("404 page not found\n");
    for path in ["/nothing", "/apis/nothing", "/apis/nothing/v1", "/apis/nothing/v1/things", "/readyz/nothing"] {
        assert_eq!(served.get(path, "*/*").await, (404, gone.clone()), "{path}");
    }
    for path in ["/api/v2", "/apis/apps/v2", "/apis/storage.k8s.io/v1/things"] {
        let (code, status) = served.get(path, "*/*").await;
        assert_eq!(
            (code, &status["message"]),
            (404, &json!("the server could not find the requested resource")),
            "{path}"
        );
    }
    for path in ["/openapi/v2/x", "/metrics", "/apis/apps/v1/namespaces/d/deployments/a/scale"] {
        assert_eq!(served.get(path, "*/*").await.0, 501, "{path}");
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(served.get(path, "*/*").await, (200, json!("ok")), "{path}");
    }
}

#[tokio::test]
async fn all_schema_references_resolve() {
    let served = Served::new(Cluster::new()).await;
    served.cluster.create(&definition(&["v1"])).unwrap();
    let (_, index) = served.get("/openapi/v3", "*/*").await;
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/example.com/v1"));
    for url in paths.values().map(|path| path["serverRelativeURL"].as_str().unwrap()) {
        let (_, document) = served.get(url, "*/*").await;
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.get(name).is_some_and(Value::is_object), "{url}: {name}");
        }
    }
}

#[tokio::test]
async fn schemas_contain_merge_keys_and_patch_parameters() {
    let served = Served::new(Cluster::new()).await;
    let (_, document) = served.get("/openapi/v3/api/v1", "*/*").await;
    let schemas = &document["components"]["schemas"];
    let ports = &schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    let kinds = &schemas["io.k8s.api.core.v1.PersistentVolume"]["x-kubernetes-group-version-kind"];
    assert_eq!(kinds, &json!([{"group": "", "version": "v1", "kind": "PersistentVolume"}]));
    let patch = &document["paths"]["/api/v1/persistentvolumes/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}
